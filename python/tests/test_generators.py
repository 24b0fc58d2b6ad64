"""Tasks and methods that yield."""
import os
import signal
import time

import pytest
import signs

import manta
from manta import exceptions

pytestmark = pytest.mark.usefixtures("cluster")


@manta.remote
def count(n):
    yield from range(n)


def test_a_generator_function_streams():
    items = count.remote(5)
    assert isinstance(items, manta.ObjectRefGenerator)
    assert [manta.get(ref) for ref in items] == [0, 1, 2, 3, 4]
    assert list(count.remote(0)) == []


def test_items_come_while_the_task_runs():
    @manta.remote(num_returns="streaming")
    def slow():
        yield "first"
        time.sleep(1000)
        yield "never"

    items = slow.remote()
    assert manta.get(next(items)) == "first"
    items.close()


def test_an_error_in_the_middle_is_that_items():
    @manta.remote
    def breaks():
        yield 1
        raise KeyError("middle")

    items = breaks.remote()
    assert manta.get(next(items)) == 1
    bad = next(items)
    with pytest.raises(KeyError):
        manta.get(bad)
    with pytest.raises(StopIteration):
        next(items)


def test_back_pressure_holds_the_writer(tmp_path):
    path = str(tmp_path / "made")

    @manta.remote(_generator_backpressure_num_objects=2)
    def write():
        for i in range(100):
            with open(path, "a") as file:
                file.write("x")
            yield i

    items = write.remote()
    assert manta.get(next(items)) == 0
    time.sleep(0.3)
    assert len(open(path).read()) <= 4
    assert [manta.get(ref) for ref in items] == list(range(1, 100))


def test_methods_that_yield():
    @manta.remote
    class Source:
        def __init__(self):
            self.calls = 0

        def items(self, n):
            for i in range(n):
                self.calls += 1
                yield i * 10

        def total(self):
            return self.calls

    source = Source.remote()
    assert [manta.get(ref) for ref in source.items.remote(3)] == [0, 10, 20]
    assert manta.get(source.total.remote()) == 3
    plain = source.items.options(num_returns="streaming").remote(2)
    assert [manta.get(ref) for ref in plain] == [0, 10]


def test_dynamic_returns_all_refs_at_once():
    items = manta.get(count.options(num_returns="dynamic").remote(4))
    assert len(items) == 4 and [manta.get(ref) for ref in items] == [0, 1, 2, 3]


def test_arguments_of_generators_may_be_refs():
    assert [manta.get(ref) for ref in count.remote(manta.put(2))] == [0, 1]


def test_async_for():
    import asyncio

    async def main():
        return [await ref async for ref in count.remote(3)]

    assert asyncio.run(main()) == [0, 1, 2]


def test_async_methods_that_yield():
    @manta.remote
    class Source:
        async def items(self, n):
            import asyncio

            for i in range(n):
                await asyncio.sleep(0.001)
                yield i

    source = Source.remote()
    assert [manta.get(ref) for ref in source.items.remote(4)] == [0, 1, 2, 3]


