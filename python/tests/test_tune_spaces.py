"""Spaces of manta.tune: what is accepted, what is refused with which words, and what a configuration looks like."""
import warnings

import pytest

from manta import tune
from manta.tune._space import Space
from manta.tune.search import BasicVariantGenerator, SobolSearch, TPESearch, create_searcher


def draw(space, count, searcher=None):
    """Configurations of a searcher without a run."""
    searcher = searcher or BasicVariantGenerator(random_state=1)
    searcher.space = space
    return [searcher.suggest(f"t{number}") for number in range(count)]


def test_values_lie_in_their_domains():
    space = {"u": tune.uniform(2, 3), "q": tune.quniform(0, 1, 0.25), "l": tune.loguniform(1e-4, 1e-1),
             "i": tune.randint(0, 3), "qi": tune.qrandint(2, 10, 4), "li": tune.lograndint(1, 100),
             "n": tune.randn(5, 0.1), "qn": tune.qrandn(0, 1, 0.5), "c": tune.choice(["a", "b"]),
             "ql": tune.qloguniform(0.1, 1, 0.1), "qli": tune.qlograndint(2, 64, 2)}
    for config in draw(space, 50):
        assert 2 <= config["u"] <= 3
        assert config["q"] in (0, 0.25, 0.5, 0.75, 1)
        assert 1e-4 <= config["l"] <= 1e-1
        assert config["i"] in (0, 1, 2) and isinstance(config["i"], int)
        assert config["qi"] in (4, 8)
        assert 1 <= config["li"] < 100
        assert 4 < config["n"] < 6
        assert config["qn"] * 2 == int(config["qn"] * 2)
        assert config["c"] in ("a", "b")
        assert 0.1 <= config["ql"] <= 1
        assert config["qli"] % 2 == 0


def test_a_domain_can_be_sampled_alone():
    assert 0 <= tune.uniform(0, 1).sample() <= 1
    assert len(tune.randint(0, 5).sample(size=10)) == 10
    assert tune.choice([1]).sample() == 1
    assert tune.loguniform(1, 10).sample(random_state=3) == tune.loguniform(1, 10).sample(random_state=3)


def test_nested_dictionaries_and_lists_keep_their_form():
    space = {"model": {"layers": [tune.randint(1, 4), {"act": tune.choice(["relu"])}], "name": "net"}, "seed": 7}
    (config,) = draw(space, 1)
    assert config["model"]["name"] == "net" and config["seed"] == 7
    assert config["model"]["layers"][0] in (1, 2, 3) and config["model"]["layers"][1] == {"act": "relu"}


def test_a_choice_may_hold_any_object():
    class Thing:
        pass

    things = [Thing(), None, (1, 2), "text"]
    for config in draw({"thing": tune.choice(things)}, 20):
        assert any(config["thing"] is one for one in things)


def test_functions_see_other_values_in_the_order_of_their_dependencies():
    space = {"c": tune.sample_from(lambda spec: spec.config.b + 1),
             "b": tune.sample_from(lambda spec: spec.config.a * 2),
             "a": tune.randint(1, 10), "d": lambda spec: spec.config["a"]}
    for config in draw(space, 5):
        assert config["b"] == 2 * config["a"] and config["c"] == config["b"] + 1 and config["d"] == config["a"]


def test_functions_that_need_each_other_are_an_error_that_names_them():
    space = {"a": tune.sample_from(lambda spec: spec.config.b), "b": tune.sample_from(lambda spec: spec.config.a)}
    with pytest.raises(ValueError, match="a needs b, b needs a"):
        draw(space, 1)


def test_grid_and_samples_are_counted_as_ray_counts_them():
    space = {"a": tune.grid_search([1, 2]), "b": {"c": tune.grid_search([3, 4])}, "x": tune.uniform(0, 1)}
    native = BasicVariantGenerator(random_state=1).build(Space(space), "m", "min", None, 3)
    answers = []
    while (answer := native.ask(len(answers))) is not False:
        answers.append(answer)
    assert len(answers) == 12
    assert {(one["a"], one["b/c"]) for one in answers} == {(1, 3), (1, 4), (2, 3), (2, 4)}


def test_a_conditional_key_exists_only_under_its_condition():
    space = {"opt": tune.choice(["sgd", "adam"]), "momentum": tune.when({"opt": "sgd"}, tune.uniform(0, 1)),
             "betas": tune.when({"opt": ["adam"]}, {"b1": tune.uniform(0, 1), "kind": "x"})}
    configs = draw(space, 30)
    assert {config["opt"] for config in configs} == {"sgd", "adam"}
    for config in configs:
        assert ("momentum" in config) == (config["opt"] == "sgd")
        assert ("betas" in config) == (config["opt"] == "adam")
        if "betas" in config:
            assert config["betas"]["kind"] == "x"


