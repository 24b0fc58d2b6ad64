"""What programs written for Ray take for granted, beyond the calls themselves."""
import asyncio
import gc
import threading
import time

import pytest

import manta
from manta.util.queue import Empty, Full, Queue

pytestmark = pytest.mark.usefixtures("cluster")


@manta.remote
class Counter:
    def __init__(self):
        self.value = 0

    def add(self):
        self.value += 1
        return self.value


@manta.remote
def add_to(handle):
    return manta.get(handle.add.remote())


def named(name):
    try:
        return manta.get_actor(name)
    except ValueError:
        return None


def test_a_handle_that_was_found_by_name_does_not_keep_the_actor(eventually):
    made = Counter.options(name="weakly held").remote()
    found = manta.get_actor("weakly held")
    assert found == made and manta.get(found.add.remote()) == 1
    del made
    gc.collect()
    assert eventually(lambda: named("weakly held") is None)
    with pytest.raises(manta.exceptions.ActorDiedError, match="its last handle went away"):
        manta.get(found.add.remote())


def test_a_found_handle_may_be_passed_on_and_dropped():
    made = Counter.options(name="passed on").remote()
    found = manta.get_actor("passed on")
    assert manta.get(add_to.remote(found)) == 1
    del found
    gc.collect()
    assert manta.get(add_to.remote(manta.get_actor("passed on"))) == 2
    assert manta.get(made.add.remote()) == 3


def test_a_detached_actor_outlives_all_handles(eventually):
    made = Counter.options(name="detached one", lifetime="detached").remote()
    assert manta.get(made.add.remote()) == 1
    del made
    gc.collect()
    assert manta.get(manta.get_actor("detached one").add.remote()) == 2
    manta.kill(manta.get_actor("detached one"))
    assert eventually(lambda: named("detached one") is None)


@manta.remote(max_concurrency=2000)
class Threads:
    def __init__(self):
        self.barrier = threading.Barrier(40)

    def meet(self):
        self.barrier.wait(60)
        return threading.get_ident()


def test_an_actor_may_have_more_than_a_thousand_threads():
    actor = Threads.remote()
    assert len(set(manta.get([actor.meet.remote() for _ in range(40)], timeout=120))) == 40


@manta.remote(max_concurrency=2500)
class Gate:
    def __init__(self):
        self.waiting = 0
        self.open = asyncio.Event()

    async def enter(self):
        self.waiting += 1
        if self.waiting == 2000:
            self.open.set()
        await self.open.wait()
        return 1


def test_more_than_a_thousand_coroutines_run_at_a_time():
    gate = Gate.remote()
    assert sum(manta.get([gate.enter.remote() for _ in range(2000)], timeout=120)) == 2000


def test_a_queue_serves_coroutines():
    queue = Queue(maxsize=2)

    async def use():
        await queue.put_async(1)
        await queue.put_async(2)
        with pytest.raises(Full):
            await queue.put_async(3, block=False)
        with pytest.raises(Full):
            await queue.put_async(3, timeout=0.01)
        assert [await queue.get_async(), await queue.get_async(block=False)] == [1, 2]
        with pytest.raises(Empty):
            await queue.get_async(timeout=0.01)
        waiting = asyncio.ensure_future(queue.get_async())
        await asyncio.sleep(0)
        await queue.put_async(4)
        assert await waiting == 4

    asyncio.run(use())
    queue.shutdown()


def test_values_may_be_models_of_pydantic(run_script):
    pytest.importorskip("pydantic")
    run_script("""
import manta, pydantic

class Point(pydantic.BaseModel):
    x: int
    y: int = 2

class Line(pydantic.BaseModel):
    points: list[Point]

@manta.remote
def line(a):
    assert isinstance(a, Point)
    return Line(points=[a, Point(x=9)])

manta.init(num_cpus=1)
made = manta.get(line.remote(Point(x=1)))
assert isinstance(made, Line) and made.points[0] == Point(x=1), made
assert manta.get(manta.put(made)) == made
""")


