"""Jobs with a name: what they did is on disk, and a program that crashed goes on where it was (doc/lineage.md)."""
import os

import pytest

import manta

PROGRAM = """
import os, sys
import manta

manta.init(num_cpus=2, job="nightly", resume={resume}, _temp_dir={folder!r})

@manta.remote
def square(x):
    with open({log!r}, "a") as file:
        file.write("ran\\n")
    return x * x

@manta.remote
def total(numbers):
    with open({log!r}, "a") as file:
        file.write("ran\\n")
    return sum(numbers)

first = manta.get([square.remote(i) for i in range(5)])
assert manta.get(total.remote({{1, 2, 3}})) == 6
manta.commit()
if {crash}:
    os.kill(os.getpid(), 9)
assert manta.get(total.remote([*first, *manta.get([square.remote(i) for i in range(5, 7)])])) == 91
print("done", manta.get_runtime_context().get_job_id())
"""


def test_a_job_that_is_resumed_runs_only_what_had_not_ended(run_script, tmp_path, monkeypatch):
    monkeypatch.setenv("MANTA_SECRETS", str(tmp_path / "secrets"))
    log = tmp_path / "log"

    def run(resume, crash):
        text = PROGRAM.format(resume=resume, crash=crash, log=str(log), folder=str(tmp_path))
        return run_script(text, check=not crash)

    assert run(resume=False, crash=True).returncode == -9
    assert len(log.read_text().split()) == 6
    assert "done" in run(resume=True, crash=False).stdout
    assert len(log.read_text().split()) == 6 + 3
    assert os.listdir(tmp_path / "secrets" / "jobs") == []  # it ended well


def test_what_makes_no_sense_is_refused():
    for wrong in ({"resume": True}, {"keep_lineage": True}, {"job": ""}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            manta.init(num_cpus=1, **wrong)
    assert not manta.is_initialized()
