"""What happens when trials, drivers and users fail."""
import json
import os
import signal
import subprocess
import sys

import pytest

from manta import tune

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def fit(tmp_path):
    def run(trainable, space=None, failure=None, **options):
        config = tune.RunConfig(storage_path=str(tmp_path), name="run", verbose=0, failure_config=failure)
        return tune.Tuner(trainable, param_space=space, tune_config=tune.TuneConfig(**options), run_config=config).fit()

    return run


def test_an_error_is_in_the_result_and_in_a_file(fit):
    def train(config):
        if config["x"] == 1:
            raise ValueError("loss is nan")
        return {"a": 1}

    grid = fit(train, {"x": tune.grid_search([0, 1])})
    assert grid.num_errors == 1 and isinstance(grid.errors[0], ValueError)
    text = open(os.path.join(grid[1].path, "error.txt")).read()
    assert "loss is nan" in text and "Traceback" in text and "_process.py" not in text
    assert grid[0].error is None and grid[1].error is not None


def test_tune_run_raises_for_a_failed_trial(tmp_path):
    def train(config):
        raise ValueError("no")

    with pytest.raises(tune.TuneError, match="1 of 1 trials failed.*ValueError: no"):
        tune.run(train, storage_path=str(tmp_path), verbose=0)
    analysis = tune.run(train, storage_path=str(tmp_path), verbose=0, raise_on_failed_trial=False)
    assert analysis.trials[0].status == "ERROR"


def test_a_failed_trial_is_tried_again_from_its_checkpoint(fit, tmp_path):
    marks = str(tmp_path / "marks")

    def train(config):
        import tempfile

        start = 0
        checkpoint = tune.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as folder:
                start = int(open(os.path.join(folder, "n")).read())
        for number in range(start, 4):
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "n"), "w") as file:
                    file.write(str(number + 1))
                tune.report({"n": number}, checkpoint=tune.Checkpoint.from_directory(folder))
            if number == 1 and not os.path.exists(marks):
                open(marks, "w").close()
                raise ValueError("once")

    result = fit(train, failure=tune.FailureConfig(max_failures=1))[0]
    assert result.error is None and result.metrics["training_iteration"] == 4
    with open(os.path.join(result.path, "result.json")) as file:
        assert [json.loads(line)["n"] for line in file] == [0, 1, 2, 3]


@pytest.mark.parametrize(("how", "words"), [("exit", "exited with status 3"), ("crash", "SIGSEGV")])
def test_a_process_that_dies_is_named_with_its_last_lines(fit, how, words):
    def train(config):
        print("last words")
        if how == "exit":
            os._exit(3)
        import ctypes

        ctypes.string_at(0)

    grid = fit(train)
    assert grid.num_errors == 1
    assert words in str(grid.errors[0]) and "last words" in str(grid.errors[0])


def test_a_killed_process_is_no_failure(fit, tmp_path):
    mark = str(tmp_path / "mark")

    def train(config):
        if not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"a": 1}

    assert fit(train)[0].metrics["a"] == 1


def test_a_trial_that_hangs_is_killed_and_shows_its_stacks(fit):
    def train(config):
        import time

        tune.report({"a": 1})
        time.sleep(1000)

    grid = fit(train, failure=tune.FailureConfig(report_timeout_s=0.5))
    assert "did not report for 0.5 s" in str(grid.errors[0]) and "in train" in str(grid.errors[0])


def test_fail_fast_ends_the_run_and_raise_raises(fit):
    def train(config):
        raise KeyError("first")

    grid = fit(train, num_samples=50, failure=tune.FailureConfig(fail_fast=True), max_concurrent_trials=1)
    assert grid.num_errors == 1
    with pytest.raises(KeyError, match="first"):
        fit(train, num_samples=50, failure=tune.FailureConfig(fail_fast="raise"))


def test_a_metric_that_no_result_has_is_an_error_with_the_spelling(fit):
    def train(config):
        return {"accuracy": 1, "loss": 2}

    with pytest.raises(ValueError, match='metric "acuracy" is not in the result of trial 0; it has: accuracy, loss.*'
                                         "Did you mean accuracy"):
        fit(train, metric="acuracy", mode="max")


def test_nan_is_never_the_best(fit):
    def train(config):
        return {"m": config["m"]}

    grid = fit(train, {"m": tune.grid_search([float("nan"), 1.0, float("inf"), 2.0])}, metric="m", mode="max")
    assert grid.get_best_result().metrics["m"] == 2.0


def test_a_trainable_that_cannot_be_sent_is_refused_before_anything_starts(fit, tmp_path):
    import threading

    lock = threading.Lock()

    def train(config):
        with lock:
            return {"a": 1}

    with pytest.raises(TypeError, match="cannot be sent.*variable 'lock'"):
        fit(train)
    assert os.listdir(tmp_path) == []


def test_a_storage_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    tuner = tune.Tuner(lambda config: None, run_config=tune.RunConfig(storage_path=str(tmp_path / "file" / "x")))
    with pytest.raises(tune.TuneError, match="cannot write to storage_path"):
        tuner.fit()


