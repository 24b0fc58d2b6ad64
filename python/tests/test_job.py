"""Jobs with a name: what they did is on disk, and a program that crashed goes on where it was (doc/lineage.md)."""
import os
import subprocess

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


def test_a_durable_value_is_in_the_folder_of_the_job(run_script, tmp_path, monkeypatch):
    monkeypatch.setenv("MANTA_SECRETS", str(tmp_path / "secrets"))
    text = """
import os, manta
manta.init(num_cpus=1, job="keeps")
ref = manta.put(b"k" * 1_000_000, durable={durable})
assert manta.get(ref) == b"k" * 1_000_000
os.kill(os.getpid(), 9)
"""

    def kept(durable):
        assert run_script(text.format(durable=durable), check=False).returncode == -9
        return [path for path in (tmp_path / "secrets").rglob("*") if path.is_file() and path.stat().st_size > 10**6]

    assert len(kept(durable=True)) == 1 and not kept(durable=False)


def test_a_durable_value_needs_a_place_and_no_refs(run_script):
    done = run_script("""
import manta
manta.init(num_cpus=1)
for value in (1, b"x" * 1_000_000, [manta.put(1)]):
    try:
        manta.put(value, durable=True)
    except ValueError as problem:
        print(problem)
""")
    assert done.stdout.count("put: there is no place for a durable value") == 2
    assert "init(job=)" in done.stdout and "::" not in done.stdout
    assert "cannot have Refs" in done.stdout


def test_keep_lineage_keeps_it_after_a_good_end(run_script, tmp_path, monkeypatch):
    monkeypatch.setenv("MANTA_SECRETS", str(tmp_path / "secrets"))

    def kept(keep):
        run_script(f"""
import manta
manta.init(num_cpus=1, job="brief", keep_lineage={keep})
manta.get(manta.remote(abs).remote(-1))
""")
        return os.listdir(tmp_path / "secrets" / "jobs")

    assert kept(keep=False) == [] and kept(keep=True) == ["brief"]


REPLAYED = """
import manta

manta.init(num_cpus=2, job="replayed", keep_lineage=True)

def plain(x):
    return x + 1

@manta.remote
def child(x):
    return plain(x)

@manta.remote
def parent(x):
    print("parent runs")
    return manta.get(child.remote(x)) * 2

@manta.remote
def fails(x):
    raise KeyError(x)

assert manta.get([parent.remote(3), child.remote(5)]) == [8, 6]
try:
    manta.get(fails.remote("gone"))
except KeyError:
    pass
manta.commit()
"""


def test_recorded_python_tasks_run_again(run_script, tmp_path, monkeypatch):
    monkeypatch.setenv("MANTA_SECRETS", str(tmp_path / "secrets"))
    run_script(REPLAYED)

    def command(*words):
        path = os.path.join(os.path.dirname(manta.__file__), "bin", "manta")
        return subprocess.run([path, *words], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)

    tasks = command("lineage", "replayed", "--tasks").stdout
    ids = {name: next(line.split()[0] for line in tasks.splitlines() if name in line)
           for name in ("parent", "child", "fails")}
    parent = command("replay", ids["parent"])
    assert parent.returncode == 0, parent.stdout + parent.stderr
    assert "parent runs" in parent.stdout and "recorded" in parent.stdout
    assert "the same as recorded" in command("replay", ids["child"]).stdout
    failed = command("replay", ids["fails"])
    assert failed.returncode == 0 and "as recorded" in failed.stdout, failed.stdout + failed.stderr
    gdb = command("replay", ids["child"], "--gdb")
    assert "manta_replay_begin" in gdb.stdout, gdb.stdout + gdb.stderr