@pytest.mark.parametrize(("space", "words"), [
    ({"a": {"lr": tune.uniform(2, 1)}}, "a/lr"),
    ({"lr": tune.loguniform(0, 1)}, "lr"),
    ({"n": tune.randint(3, 3)}, "n"),
    ({"q": tune.quniform(0, 1, 5)}, "q"),
    ({"c": tune.choice([])}, "c: choice needs a list with at least one value"),
    ({"g": {"grid_search": 3}}, "g: grid_search needs a list"),
])
def test_a_wrong_domain_is_refused_with_its_path(space, words):
    with pytest.raises(ValueError, match=words):
        tune.Tuner(lambda config: None, param_space=space)


def test_a_space_that_is_no_dictionary_is_refused():
    with pytest.raises(ValueError, match="must be a dictionary"):
        tune.Tuner(lambda config: None, param_space=[1])


def test_base_warns():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        tune.loguniform(1, 10, base=2)
    assert "base=" in str(seen[0].message)


def test_known_points_come_first():
    searcher = BasicVariantGenerator(points_to_evaluate=[{"x": 0.5, "c": "b"}], random_state=1)
    configs = draw({"x": tune.uniform(0, 1), "c": tune.choice(["a", "b"])}, 3, searcher)
    assert configs[0] == {"x": 0.5, "c": "b"} and configs[1]["x"] != 0.5


def test_the_same_seed_gives_the_same_configurations():
    space = {"x": tune.uniform(0, 1)}
    assert draw(space, 3) == draw(space, 3)
    assert draw(space, 3) != draw(space, 3, BasicVariantGenerator(random_state=2))


def test_a_searcher_alone_learns_and_is_saved_and_restored(tmp_path):
    def search():
        return TPESearch({"x": tune.uniform(-5, 5)}, metric="loss", mode="min", seed=3, n_startup_trials=5)

    searcher = search()
    best = float("inf")
    for number in range(40):
        config = searcher.suggest(str(number))
        loss = (config["x"] - 2) ** 2
        best = min(best, loss)
        searcher.on_trial_complete(str(number), {"loss": loss})
    assert best < 0.05
    searcher.save(str(tmp_path / "state"))
    again = search()
    again.restore(str(tmp_path / "state"))
    assert again.suggest("next") == searcher.suggest("next")


def test_searchers_have_names_and_unknown_ones_are_refused():
    assert isinstance(create_searcher("sobol"), SobolSearch)
    with pytest.raises(ValueError, match="Did you mean sobol"):
        create_searcher("sobel")


def test_a_missing_package_is_named_with_the_native_searcher(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match="pip install optuna.*TPESearch"):
        create_searcher("optuna")


@pytest.mark.parametrize("name", ["tpe", "gp", "cmaes", "bohb", "nsga2", "random", "sobol", "halton"])
def test_every_native_searcher_is_asked_and_told(name):
    space = {"x": tune.uniform(-5, 5), "n": tune.randint(1, 9), "c": tune.choice(["a", "b"])}
    searcher = create_searcher(name)
    searcher.set_search_properties("loss", "min", space)
    for number in range(15):
        config = searcher.suggest(str(number))
        assert -5 <= config["x"] <= 5 and config["c"] in ("a", "b")
        searcher.on_trial_result(str(number), {"loss": 1.0, "training_iteration": 1})
        searcher.on_trial_complete(str(number), {"loss": config["x"] ** 2}, error=number == 3)
    assert searcher.suggest("last") is not None


def test_options_of_searchers_reach_the_library_and_unknown_ones_are_refused():
    with pytest.raises(TypeError, match="Did you mean n_startup_trials"):
        TPESearch(n_startups=3)
    with pytest.raises(ValueError, match="must be 'log_ei'"):
        create_searcher("gp", acquisition="ei")
    with pytest.raises(ValueError, match="evaluated_rewards has 1 values"):
        TPESearch(evaluated_rewards=[1.0])
    known = TPESearch({"x": tune.uniform(0, 1)}, metric="m", mode="min", points_to_evaluate=[{"x": 0.25}, {"x": 0.5}],
                      evaluated_rewards=[3.0])
    assert known.suggest("a") == {"x": 0.5}
