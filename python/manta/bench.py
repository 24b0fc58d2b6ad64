"""``python -m manta.bench``: the workloads of manta-bench under the same names, beside multiprocessing in the same run,
and beside Ray where it is installed. Read the ratios: the machine may be shared.

    python -m manta.bench [--filter REGEX] [--seconds S] [--json FILE]
"""
from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import manta

Result = tuple[str, float, str]  # name, value, unit
_workloads: list[tuple[str, Callable[[Any, float], float], str]] = []


def workload(unit: str) -> Callable[[Callable[[Any, float], float]], Callable[[Any, float], float]]:
    def add(function: Callable[[Any, float], float]) -> Callable[[Any, float], float]:
        _workloads.append((function.__name__.removeprefix("bench_"), function, unit))
        return function

    return add


def rate(batch: Callable[[], int], seconds: float) -> float:
    """Things per second: the median of five rounds."""
    batch()
    rounds = []
    for _ in range(5):
        begin = time.perf_counter()
        done = 0
        while time.perf_counter() - begin < seconds / 5:
            done += batch()
        rounds.append(done / (time.perf_counter() - begin))
    return statistics.median(rounds)


def latency(one: Callable[[], Any], seconds: float) -> float:
    """The median in microseconds."""
    for _ in range(20):
        one()
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        one()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def nothing() -> bytes:
    return b"ok"


def make_tasks(api: Any) -> Any:
    return api.remote(nothing)


class Echo:
    def ping(self) -> bytes:
        return b"ok"

    def take(self, value: Any) -> bytes:
        return b"ok"


class AsyncEcho:
    async def ping(self) -> bytes:
        return b"ok"

    async def take(self, value: Any) -> bytes:
        return b"ok"


class Client:
    """Somebody else who submits: the "multi_client" and "n_n" rows have several."""

    def __init__(self, api_name: str) -> None:
        import importlib

        self._api = importlib.import_module(api_name)
        self._task = self._api.remote(nothing)

    def tasks(self, count: int) -> None:
        self._api.get([self._task.remote() for _ in range(count)])

    def calls(self, actors: list[Any], count: int) -> None:
        self._api.get([actors[i % len(actors)].ping.remote() for i in range(count)])

    def calls_with_arg(self, actors: list[Any], count: int) -> None:
        value = self._api.put(0)
        self._api.get([actors[i % len(actors)].take.remote(value) for i in range(count)])

    def puts(self, count: int) -> None:
        for _ in range(count):
            self._api.put(0)

    def put_array(self, count: int) -> None:
        import numpy

        array = numpy.ones(10 * 1024 * 1024, dtype=numpy.int64)
        for _ in range(count):
            self._api.put(array)


CLIENTS = 2
MANY = 1000


def clients(api: Any) -> list[Any]:
    made = [api.remote(Client).options(num_cpus=0).remote(api.__name__) for _ in range(CLIENTS)]
    api.get([one.tasks.remote(1) for one in made])
    return made


def all_clients(api: Any, seconds: float, start: Callable[[Any], Any], each: int) -> float:
    made = clients(api)

    def batch() -> int:
        api.get([start(one) for one in made])
        return each * len(made)

    return rate(batch, seconds)


def actors_of(api: Any, cls: type, count: int) -> list[Any]:
    return [api.remote(cls).options(num_cpus=0).remote() for _ in range(count)]


def calls(api: Any, actors: list[Any], method: str, seconds: float, *args: Any) -> float:
    """One caller, several actors in turn."""

    def batch() -> int:
        api.get([getattr(actors[i % len(actors)], method).remote(*args) for i in range(MANY)])
        return MANY

    return rate(batch, seconds)


@workload("µs p50")
def bench_single_client_tasks_sync(api: Any, seconds: float) -> float:
    task = make_tasks(api)
    return latency(lambda: api.get(task.remote()), seconds)


@workload("/s")
def bench_single_client_tasks_async(api: Any, seconds: float) -> float:
    task = make_tasks(api)

    def batch() -> int:
        api.get([task.remote() for _ in range(1000)])
        return 1000

    return rate(batch, seconds)


@workload("/s")
def bench_multi_client_tasks_async(api: Any, seconds: float) -> float:
    return all_clients(api, seconds, lambda one: one.tasks.remote(MANY), MANY)


@workload("/s")
def bench_single_client_tasks_and_get_batch(api: Any, seconds: float) -> float:
    """Batches of 1,000 tasks."""
    task = make_tasks(api)

    def batch() -> int:
        api.get([task.remote() for _ in range(1000)])
        return 1

    return rate(batch, seconds)