def test_joblib_runs_on_tasks(run_script):
    pytest.importorskip("joblib")
    run_script("""
import joblib, manta
from manta.util.joblib import register_manta, register_ray

register_manta()
register_ray()
manta.init(num_cpus=2)

def bad(x):
    raise KeyError(x)

for name in ("manta", "ray"):
    with joblib.parallel_backend(name):
        assert joblib.Parallel()(joblib.delayed(pow)(i, 2) for i in range(50)) == [i * i for i in range(50)]
        assert joblib.Parallel(n_jobs=2)(joblib.delayed(lambda x: x + 1)(i) for i in range(5)) == [1, 2, 3, 4, 5]
        try:
            joblib.Parallel(n_jobs=2)(joblib.delayed(bad)(i) for i in range(5))
        except KeyError:
            pass
        else:
            raise SystemExit("no error")
""")


def test_a_private_node_may_have_no_cpus(run_script):
    run_script("""
import manta
manta.init(num_cpus=0, resources={"x": 1})
assert manta.cluster_resources().get("CPU", 0) == 0
one = manta.remote(lambda: 1)
assert manta.get(one.options(num_cpus=0).remote()) == 1

@manta.remote
class Actor:
    def run(self):
        return manta.get(one.options(num_cpus=0, resources={"x": 1}).remote())

    def items(self):
        yield from range(3)

actor = Actor.remote()
assert manta.get(actor.run.remote()) == 1
assert [manta.get(ref) for ref in actor.items.remote()] == [0, 1, 2]
try:
    manta.get(one.remote(), timeout=10)
except manta.exceptions.InfeasibleError as problem:
    assert "CPU" in str(problem)
else:
    raise SystemExit("no error")
""")


def test_ids_are_made_of_texts_and_of_bytes():
    handle = Counter.remote()
    number = handle._actor_id
    assert manta.ActorID(number.binary()) == number == manta.ActorID(number.hex())
    ref = manta.put(1)
    assert isinstance(ref.task_id(), manta.TaskID) and not ref.is_nil()
    assert ref.job_id() == manta.get_runtime_context().get_job_id()
    assert time.time() and manta.runtime_env.RuntimeEnv(env_vars={"A": "1"}) == {"env_vars": {"A": "1"}}


@manta.remote
class Bag:
    def __init__(self):
        self.items = {"a": 1}

    def __len__(self):
        return len(self.items)

    def __getitem__(self, key):
        return self.items[key]

    def __call__(self, x):
        return x


def test_special_methods_that_a_class_defines_can_be_called():
    bag = Bag.remote()
    assert manta.get([bag.__len__.remote(), bag.__getitem__.remote("a"), bag.__call__.remote(3)]) == [1, 1, 3]
    with pytest.raises(AttributeError):
        bag.__iter__  # noqa: B018
    assert Bag.__ray_actor_class__.__name__ == "Bag"
    assert manta.get(add_to.remote(Counter.remote())) == 1


def test_calls_side_by_side_have_no_order_to_keep():
    assert manta.get(Counter.options(allow_out_of_order_execution=False).remote().add.remote()) == 1
    with pytest.raises(ValueError, match="max_concurrency=2 runs calls side by side"):
        Counter.options(allow_out_of_order_execution=False, max_concurrency=2).remote()
    with pytest.raises(ValueError, match="with coroutines runs calls side by side"):
        Gate.options(allow_out_of_order_execution=False).remote()


def test_what_cannot_be_pickled_is_named(capsys):
    lock = threading.Lock()

    def closure():
        return lock

    fine, parts = manta.util.inspect_serializability(closure, name="closure")
    assert not fine and [part.obj for part in parts] == [lock]
    assert "variable 'lock' captured by" in capsys.readouterr().out
    assert manta.util.inspect_serializability([1, 2]) == (True, set())
    assert manta.util.get_node_ip_address() == "127.0.0.1"
