"""A driver that is killed at any point: the restored run equals an undisturbed one."""
import json
import os
import subprocess
import sys

import pytest

PROGRAM = '''
import json, os, signal, sys, tempfile

from manta import tune
from manta.tune import _loop, _plan
from manta.tune.schedulers import ASHAScheduler
from manta.tune.search import TPESearch

folder, what = sys.argv[1], sys.argv[2]


def train(config):
    start = 0
    checkpoint = tune.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as path:
            start = json.load(open(path + "/state"))
    for number in range(start, 4):
        with tempfile.TemporaryDirectory(dir=folder) as path:  # a killed trial leaves it behind
            json.dump(number + 1, open(path + "/state", "w"))
            tune.report({"m": -(config["x"] - 3) ** 2 + number}, checkpoint=tune.Checkpoint.from_directory(path))


def die_at(owner, name, count, after):
    """Kills this process at the count-th call."""
    plain = getattr(owner, name)
    left = [count]

    def wrapped(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        value = plain(*args, **kwargs)
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    setattr(owner, name, wrapped)


class Native:
    """The native controller, with a call that kills."""

    def __init__(self, native, name, count, after):
        self._native = native
        self.name, self.count, self.after = name, count, after

    def __getattr__(self, name):
        if name == self.name:
            self.count -= 1
            if self.count == 0:
                plain = getattr(self._native, name)
                if not self.after:
                    os.kill(os.getpid(), signal.SIGKILL)
                return lambda *args: (plain(*args), os.kill(os.getpid(), signal.SIGKILL))
        return getattr(self._native, name)


if what != "restore":
    if what != "whole":
        where, name, count, after = what.split(":")
        if where == "native":
            build = _plan.Plan.create

            def create(plan):
                build(plan)
                plan.native = Native(plan.native, name, int(count), after == "after")

            _plan.Plan.create = create
        else:
            die_at({"loop": _loop.Loop, "plan": _plan.Plan, "executor": _loop.Executor}[where], name, int(count),
                   after == "after")
    config = tune.TuneConfig(metric="m", mode="max", num_samples=4, seed=11, max_concurrent_trials=1,
                             search_alg=TPESearch(n_startup_trials=2),
                             scheduler=ASHAScheduler(max_t=9, reduction_factor=2))
    tuner = tune.Tuner(train, param_space={"x": tune.uniform(0, 10), "i": tune.randint(0, 5)}, tune_config=config,
                       run_config=tune.RunConfig(storage_path=folder, name="run", verbose=0))
else:
    tuner = tune.Tuner.restore(folder + "/run", train)
grid = tuner.fit()
rows = []
for result in grid:
    with open(result.path + "/result.json") as file:
        lines = [json.loads(line) for line in file]
    rows.append([result.config, [(line["training_iteration"], line["m"]) for line in lines]])
print(json.dumps([rows, grid.get_best_result().config]))
'''

POINTS = ["native:results:1:before", "native:results:1:after", "native:results:7:after",
          "native:finished:1:before", "native:finished:1:after", "native:flush:4:before", "native:close_trial:2:before",
          "loop:_on_start:2:before", "executor:start:4:before", "plan:write_params:2:after",
          "loop:_ended:1:after", "native:resources:1:after"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "program.py"
    path.write_text(PROGRAM)

    def run(folder, what):
        words = [sys.executable, str(path), str(folder), what]
        return subprocess.run(words, capture_output=True, text=True, timeout=100)

    return run


@pytest.fixture(scope="module")
def whole(program, tmp_path_factory):
    """What an undisturbed run gives."""
    done = program(tmp_path_factory.mktemp("whole"), "whole")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_is_killed_goes_on_as_if_it_had_not_been(program, whole, tmp_path, point):
    killed = program(tmp_path, point)
    assert killed.returncode == -9, killed.stdout + killed.stderr
    assert os.path.exists(tmp_path / "run" / "journal")
    restored = program(tmp_path, "restore")
    assert restored.returncode == 0, restored.stdout + restored.stderr
    assert json.loads(restored.stdout.splitlines()[-1]) == whole