@workload("µs p50")
def bench_1_1_actor_calls_sync(api: Any, seconds: float) -> float:
    actor = api.remote(Echo).remote()
    return latency(lambda: api.get(actor.ping.remote()), seconds)


@workload("/s")
def bench_1_1_actor_calls_async(api: Any, seconds: float) -> float:
    actor = api.remote(Echo).remote()

    def batch() -> int:
        api.get([actor.ping.remote() for _ in range(1000)])
        return 1000

    return rate(batch, seconds)


@workload("/s")
def bench_1_1_actor_calls_concurrent(api: Any, seconds: float) -> float:
    actor = api.remote(Echo).options(max_concurrency=16, num_cpus=0).remote()
    return calls(api, [actor], "ping", seconds)


@workload("/s")
def bench_1_n_actor_calls_async(api: Any, seconds: float) -> float:
    return calls(api, actors_of(api, Echo, 4), "ping", seconds)


@workload("/s")
def bench_n_n_actor_calls_async(api: Any, seconds: float) -> float:
    actors = actors_of(api, Echo, CLIENTS)
    return all_clients(api, seconds, lambda one: one.calls.remote(actors, MANY), MANY)


@workload("/s")
def bench_n_n_actor_calls_with_arg_async(api: Any, seconds: float) -> float:
    actors = actors_of(api, Echo, CLIENTS)
    return all_clients(api, seconds, lambda one: one.calls_with_arg.remote(actors, MANY), MANY)


@workload("/s")
def bench_1_1_async_actor_calls_with_args_async(api: Any, seconds: float) -> float:
    return calls(api, actors_of(api, AsyncEcho, 1), "take", seconds, api.put(0))


@workload("/s")
def bench_1_n_async_actor_calls_async(api: Any, seconds: float) -> float:
    return calls(api, actors_of(api, AsyncEcho, 4), "ping", seconds)


@workload("/s")
def bench_n_n_async_actor_calls_async(api: Any, seconds: float) -> float:
    actors = actors_of(api, AsyncEcho, CLIENTS)
    return all_clients(api, seconds, lambda one: one.calls.remote(actors, MANY), MANY)


@workload("/s")
def bench_1_1_async_actor_calls_async(api: Any, seconds: float) -> float:
    actor = api.remote(AsyncEcho).remote()

    def batch() -> int:
        api.get([actor.ping.remote() for _ in range(1000)])
        return 1000

    return rate(batch, seconds)


@workload("µs p50")
def bench_1_1_async_actor_calls_sync(api: Any, seconds: float) -> float:
    actor = api.remote(AsyncEcho).remote()
    return latency(lambda: api.get(actor.ping.remote()), seconds)


@workload("/s")
def bench_single_client_put_calls(api: Any, seconds: float) -> float:
    def batch() -> int:
        for _ in range(1000):
            api.put(0)
        return 1000

    return rate(batch, seconds)


@workload("/s")
def bench_single_client_get_calls(api: Any, seconds: float) -> float:
    ref = api.put(0)

    def batch() -> int:
        get = api.get
        for _ in range(1000):
            get(ref)
        return 1000

    return rate(batch, seconds)


@workload("/s")
def bench_multi_client_put_calls(api: Any, seconds: float) -> float:
    return all_clients(api, seconds, lambda one: one.puts.remote(MANY), MANY)


@workload("/s")
def bench_single_client_wait_1k_refs(api: Any, seconds: float) -> float:
    task = make_tasks(api)

    def batch() -> int:
        rest = [task.remote() for _ in range(1000)]
        while rest:
            _, rest = api.wait(rest, num_returns=min(10, len(rest)))
        return 1

    return rate(batch, seconds)


@workload("/s")
def bench_single_client_get_object_containing_10k_refs(api: Any, seconds: float) -> float:
    ref = api.put([api.put(i) for i in range(10_000)])

    def batch() -> int:
        api.get(ref)
        return 1

    return rate(batch, seconds)


@workload("GB/s")
def bench_multi_client_put_gigabytes(api: Any, seconds: float) -> float:
    return all_clients(api, seconds, lambda one: one.put_array.remote(2), 2) * 10 * 1024 * 1024 * 8 / 1e9


@workload("GB/s")
def bench_single_client_put_gigabytes(api: Any, seconds: float) -> float:
    import numpy

    array = numpy.zeros(100_000_000)
    array[:] = 1.0
    rounds = []
    for _ in range(5):
        begin = time.perf_counter()
        ref = api.put(array)
        rounds.append(array.nbytes / (time.perf_counter() - begin) / 1e9)
        del ref
    return statistics.median(rounds[1:])


