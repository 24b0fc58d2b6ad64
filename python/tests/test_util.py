"""manta.util"""
import asyncio
import multiprocessing
import os
import time

import pytest

import manta
from manta.util import ActorPool
from manta.util.multiprocessing import Pool
from manta.util.queue import Empty, Full, Queue

pytestmark = pytest.mark.usefixtures("cluster")


@manta.remote
class Doubler:
    def double(self, x):
        time.sleep(0.001 * (x % 3))
        return 2 * x


def square(x):
    return x * x


def test_an_actor_pool_maps():
    pool = ActorPool([Doubler.remote(), Doubler.remote()])
    assert list(pool.map(lambda a, v: a.double.remote(v), range(10))) == [2 * i for i in range(10)]
    assert sorted(pool.map_unordered(lambda a, v: a.double.remote(v), range(10))) == [2 * i for i in range(10)]
    assert not pool.has_next() and pool.has_free()
    pool.submit(lambda a, v: a.double.remote(v), 21)
    assert pool.get_next() == 42
    with pytest.raises(StopIteration):
        pool.get_next()
    actor = pool.pop_idle()
    pool.push(actor)
    with pytest.raises(ValueError):
        pool.push(actor)


def test_a_queue_is_shared():
    queue = Queue(maxsize=3)

    @manta.remote
    def fill(q, n):
        for i in range(n):
            q.put(i)

    ref = fill.remote(queue, 10)
    assert [queue.get(timeout=20) for _ in range(10)] == list(range(10))
    manta.get(ref)
    assert queue.empty() and len(queue) == 0
    with pytest.raises(Empty):
        queue.get(block=False)
    with pytest.raises(Empty):
        queue.get(timeout=0.01)
    queue.put_nowait_batch([1, 2, 3])
    assert queue.full()
    with pytest.raises(Full):
        queue.put_nowait(4)
    with pytest.raises(Full):
        queue.put(4, timeout=0.01)
    assert queue.get_nowait_batch(3) == [1, 2, 3]

    async def both():
        await queue.put_async("a")
        return await queue.get_async()

    assert asyncio.run(both()) == "a"
    queue.shutdown()


def test_a_pool_is_a_drop_in():
    with Pool(2) as pool:
        assert pool.map(square, range(20)) == [i * i for i in range(20)]
        assert pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]
        assert pool.apply(square, (5,)) == 25
        assert list(pool.imap(square, range(5), chunksize=2)) == [0, 1, 4, 9, 16]
        assert sorted(pool.imap_unordered(square, range(5))) == [0, 1, 4, 9, 16]
        result = pool.map_async(lambda x: x + 1, range(3))
        assert result.get(timeout=20) == [1, 2, 3] and result.ready() and result.successful()
        failed = pool.apply_async(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            failed.get(timeout=20)
        assert not failed.successful()
        told = []
        pool.apply_async(square, (3,), callback=told.append).wait(20)
        deadline = time.time() + 20
        while not told and time.time() < deadline:
            time.sleep(0.01)
        assert told == [9]
    with pytest.raises(ValueError):
        pool.map(square, [1])


def test_a_pools_initializer_runs_once_in_each_process():
    def setup(value):
        os.environ["POOL_TEST"] = os.environ.get("POOL_TEST", "") + value

    pool = Pool(2, initializer=setup, initargs=("x",))
    assert set(pool.map(lambda _: os.environ["POOL_TEST"], range(20), chunksize=1)) == {"x"}
    pool.close()
    pool.join()


def test_a_pools_process_leaves_after_maxtasksperchild():
    with Pool(2, maxtasksperchild=1) as pool:
        pids = pool.map(lambda _: os.getpid(), range(6), chunksize=1)
    assert len(set(pids)) == 6


@manta.remote(max_restarts=0, max_task_retries=0)
class Worker:
    def pair(self, x):
        return x, x + 1

    def die(self, _):
        os._exit(1)


def test_actor_pool_with_several_returns(cluster):
    pool = ActorPool([Worker.remote(), Worker.remote()])
    pairs = list(pool.map(lambda a, v: a.pair.options(num_returns=2).remote(v), [1, 2, 3]))
    assert pairs == [[1, 2], [2, 3], [3, 4]]
    many = pool.map_unordered(lambda a, v: a.pair.options(num_returns=2).remote(v), [1, 2, 3])
    assert sorted(many) == [[1, 2], [2, 3], [3, 4]]


def test_actor_pool_leaves_out_a_dead_actor(cluster):
    pool = ActorPool([Worker.options(replay=False).remote()])
    pool.submit(lambda a, v: a.die.remote(v), 1)
    pool.submit(lambda a, v: a.pair.remote(v), 2)
    with pytest.raises(manta.exceptions.ActorDiedError):
        pool.get_next()
    assert not pool.has_free()
    with pytest.raises(manta.exceptions.ActorDiedError, match="push another"):
        pool.get_next()
    pool.push(Worker.remote())
    assert pool.get_next() == (2, 3)


def test_imap_gives_the_next_in_time_and_goes_on_after_an_error(cluster, tmp_path):
    def fails_at_one(x):
        if x == 1:
            raise KeyError(x)
        return x

    gate = tmp_path / "gate"

    def waits(x):
        while not gate.exists():
            time.sleep(0.01)
        return x

    with Pool(2) as pool:
        results = pool.imap(fails_at_one, [0, 1, 2])
        assert results.next(timeout=20) == 0
        with pytest.raises(KeyError):
            next(results)
        assert results.next() == 2
        with pytest.raises(StopIteration):
            results.next(timeout=20)
        slow = pool.imap_unordered(waits, [5])
        with pytest.raises(multiprocessing.TimeoutError):
            slow.next(timeout=0.05)
        gate.touch()
        assert slow.next(timeout=20) == 5


def test_queue_checks_its_arguments(cluster):
    queue = Queue(2)
    with pytest.raises(TypeError):
        queue.put_nowait_batch(3)
    with pytest.raises(TypeError):
        queue.get_nowait_batch("x")
    with pytest.raises(ValueError):
        queue.get_nowait_batch(-1)
    with pytest.raises(ValueError):
        asyncio.run(queue.get_async(timeout=-1))
    with pytest.raises(ValueError):
        asyncio.run(queue.put_async(1, timeout=-1))
