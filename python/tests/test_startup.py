"""Starting, and what is left behind: nothing."""
import os
import time


def test_import_loads_little(run_script):
    done = run_script("""
import sys
import manta
print("heavy:", {"asyncio", "numpy", "cloudpickle", "inspect", "multiprocessing", "ssl", "logging"} & set(sys.modules))
""")
    assert "heavy: set()" in done.stdout


def test_the_first_task_follows_init_closely(run_script):
    done = run_script("""
import time
import manta
a = time.perf_counter()
manta.init(num_cpus=2)
b = time.perf_counter()
f = manta.remote(lambda: 1)
manta.get(f.remote())
c = time.perf_counter()
print(b - a, c - b)
""")
    init, first = map(float, done.stdout.split())
    # The aims are 0.3 s and 50 ms on a quiet machine; here only that nothing hangs in a timeout.
    assert init < 50 and first < 20


def test_the_first_use_initialises(run_script):
    run_script("""
import manta
assert not manta.is_initialized()
assert manta.get(manta.put(3)) == 3
assert manta.is_initialized()
""")


def test_nothing_is_left_when_a_driver_is_killed(run_script):
    done = run_script("""
import manta, os, signal
manta.init(num_cpus=2)
pids = manta.get([manta.remote(os.getpid).remote() for _ in range(4)])
print(*set(pids), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""", check=False)
    pids = [int(word) for word in done.stdout.split()]
    assert pids
    deadline = time.time() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.time() < deadline:
        time.sleep(0.01)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_workers_are_forks_and_not_new_interpreters(run_script):
    run_script("""
import manta, os
manta.init(num_cpus=2)
@manta.remote
def look():
    parent = open(f"/proc/{os.getppid()}/cmdline").read()
    threads = len(os.listdir(f"/proc/{os.getppid()}/task"))
    return "manta._fork_server" in parent, threads
assert manta.get(look.remote()) == (True, 1)
import numpy
manta.shutdown()
manta.init(num_cpus=2)
@manta.remote
def preloaded():
    import sys
    return "numpy" in sys.modules, len(os.listdir(f"/proc/{os.getppid()}/task"))
assert manta.get(preloaded.remote()) == (True, 1)
""")


def test_an_interpreter_with_threads_is_not_forked(run_script, tmp_path, monkeypatch):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    run_script("""
import manta
manta.init(num_cpus=2)
@manta.remote
def f(x): return x + 1
assert manta.get([f.remote(i) for i in range(5)], timeout=40) == [1, 2, 3, 4, 5]
""")


def test_a_script_reads_its_own_arguments_and_environment(run_script):
    run_script("""
import manta, os
os.environ["SET_BY_MAIN"] = "x"
manta.init(num_cpus=1)
assert manta.get(manta.remote(lambda: os.environ["SET_BY_MAIN"]).remote()) == "x"
""")


def test_a_driver_that_joins_a_cluster_brings_its_path_and_variables(run_script, tmp_path):
    import subprocess

    import manta

    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "far_module.py").write_text("VALUE = 17\n")
    reader, writer = os.pipe()
    program = os.path.join(os.path.dirname(manta.__file__), "bin", "mantad")
    daemon = subprocess.Popen([program, "--cpus", "2", "--ready-fd", str(writer)], pass_fds=[writer])
    os.close(writer)
    try:
        address = os.read(reader, 200).decode().strip()
        os.close(reader)
        run_script(f"""
import sys, os
sys.path.append({str(tmp_path / 'far')!r})
import manta
manta.init(address={address!r}, runtime_env={{"env_vars": {{"BROUGHT": "yes"}}}})
@manta.remote
def look():
    import far_module
    return far_module.VALUE, os.environ["BROUGHT"]
assert manta.get(look.remote(), timeout=30) == (17, "yes")
""")
    finally:
        daemon.terminate()
        daemon.wait(20)


def test_a_program_keeps_to_its_quota(run_script):
    done = run_script("""
import manta
manta.init(num_cpus=4, quota={"CPU": 1})
two = manta.remote(num_cpus=2)(lambda: 1)
try:
    manta.get(two.remote(), timeout=50)
except manta.exceptions.InfeasibleError as error:
    print("refused:", error)
one = manta.remote(lambda: manta.available_resources().get("CPU"))
print("free while one runs:", manta.get(one.remote(), timeout=50))
""")
    assert "refused: " in done.stdout and "no more than CPU 1" in done.stdout
    assert "free while one runs: 3" in done.stdout


def test_amounts_that_are_none_are_refused_with_the_option(run_script):
    done = run_script("""
import manta
for option in ({"quota": {"CPU": "many"}}, {"resources": {"gold": None}}, {"resources": 3}):
    try:
        manta.init(**option)
    except manta.exceptions.InvalidError as error:
        print(error)
assert not manta.is_initialized()
""")
    assert done.stdout.count("give a dict of amounts") == 3 and "quota={'CPU': 'many'}" in done.stdout


def test_a_cluster_that_is_not_there_is_a_connection_error(run_script):
    done = run_script("""
import manta
try:
    manta.init(address="@manta-0-1")
except ConnectionError as error:
    print(type(error).__name__, error)
assert not manta.is_initialized()
""")
    assert done.stdout.startswith("UnavailableError init: no cluster answers at @manta-0-1")