@workload("/s")
def bench_actor_create(api: Any, seconds: float) -> float:
    make = api.remote(Echo).options(num_cpus=0)

    def batch() -> int:
        actors = [make.remote() for _ in range(4)]
        api.get([actor.ping.remote() for actor in actors])
        return len(actors)

    return rate(batch, seconds)


@workload("/s")
def bench_placement_group_create_removal(api: Any, seconds: float) -> float:
    import importlib

    util = importlib.import_module(f"{api.__name__}.util.placement_group")

    def batch() -> int:
        group = util.placement_group([{"CPU": 0.01}])
        group.wait(30)
        util.remove_placement_group(group)
        return 1

    return rate(batch, seconds)


@workload("s")
def bench_queued_1m_tasks(api: Any, seconds: float) -> float:
    count = 1_000_000 if seconds >= 1 else 100_000
    task = make_tasks(api)
    begin = time.perf_counter()
    api.get([task.remote() for _ in range(count)])
    return (time.perf_counter() - begin) * (1_000_000 / count)


def baseline_pool(seconds: float) -> list[Result]:
    """What multiprocessing does for the same."""
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:
        many = rate(lambda: len(pool.starmap(nothing, [()] * 1000, chunksize=1)), seconds)
        one = latency(lambda: pool.apply(nothing), seconds)
    return [("multiprocessing_pool_async", many, "/s"), ("multiprocessing_pool_sync", one, "µs p50")]


def baseline_copy(seconds: float) -> list[Result]:
    try:
        import numpy
    except ImportError:
        return []
    source = numpy.ones(100_000_000)
    target = numpy.zeros(100_000_000)
    rounds = []
    for _ in range(5):
        begin = time.perf_counter()
        numpy.copyto(target, source)
        rounds.append(source.nbytes / (time.perf_counter() - begin) / 1e9)
    return [("limit_copy_800mb", statistics.median(rounds[1:]), "GB/s")]


def startup() -> list[Result]:
    """In programs of their own."""
    script = ("import time; a = time.perf_counter(); import manta; b = time.perf_counter(); manta.init(); "
              "c = time.perf_counter(); f = manta.remote(lambda: 1); manta.get(f.remote()); d = time.perf_counter(); "
              "print(b - a, c - b, d - c)")
    rows = []
    for _ in range(5):
        out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True,
                             env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}).stdout
        rows.append([float(word) for word in out.split()])
    names = ("import", "init", "first_task")
    return [(name, statistics.median(row[i] for row in rows) * 1e3, "ms") for i, name in enumerate(names)]


def idle_memory() -> list[Result]:
    """Of the daemon, the fork server and the workers: private pages, and shared ones each counted once."""
    total = 0
    me = os.getpid()
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue

    def ours(pid: int) -> bool:
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == me:
                return True
        return False

    for pid in parents:
        if ours(pid):
            try:
                with open(f"/proc/{pid}/smaps_rollup") as file:
                    total += next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
            except OSError:
                continue
    return [("idle_memory", total / 1024, "MB")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m manta.bench", description=__doc__)
    parser.add_argument("--filter", default="")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json")
    options = parser.parse_args()
    wanted = re.compile(options.filter)
    rows: list[Result] = []

    def show(row: Result, ray: float | None = None) -> None:
        rows.append(row)
        beside = "" if ray is None else f"   ray {ray:,.1f}"
        print(f"{row[0]:36} {row[1]:>14,.1f} {row[2]}{beside}", flush=True)

    if wanted.search("startup"):
        for row in startup():
            show(row)
    manta.init()
    manta.get(make_tasks(manta).remote())
    if wanted.search("idle_memory"):
        time.sleep(1.5)
        show(idle_memory()[0])
    for baseline in (baseline_pool, baseline_copy):
        if wanted.search("baseline"):
            for row in baseline(options.seconds):
                show(row)
    mine: dict[str, float] = {}
    if wanted.search("tune") or "tune" in options.filter:
        from manta.tune._bench import WORKLOADS

        _workloads.extend(WORKLOADS)
    for name, function, unit in _workloads:
        if wanted.search(name):
            mine[name] = function(manta, options.seconds)
            show((name, mine[name], unit))
    manta.shutdown()
    try:
        import ray  # type: ignore[import]
    except ImportError:
        print("(ray is not installed: nothing to compare with)")
    else:
        ray.init(include_dashboard=False, logging_level="ERROR")
        for name, function, unit in _workloads:
            if wanted.search(name):
                show((f"ray_{name}", function(ray, options.seconds), unit))
        ray.shutdown()
    if options.json:
        with open(options.json, "w") as file:
            json.dump([{"name": name, "value": value, "unit": unit} for name, value, unit in rows], file, indent=1)


if __name__ == "__main__":
    main()
