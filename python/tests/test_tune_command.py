"""The command `manta tune`."""
import csv
import glob
import io
import json
import os
import subprocess
import sys

import pytest
from tune_trainables import square

from manta import tune

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")

    def train(config):
        print("printed by", config["x"])
        if config["x"] == 2:
            raise ValueError("no")
        square(config)

    tune.Tuner(train, param_space={"x": tune.grid_search([1, 2, 3])},
               tune_config=tune.TuneConfig(metric="loss", mode="min"),
               run_config=tune.RunConfig(storage_path=str(path), name="mine", verbose=0, log_to_file=True)).fit()
    return str(path)


@pytest.fixture
def manta_tune(folder):
    def run(*words, check=True):
        done = subprocess.run([sys.executable, "-m", "manta.tune", "--storage", folder, *words], capture_output=True,
                              text=True, timeout=60)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done.stdout if check else done

    return run


def test_runs_are_listed_and_shown(manta_tune):
    row = manta_tune("ls").splitlines()[1].split()
    assert row[:5] == ["mine", "3", "0", "2", "1"] and "loss" in row
    text = manta_tune("show", "mine")
    assert "3 trials: 1 ERROR, 2 TERMINATED" in text and "trial 1 failed: ValueError: no" in text


def test_the_best_trial_and_all_trials(manta_tune):
    best = json.loads(manta_tune("best", "mine"))
    assert best["trial"] == 2 and best["config"] == {"x": 3} and best["loss"] == 0
    rows = manta_tune("trials", "mine", "--sort", "loss", "--columns", "loss,config/x").splitlines()
    assert rows[0].split() == ["trial", "state", "loss", "config/x"] and rows[1].split()[0] == "2"


def test_logs_and_export(manta_tune):
    assert "printed by 1" in manta_tune("logs", "mine", "0")
    assert "ValueError: no" in manta_tune("logs", "mine", "1")
    rows = list(csv.DictReader(io.StringIO(manta_tune("export", "mine", "--csv"))))
    assert [(row["trial"], row["config/x"], row["loss"]) for row in rows] == [("0", "1", "4"), ("2", "3", "0")]
    assert json.loads(manta_tune("export", "mine", "--json").splitlines()[0])["loss"] == 4


def test_a_wrong_name_is_refused_with_the_spelling(manta_tune):
    done = manta_tune("show", "mone", check=False)
    assert done.returncode == 1 and "Did you mean mine?" in done.stderr
    assert "has no trial 7" in manta_tune("logs", "mine", "7", check=False).stderr


def test_a_run_is_stopped_resumed_and_removed(manta_tune, folder, tmp_path, eventually):
    program = tmp_path / "program.py"
    program.write_text(f"""
import os, time
from manta import tune

def train(config):
    for number in range(10**6 if not os.path.exists({str(tmp_path / "quick")!r}) else 3):
        time.sleep(0.01)
        tune.report({{"n": number}})

tune.Tuner(train, run_config=tune.RunConfig(storage_path={folder!r}, name="long")).fit()
""")
    running = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True)
    assert eventually(lambda: glob.glob(f"{folder}/long/*/result.json"))
    manta_tune("stop", "long")
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0, out
    (tmp_path / "quick").write_text("")
    assert "TERMINATED" in manta_tune("resume", "long")
    manta_tune("rm", "long")
    assert not os.path.exists(f"{folder}/long")