PROGRAM = """
import json, os, sys, tempfile, time
from manta import tune

def train(config):
    checkpoint = tune.get_checkpoint()
    start = 0
    if checkpoint:
        with checkpoint.as_directory() as folder:
            start = json.load(open(folder + "/state"))
    for number in range(start, 5):
        while not os.path.exists(config["gate"]) and (config["i"], number) == (2, 2):
            time.sleep(0.01)
        with tempfile.TemporaryDirectory(dir=os.path.dirname(config["gate"])) as folder:
            json.dump(number + 1, open(folder + "/state", "w"))
            tune.report({"m": config["x"] * (number + 1)}, checkpoint=tune.Checkpoint.from_directory(folder))

if __name__ == "__main__":
    folder, what = sys.argv[1], sys.argv[2]
    if what == "fit":
        tuner = tune.Tuner(train, param_space={"x": tune.uniform(0, 1), "i": tune.grid_search(list(range(4))),
                                               "gate": folder + "/gate"},
                           tune_config=tune.TuneConfig(metric="m", mode="max", seed=5, max_concurrent_trials=1),
                           run_config=tune.RunConfig(storage_path=folder, name="run"))
    else:
        tuner = tune.Tuner.restore(folder + "/run", train, num_samples=int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    grid = tuner.fit()
    print(json.dumps([[r.config["x"], r.config["i"], r.metrics["m"], r.metrics["training_iteration"]] for r in grid]))
"""


class Program:
    """The same run as a program of its own, with a trial that waits for the test."""

    def __init__(self, folder, eventually):
        self.folder, self.eventually = str(folder), eventually
        self.path = os.path.join(self.folder, "program.py")
        with open(self.path, "w") as file:
            file.write(PROGRAM)

    def start(self, *words):
        return subprocess.Popen([sys.executable, self.path, self.folder, *words], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def open_gate(self):
        open(os.path.join(self.folder, "gate"), "w").close()

    def wait_at_gate(self):
        def there():
            for name in os.listdir(os.path.join(self.folder, "run")) if os.path.isdir(self.folder + "/run") else []:
                if "i=2" in name and os.path.isdir(os.path.join(self.folder, "run", name, "checkpoint_000001")):
                    return True
            return False

        assert self.eventually(there)

    def results(self, *words):
        done = self.start(*words)
        out, _ = done.communicate(timeout=60)
        assert done.returncode == 0, out
        return json.loads(out.strip().splitlines()[-1])

    def all_once(self):
        for name in os.listdir(self.folder + "/run"):
            path = os.path.join(self.folder, "run", name, "result.json")
            if os.path.exists(path):
                with open(path) as file:
                    assert [json.loads(line)["training_iteration"] for line in file] == [1, 2, 3, 4, 5]


@pytest.fixture
def program(tmp_path, eventually):
    return Program(tmp_path, eventually)


def test_a_driver_that_is_killed_is_restored(program, tmp_path_factory, eventually):
    running = program.start("fit")
    program.wait_at_gate()
    running.kill()
    running.communicate()
    program.open_gate()
    restored = program.results("restore")
    program.all_once()
    whole = Program(tmp_path_factory.mktemp("whole"), eventually)
    whole.open_gate()
    assert restored == whole.results("fit")
    more = program.results("restore", "1")
    assert more[:4] == restored and len(more) == 8


def test_ctrl_c_saves_and_prints_how_to_continue(program):
    running = program.start("fit")
    program.wait_at_gate()
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 130, out
    assert out.strip().splitlines()[-1].endswith(f"manta tune resume {program.folder}/run")
    program.open_gate()
    assert len(program.results("restore")) == 4
    program.all_once()


def test_restore_refuses_what_is_no_run(tmp_path):
    assert not tune.Tuner.can_restore(str(tmp_path))
    with pytest.raises(ValueError, match="is not the folder of a run"):
        tune.Tuner.restore(str(tmp_path), lambda config: None)


def test_errored_trials_are_resumed_on_request(fit, tmp_path):
    mark = str(tmp_path / "mark")

    def train(config):
        if config["x"] == 1 and not os.path.exists(mark):
            raise ValueError("first time")
        return {"a": config["x"]}

    grid = fit(train, {"x": tune.grid_search([0, 1])})
    assert grid.num_errors == 1
    open(mark, "w").close()
    again = tune.Tuner.restore(grid.experiment_path, train).fit()
    assert again.num_errors == 1
    assert [result.metrics["a"] for result in
            tune.Tuner.restore(grid.experiment_path, train, restart_errored=True).fit()] == [0, 1]


def test_a_searcher_of_the_user_is_restored_with_its_state(fit):
    class Mine(tune.search.Searcher):
        def __init__(self):
            super().__init__()
            self.asked, self.told = 0, []

        def suggest(self, trial_id):
            self.asked += 1
            return {"x": self.asked, "before": len(self.told)}

        def on_trial_complete(self, trial_id, result=None, error=False):
            self.told.append(result["a"])

    def train(config):
        return {"a": config["x"]}

    grid = fit(train, metric="a", mode="max", num_samples=3, search_alg=Mine(), max_concurrent_trials=1)
    assert [result.config["x"] for result in grid] == [1, 2, 3]
    again = tune.Tuner.restore(grid.experiment_path, train, num_samples=2).fit()
    assert [result.config["x"] for result in again] == [1, 2, 3, 4, 5]
    assert [result.config["before"] for result in again] == [0, 1, 2, 3, 4]
