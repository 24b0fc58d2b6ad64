"""Names and options of manta.tune: Ray's checks, and errors that suggest the spelling."""
import datetime

import pytest

import manta
from manta import tune
from manta.tune import stopper
from manta.tune.schedulers import ASHAScheduler, PopulationBasedTraining, create_scheduler


def test_every_name_can_be_imported():
    for name in tune.__all__:
        assert getattr(tune, name) is not None
    assert manta.tune is tune


def test_an_unknown_name_is_refused_with_a_suggestion():
    with pytest.raises(AttributeError, match="Did you mean Tuner"):
        tune.Tunner  # noqa: B018


@pytest.mark.parametrize(("make", "words"), [
    (lambda: tune.TuneConfig(num_sample=3), "Did you mean num_samples"),
    (lambda: tune.TuneConfig(mode="maximum"), "must be 'min' or 'max'"),
    (lambda: tune.TuneConfig(num_samples=0), "num_samples=0"),
    (lambda: tune.TuneConfig(max_concurrent_trials=-1), "max_concurrent_trials=-1"),
    (lambda: tune.TuneConfig(time_budget_s=0), "time_budget_s"),
    (lambda: tune.TuneConfig(seed=-1), "seed=-1"),
    (lambda: tune.FailureConfig(max_failures=2, fail_fast=True), "max_failures must be 0"),
    (lambda: tune.FailureConfig(max_failures=-2), "max_failures=-2"),
    (lambda: tune.FailureConfig(fail_fast="yes"), "fail_fast='yes'"),
    (lambda: tune.CheckpointConfig(num_to_keep=0), "num_to_keep=0"),
    (lambda: tune.CheckpointConfig(checkpoint_score_order="best"), "checkpoint_score_order"),
    (lambda: tune.ResumeConfig(finished="again"), "'resume', 'restart' or 'skip'"),
    (lambda: tune.RunConfig(nme="x"), "Did you mean name"),
    (lambda: tune.RunConfig(name="a/b"), "must not contain '/'"),
    (lambda: tune.RunConfig(verbose=9), "verbose=9"),
    (lambda: tune.RunConfig(failure_config=3), "must be a FailureConfig"),
    (lambda: tune.Tuner(lambda c: None, tune_config={}), "must be a TuneConfig"),
    (lambda: tune.Tuner(lambda c: None, param_spce={}), "Did you mean param_space"),
    (lambda: tune.Tuner(None), "needs a trainable"),
    (lambda: tune.Tuner(3), "must be a function"),
    (lambda: tune.Tuner(lambda a, b: None), "takes one argument"),
    (lambda: tune.Tuner(dict), "is not a tune.Trainable"),
    (lambda: tune.Tuner("nowhere"), "no trainable is registered"),
    (lambda: tune.Tuner(lambda c: None, run_config=tune.RunConfig(stop=3)), "stop=3"),
    (lambda: tune.Tuner(lambda c: None, run_config=tune.RunConfig(stop={"a": "b"})), "must be a number"),
    (lambda: tune.Tuner(lambda c: None, run_config=tune.RunConfig(stop=lambda x: 1)), "two arguments"),
    (lambda: tune.Tuner(lambda c: None, run_config=tune.RunConfig(callbacks=[3])), "is not a tune.Callback"),
    (lambda: tune.Tuner(lambda c: None, run_config=tune.RunConfig(
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2))), "is for Trainable classes"),
    (lambda: tune.Tuner(lambda c: None, tune_config=tune.TuneConfig(scheduler="asha")), "needs a metric"),
    (lambda: tune.Tuner(lambda c: None, tune_config=tune.TuneConfig(metric="a")), "without a mode"),
    (lambda: tune.Tuner(lambda c: None, tune_config=tune.TuneConfig(
        metric="a", mode="min", scheduler=ASHAScheduler(metric="b", mode="min"))), "leave one out"),
    (lambda: tune.Tuner(lambda c: None, tune_config=tune.TuneConfig(search_alg=3)), "must be a Searcher"),
    (lambda: create_scheduler("ahsa"), "Did you mean asha"),
    (lambda: ASHAScheduler(maxt=9), "Did you mean max_t"),
    (lambda: ASHAScheduler(max_t=0), "max_t=0"),
    (lambda: ASHAScheduler(max_t=2, grace_period=3), "grace_period=3"),
    (lambda: PopulationBasedTraining(), "hyperparam_mutations"),
    (lambda: PopulationBasedTraining(hyperparam_mutations={"a": {"b": 3}}), "a/b"),
    (lambda: tune.PlacementGroupFactory([]), "at least one bundle"),
    (lambda: tune.PlacementGroupFactory([{"CPU": 1}], "NEAR"), "PACK"),
    (lambda: tune.with_resources(lambda c: None, {"cpu": -1}), "0 or more"),
    (lambda: tune.with_resources(lambda c: None, {"cpu": 1, "extra_cpu": 1}), "PlacementGroupFactory"),
    (lambda: tune.run(lambda c: None, metrc="a"), "Did you mean metric"),
    (lambda: tune.run(lambda c: None, resume="PROMPT", name="x"), "PROMPT"),
    (lambda: tune.when({"a": 1, "b": 2}, 3), "one key"),
])
def test_a_wrong_option_is_refused(make, words):
    with pytest.raises((ValueError, TypeError, tune.TuneError), match=words):
        make()


