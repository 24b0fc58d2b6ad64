"""Names and checks that a Ray user's program meets: each as that program writes it."""
import sys

import pytest

import manta


@manta.remote
class Keeper:
    LIMIT = 5

    def __init__(self):
        self.value = 1
        self.shadowed = "an attribute"

    def echo(self, x):
        return x

    def shadowed(self):
        return "a method"

    @staticmethod
    def double(x):
        return 2 * x


def test_util_and_cross_language_are_attributes_after_import(run_script):
    out = run_script("import manta\nprint(manta.util.ActorPool.__name__, bool(manta.cross_language.load_library))")
    assert out.stdout.split() == ["ActorPool", "True"]


@pytest.mark.parametrize("name", ["data", "train", "serve", "rllib", "util.state", "util.metrics"])
def test_a_module_that_manta_does_not_have_says_so(name):
    with pytest.raises(ImportError, match=f"Manta has no module manta.{name}"):
        __import__(f"manta.{name}")
    assert f"manta.{name}" not in sys.modules


def test_from_import_and_attribute_of_a_missing_module_say_so():
    with pytest.raises(ImportError, match=r"Manta has no module manta\.data"):
        from manta import data  # noqa: F401
    with pytest.raises(AttributeError, match=r"Manta has no module manta\.serve"):
        manta.serve  # noqa: B018
    assert not hasattr(manta, "nothing_like_this")


def test_wait_for_nothing_is_nothing(cluster):
    assert manta.wait([]) == ([], [])


def test_get_of_what_is_no_ref_is_a_value_error(cluster):
    for wrong in (3, None, (manta.put(1),)):
        with pytest.raises(ValueError, match="get takes"):
            manta.get(wrong)


@pytest.mark.parametrize("wrong", [
    {"num_cpus": "a"}, {"num_gpus": "a"}, {"memory": "x"}, {"resources": [1]}, {"resources": {"a": "b"}}, {"name": 3},
    {"runtime_env": "a"}, {"scheduling_strategy": 3}, {"label_selector": "a"},
])
def test_an_option_of_a_wrong_type_is_a_type_error(wrong):
    with pytest.raises(TypeError):
        manta.remote(**wrong)(lambda: 1)
    with pytest.raises(TypeError):
        Keeper.options(**wrong)


@pytest.mark.parametrize("wrong", [{"num_returns": 1.5}, {"max_retries": "a"}, {"retry_exceptions": 3},
                                   {"max_calls": "a"}, {"_generator_backpressure_num_objects": "s"}])
def test_a_task_option_of_a_wrong_type_is_a_type_error(wrong):
    with pytest.raises(TypeError, match=next(iter(wrong))):
        manta.remote(**wrong)(lambda: 1)


@pytest.mark.parametrize("wrong", [{"max_restarts": "a"}, {"max_task_retries": "a"}, {"max_concurrency": "a"},
                                   {"lifetime": 3}, {"namespace": 3}, {"max_pending_calls": "a"},
                                   {"get_if_exists": "a"}])
def test_an_actor_option_of_a_wrong_type_is_a_type_error(wrong):
    with pytest.raises(TypeError, match=next(iter(wrong))):
        Keeper.options(**wrong)


@pytest.mark.parametrize("wrong", [{"num_cpus": -1}, {"num_cpus": 0.00001}, {"resources": {"a": -1}},
                                   {"scheduling_strategy": "X"}])
def test_a_wrong_value_of_the_right_type_is_a_value_error(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        manta.remote(**wrong)(lambda: 1)


def test_an_empty_name_is_no_name(cluster):
    assert manta.get(Keeper.options(name="").remote().echo.remote(2)) == 2


def test_a_generator_without_backpressure(cluster):
    @manta.remote(_generator_backpressure_num_objects=-1)
    def count(n):
        yield from range(n)

    assert [manta.get(ref) for ref in count.remote(3)] == [0, 1, 2]


def test_classes_of_ids(cluster):
    keeper = Keeper.remote()
    assert isinstance(keeper._actor_id, manta.ActorID)
    assert manta.ActorID.from_hex(keeper._ray_actor_id.hex()) == keeper._actor_id
    assert manta.NodeID.from_random() != manta.NodeID.from_random()
    assert manta.TaskID.from_binary(b"\x01\x02").binary() == b"\x01\x02"
    assert manta.PlacementGroupID.nil().is_nil()
    assert issubclass(manta.JobID, manta.UniqueID)
    assert issubclass(manta.WorkerID, manta.UniqueID)
    assert issubclass(manta.FunctionID, manta.UniqueID)
    assert isinstance(manta.put(1), manta.ObjectID)


def test_a_method_is_not_hidden_by_an_attribute_of_its_name(cluster):
    assert manta.get(Keeper.remote().shadowed.remote()) == "a method"


def test_ray_call_runs_a_function_on_the_actor(cluster):
    keeper = Keeper.remote()
    assert manta.get(keeper.__ray_call__.remote(lambda self, y: self.value + y, 3)) == 4


def test_a_method_of_a_handle_can_be_sent(cluster):
    @manta.remote
    def use(methods):
        return manta.get(methods[0].remote(7))

    keeper = Keeper.remote()
    assert manta.get(use.remote([keeper.echo])) == 7


def test_attributes_of_an_actor_class(cluster):
    @manta.remote
    def limit():
        return Keeper.LIMIT

    assert (Keeper.LIMIT, Keeper.double(4)) == (5, 8)
    assert manta.get(limit.remote()) == 5
    with pytest.raises(AttributeError, match="nothing"):
        Keeper.nothing  # noqa: B018
