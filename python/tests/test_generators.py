"""Tasks and methods that yield."""
import time

import pytest

import manta

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
        time.sleep(30)
        yield "never"

    start = time.time()
    items = slow.remote()
    assert manta.get(next(items)) == "first" and time.time() - start < 20
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