def test_times_may_be_timedeltas():
    assert tune.TuneConfig(time_budget_s=datetime.timedelta(minutes=2)).time_budget_s == 120


def test_report_outside_a_trial_says_so():
    with pytest.raises(RuntimeError, match="outside a trial"):
        tune.report({"a": 1})
    assert tune.get_context().get_trial_id() is None


def test_a_checkpoint_is_a_folder_with_metadata(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("text")
    checkpoint = tune.Checkpoint.from_directory(tmp_path / "a")
    checkpoint.set_metadata({"x": 1})
    checkpoint.update_metadata({"y": 2})
    assert checkpoint.get_metadata() == {"x": 1, "y": 2}
    copy = checkpoint.to_directory(tmp_path / "b")
    with tune.Checkpoint(copy).as_directory() as folder:
        assert open(f"{folder}/file").read() == "text"
    with pytest.raises(ValueError, match="not a folder"):
        tune.Checkpoint.from_directory(tmp_path / "none")


def feed(one, values, trial="t"):
    return [one(trial, {"m": value, "training_iteration": number + 1}) for number, value in enumerate(values)]


def test_stoppers_end_trials_when_they_say():
    assert feed(stopper.MaximumIterationStopper(3), [1, 1, 1]) == [False, False, True]
    assert feed(stopper.TrialPlateauStopper("m", num_results=3, grace_period=3), [1, 5, 1, 1, 1])[-1]
    assert not any(feed(stopper.TrialPlateauStopper("m", num_results=3), [1, 5, 9, 14]))
    above = stopper.TrialPlateauStopper("m", num_results=2, grace_period=2, metric_threshold=0.5, mode="min")
    assert not any(feed(above, [1, 1, 1]))
    plateau = stopper.ExperimentPlateauStopper("m", top=3)
    feed(plateau, [1, 1, 1])
    assert plateau.stop_all()
    both = stopper.CombinedStopper(stopper.MaximumIterationStopper(2), stopper.NoopStopper())
    assert feed(both, [1, 1]) == [False, True] and not both.stop_all()
    assert feed(stopper.FunctionStopper(lambda trial, result: result["m"] > 2), [1, 3]) == [False, True]
    assert not stopper.TimeoutStopper(100).stop_all()
    with pytest.raises(ValueError, match="Did you mean m"):
        stopper.TrialPlateauStopper("mm")("t", {"m": 1})


def test_a_trainable_class_works_without_a_run(tmp_path):
    class Count(tune.Trainable):
        def setup(self, config):
            self.n = config["start"]

        def step(self):
            self.n += 1
            return {"n": self.n}

        def save_checkpoint(self, folder):
            return {"n": self.n}

        def load_checkpoint(self, state):
            self.n = state["n"]

    one = Count({"start": 5})
    assert one.train()["n"] == 6 and one.train()["training_iteration"] == 2
    one.save(str(tmp_path / "c"))
    other = Count({"start": 0})
    other.restore(str(tmp_path / "c"))
    assert other.iteration == 2 and other.train()["n"] == 8