def size(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


@pytest.mark.parametrize("retries", [0, 1])
def test_a_generator_whose_worker_dies_goes_on_where_it_was(tmp_path, retries):
    path = str(tmp_path / "runs")

    @manta.remote(max_retries=retries, _generator_backpressure_num_objects=2)
    def breaks():
        with open(path, "a") as file:
            file.write("x")
        for i in range(8):
            if i == 5 and size(path) == 1:
                os._exit(1)
            yield i

    items = breaks.remote()
    first = [manta.get(next(items)) for _ in range(3)]
    if retries:
        assert first + [manta.get(ref) for ref in items] == list(range(8)) and size(path) == 2
    else:
        with pytest.raises(exceptions.MantaError):
            first += [manta.get(ref) for ref in items]
        assert first == [0, 1, 2] and size(path) == 1


def test_retry_exceptions_of_a_generator(tmp_path):
    @manta.remote
    def flaky(path, error):
        with open(path, "a") as file:
            file.write("x")
        for i in range(4):
            if i == 2 and size(path) < 3:
                raise error("not yet")
            yield i

    def items(name, error, **options):
        return [manta.get(ref) for ref in flaky.options(**options).remote(str(tmp_path / name), error)]

    with pytest.raises(KeyError):
        items("none", KeyError)
    assert items("all", KeyError, retry_exceptions=True) == [0, 1, 2, 3]
    assert items("some", KeyError, retry_exceptions=[KeyError]) == [0, 1, 2, 3]
    with pytest.raises(OSError):
        items("others", OSError, retry_exceptions=[KeyError])
    with pytest.raises(KeyError):
        items("few", KeyError, retry_exceptions=True, max_retries=1)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("retries", [0, -1])
def test_a_method_that_yields_goes_on_in_a_restarted_actor(tmp_path, retries, is_async):
    path = str(tmp_path / "runs")

    def numbers():
        with open(path, "a") as file:
            file.write("x")
        for i in range(6):
            if i == 4 and size(path) == 1:
                os._exit(1)
            yield i

    @manta.remote(max_restarts=1, max_task_retries=retries, replay=False)
    class Source:
        if is_async:
            async def items(self):
                for i in numbers():
                    yield i
        else:
            def items(self):
                yield from numbers()

    items = Source.remote().items.options(_generator_backpressure_num_objects=1).remote()
    first = [manta.get(next(items)) for _ in range(2)]
    if retries:
        assert first + [manta.get(ref) for ref in items] == list(range(6)) and size(path) == 2
    else:
        with pytest.raises(exceptions.MantaError):
            first += [manta.get(ref) for ref in items]
        assert first == [0, 1] and size(path) == 1


def test_a_generator_of_values_as_large_as_a_store_can_hold():
    @manta.remote
    def blocks():
        for i in range(5):
            yield bytes([i]) * 3_000_000

    assert [manta.get(ref)[-1] for ref in blocks.remote()] == [0, 1, 2, 3, 4]


def test_environment_of_generators():
    @manta.remote(runtime_env={"env_vars": {"MANTA_TEST_STREAM": "on"}})
    def read():
        yield os.environ.get("MANTA_TEST_STREAM")

    assert [manta.get(ref) for ref in read.remote()] == ["on"]
    assert [manta.get(ref) for ref in manta.get(read.options(num_returns="dynamic").remote())] == ["on"]


def test_wait_takes_generators(tmp_path):
    @manta.remote
    def items(path, count):
        for i in range(count):
            assert signs.wait(f"{path}.{i}")
            yield i

    quick, slow = str(tmp_path / "quick"), str(tmp_path / "slow")
    generators = [items.remote(slow, 1), items.remote(quick, 1)]
    ref = manta.put("x")
    assert manta.wait(generators, timeout=0.05) == ([], generators)
    signs.give(quick + ".0")
    assert manta.wait(generators, timeout=100) == ([generators[1]], [generators[0]])
    assert manta.wait([*generators, ref], num_returns=2, timeout=100) == ([generators[1], ref], [generators[0]])
    assert manta.get(next(generators[1])) == 0
    assert list(generators[1]) == []
    assert manta.wait(generators, timeout=0) == ([generators[1]], [generators[0]])  # it is over
    signs.give(slow + ".0")
    assert manta.wait(generators, num_returns=2, timeout=100) == (generators, [])
    assert [manta.get(item) for item in generators[0]] == [0]
    with pytest.raises(TypeError, match="item 0"):
        manta.wait([3], timeout=1)


def test_streams_of_an_actor_with_threads_are_whole():
    @manta.remote(max_concurrency=10)
    class Source:
        def items(self, base, n):
            for i in range(n):
                yield base + i

    source = Source.remote()
    streams = [source.items.remote(1000 * k, 20) for k in range(100)]
    for k, stream in enumerate(streams):
        assert [manta.get(ref) for ref in stream] == list(range(1000 * k, 1000 * k + 20))


def test_a_stream_leaves_threads_for_the_method_that_it_waits_for():
    @manta.remote(max_concurrency=4)
    class Source:
        def __init__(self):
            import threading

            self.go = threading.Event()

        def items(self):
            assert self.go.wait(20)
            yield "went"

        def set(self):
            self.go.set()

    source = Source.remote()
    items = source.items.remote()
    manta.get(source.set.remote(), timeout=10)
    assert [manta.get(ref) for ref in items] == ["went"]


def test_an_error_in_a_stream_of_an_actor_with_threads_is_its_items():
    @manta.remote(max_concurrency=4)
    class Source:
        def items(self, n):
            yield from range(n)
            raise KeyError("end")

        def wrong(self):
            raise OSError("no generator")

    source = Source.remote()
    for n in range(20):
        items = list(source.items.remote(n))
        assert manta.get(items[:-1]) == list(range(n))
        with pytest.raises(KeyError):
            manta.get(items[-1])
    with pytest.raises(OSError):
        manta.get(next(source.wrong.options(num_returns="streaming").remote()))


@pytest.mark.parametrize("is_async", [False, True])
def test_retry_exceptions_of_a_method_that_yields(is_async):
    def numbers(actor):
        actor.runs += 1
        for i in range(4):
            if i == 2 and actor.runs < 3:
                raise KeyError("not yet")
            yield i

    @manta.remote(max_task_retries=-1)
    class Source:
        runs = 0
        if is_async:
            async def items(self):
                for i in numbers(self):
                    yield i
        else:
            def items(self):
                yield from numbers(self)

    def read(**options):
        return [manta.get(ref) for ref in Source.remote().items.options(**options).remote()]

    assert read(retry_exceptions=[KeyError]) == [0, 1, 2, 3]
    assert read(retry_exceptions=True, max_task_retries=2) == [0, 1, 2, 3]
    with pytest.raises(KeyError):
        read(retry_exceptions=True, max_task_retries=1)
    with pytest.raises(KeyError):
        read(retry_exceptions=[OSError])


def test_a_generator_with_a_number_of_returns():
    @manta.remote
    def items(n, error=False):
        yield from range(n)
        if error:
            raise KeyError("mine")

    @manta.remote
    class Source:
        def items(self):
            yield 1
            raise KeyError("mine")

    assert manta.get(items.options(num_returns=3).remote(3)) == [0, 1, 2]
    assert manta.get(items.options(num_returns=2).remote(3)) == [0, 1]
    first, second, third = items.options(num_returns=3).remote(2)
    assert manta.get([first, second]) == [0, 1]
    with pytest.raises(ValueError, match="yielded 2"):
        manta.get(third)
    first, second, third = items.options(num_returns=3).remote(1, True)
    assert manta.get(first) == 0
    for bad in (second, third):
        with pytest.raises(KeyError, match="mine"):
            manta.get(bad)
    first, second = Source.remote().items.options(num_returns=2).remote()
    assert manta.get(first) == 1
    with pytest.raises(KeyError, match="mine"):
        manta.get(second)


def test_what_ray_asks_of_a_generator(tmp_path):
    path = str(tmp_path / "go")

    @manta.remote(_generator_backpressure_num_objects=-1)
    def items():
        yield 1
        assert signs.wait(path)
        yield 2

    stream = items.remote()
    assert manta.get(stream) is stream
    assert manta.get(next(stream)) == 1
    assert not stream.next_ready() and not stream.is_finished()
    signs.give(path)
    manta.get(stream.completed())
    assert stream.next_ready() and not stream.is_finished()
    assert [manta.get(ref) for ref in stream] == [2]
    assert stream.is_finished() and list(stream) == []
    with pytest.raises(ValueError):
        count.options(_generator_backpressure_num_objects=-2)


def test_a_generator_that_waits_for_its_reader_gives_its_cpu_to_the_readers_tasks(run_script):
    done = run_script("""
import manta
manta.init(num_cpus=1)

@manta.remote
def count(items):
    yield from range(items)

@manta.remote
def double(x):
    return 2 * x

@manta.remote
def read(items, window):
    numbers = count.options(_generator_backpressure_num_objects=window).remote(items)
    return sum(manta.get(double.remote(number)) for number in numbers)

print(manta.get(read.remote(3, -1), timeout=60), manta.get(read.remote(40, 2), timeout=60))
print(sum(manta.get(double.remote(number), timeout=60) for number in count.remote(40)))
""")
    assert done.stdout.split() == ["6", "1560", "1560"]


class _TwoReturns:
    def pid(self):
        return os.getpid()

    @manta.method(num_returns=2)
    def two(self, began, go):
        yield "first"
        signs.give(began)
        signs.wait(go)
        yield "second"


def test_a_call_that_has_answered_half_of_its_results_is_retried(tmp_path):
    began, go = str(tmp_path / "began"), str(tmp_path / "go")
    actor = manta.remote(max_restarts=1, max_task_retries=1, replay=False)(_TwoReturns).remote()
    pid = manta.get(actor.pid.remote(), timeout=60)
    first, second = actor.two.remote(began, go)
    assert manta.get(first, timeout=60) == "first" and signs.wait(began)
    os.kill(pid, signal.SIGKILL)
    signs.give(go)
    assert manta.get(second, timeout=60) == "second"


def test_the_rest_of_the_results_fails_with_its_actor(tmp_path):
    began, go = str(tmp_path / "began"), str(tmp_path / "go")
    actor = manta.remote(_TwoReturns).remote()
    first, second = actor.two.remote(began, go)
    assert manta.get(first, timeout=60) == "first" and signs.wait(began)
    manta.kill(actor)
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(second, timeout=60)
    assert manta.get(first, timeout=60) == "first"


@pytest.mark.parametrize("is_async", [False, True])
def test_streams_of_several_callers_are_whole_although_their_actor_dies(is_async):
    def items(self, n):
        yield from range(n)

    async def items_async(self, n):
        for i in range(n):
            yield i

    cls = type("Source", (_TwoReturns,), {"items": items_async if is_async else items})
    options = {} if is_async else {"max_concurrency": 10}
    source = manta.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, replay=False, **options)(cls).remote()

    @manta.remote(num_cpus=0)
    def read(source):
        streams = [source.items.remote(20) for _ in range(10)]
        return [manta.get(list(stream)) for stream in streams]

    reads = [read.remote(source) for _ in range(4)]
    for _ in range(3):
        os.kill(manta.get(source.pid.remote(), timeout=60), signal.SIGKILL)
    assert manta.get(reads, timeout=100) == [[list(range(20))] * 10] * 4
