"""Rows of ``python -m manta.bench --filter tune``. Each also runs on Ray, where it is installed."""
from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

_ONE = """import sys, tempfile, time
started = time.perf_counter()
from {api} import tune
def train(config):
    return {{"a": 1}}
with tempfile.TemporaryDirectory() as folder:
    tune.Tuner(train, run_config=tune.RunConfig(storage_path=folder, verbose=0)).fit()
    print("took", time.perf_counter() - started)
"""


def _run(api: Any, train: Any, space: dict[str, Any], **options: Any) -> float:
    """The seconds that a run takes, with all its files."""
    tune = importlib.import_module(f"{api.__name__}.tune")
    with tempfile.TemporaryDirectory() as folder:
        tuner = tune.Tuner(train, param_space=space, tune_config=tune.TuneConfig(metric="a", mode="max", **options),
                           run_config=tune.RunConfig(storage_path=folder, verbose=0))
        started = time.perf_counter()
        tuner.fit()
        return time.perf_counter() - started


def _returns(config: dict[str, Any]) -> dict[str, Any]:
    return {"a": config["x"]}


def _reporter(api: str, count: int) -> Callable[[dict[str, Any]], None]:
    def reports(config: dict[str, Any]) -> None:
        report = importlib.import_module(f"{api}.tune").report
        for number in range(count):
            report({"a": number, "loss": 1 / (number + 1)})

    return reports


def tune_import_to_result(api: Any, seconds: float) -> float:
    """Milliseconds from the import to the result of one trial, in a new program."""
    times = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", _ONE.format(api=api.__name__)], capture_output=True, text=True,
                              check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        times.append(float(done.stdout.split()[-1]))
    return sorted(times)[1] * 1e3


def tune_trials_fresh(api: Any, seconds: float) -> float:
    """Trials per second of a function that returns at once, a new process each."""
    count = 8 if api.__name__ == "ray" else int(60 * seconds)
    return count / _run(api, _returns, {"x": 1}, num_samples=count)


def tune_trials_reused(api: Any, seconds: float) -> float:
    count = 8 if api.__name__ == "ray" else int(400 * seconds)
    return count / _run(api, _returns, {"x": 1}, num_samples=count, reuse_actors=True)


def tune_results(api: Any, seconds: float) -> float:
    """Results per second from two trials with three loggers."""
    count = 300 if api.__name__ == "ray" else int(20000 * seconds)
    return 2 * count / _run(api, _reporter(api.__name__, count), {"x": 1}, num_samples=2)


WORKLOADS = [("tune_import_to_result", tune_import_to_result, "ms"), ("tune_trials_fresh", tune_trials_fresh, "/s"),
             ("tune_trials_reused", tune_trials_reused, "/s"), ("tune_results", tune_results, "/s")]
