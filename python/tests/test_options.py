"""Every option does what it says, or raises. None is ignored."""
import os
import subprocess
import sys
import time

import pytest
import signs

import manta
from manta import exceptions

pytestmark = pytest.mark.usefixtures("cluster")


@manta.remote
def busy(seconds):
    begin = time.time()
    time.sleep(seconds)
    return begin, time.time()


def overlap(refs):
    (a, b), (c, d) = manta.get(refs, timeout=100)
    return min(b, d) > max(a, c)


meet = manta.remote(signs.meet)


def test_num_cpus_limits_what_runs_side_by_side(tmp_path):
    assert all(manta.get([meet.remote(tmp_path, 4) for _ in range(4)], timeout=200))
    wide = busy.options(num_cpus=3)
    assert not overlap([wide.remote(0.1), wide.remote(0.1)])
    with pytest.raises(exceptions.InfeasibleError):
        manta.get(busy.options(num_cpus=1000).remote(0), timeout=20)


def test_fractions_of_cpus(tmp_path):
    assert all(manta.get([meet.options(num_cpus=0.5).remote(tmp_path, 8) for _ in range(8)], timeout=200))


def test_resources_are_counted():
    disk = busy.options(resources={"disk": 2})
    assert not overlap([disk.remote(0.1), disk.remote(0.1)])
    with pytest.raises(exceptions.InfeasibleError):
        manta.get(busy.options(resources={"tape": 1}).remote(0), timeout=20)
    with pytest.raises(ValueError, match="num_cpus"):
        busy.options(resources={"CPU": 1})


def test_memory_is_counted():
    total = manta.cluster_resources()["memory"]
    half = busy.options(memory=int(total * 0.7))
    assert not overlap([half.remote(0.1), half.remote(0.1)])
    with pytest.raises(exceptions.InfeasibleError):
        manta.get(busy.options(memory=int(total * 2)).remote(0), timeout=20)


def test_num_gpus_gives_devices(run_script):
    run_script("""
import manta, os
manta.init(num_cpus=2, num_gpus=2)
@manta.remote(num_gpus=1)
def which():
    return manta.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]
ids, text = manta.get(which.remote())
assert len(ids) == 1 and text == str(ids[0]), (ids, text)
@manta.remote(num_gpus=2)
class Both:
    def ids(self): return sorted(manta.get_gpu_ids())
assert manta.get(Both.remote().ids.remote()) == [0, 1]
assert manta.cluster_resources()["GPU"] == 2
""")


def test_gpu_tasks_have_fresh_workers_and_cpu_tasks_see_no_gpu(run_script, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    run_script("""
import manta, os
manta.init(num_cpus=1, num_gpus=2)
@manta.remote
def see():
    return os.getpid(), manta.get_gpu_ids(), os.environ["CUDA_VISIBLE_DEVICES"]
gpu = see.options(num_gpus=2)
kept = see.options(num_gpus=2, max_calls=0)
pids = set()
for _ in range(3):
    pid, ids, text = manta.get(gpu.remote())
    assert (ids, text) == ([4, 5], "4,5"), (ids, text)
    pids.add(pid)
    assert manta.get(see.remote())[1:] == ([], "")
assert len(pids) == 3, pids
assert manta.get(kept.remote())[1:] == ([4, 5], "4,5")
assert manta.get(see.remote())[1:] == ([], "")
""")


def test_max_retries_counts(tmp_path):
    @manta.remote
    def crash(path):
        with open(path, "a") as file:
            file.write("x")
        os._exit(1)

    for retries, runs in ((0, 1), (2, 3)):
        path = tmp_path / f"runs{retries}"
        with pytest.raises(exceptions.WorkerCrashedError):
            manta.get(crash.options(max_retries=retries).remote(str(path)), timeout=60)
        assert len(path.read_text()) == runs


def test_retry_exceptions(tmp_path):
    @manta.remote(max_retries=4)
    def flaky(path, error):
        with open(path, "a") as file:
            file.write("x")
        if os.path.getsize(path) < 3:
            raise error("not yet")
        return os.path.getsize(path)

    with pytest.raises(OSError):
        manta.get(flaky.remote(str(tmp_path / "a"), OSError))
    assert manta.get(flaky.options(retry_exceptions=True).remote(str(tmp_path / "b"), OSError)) == 3
    only = flaky.options(retry_exceptions=[OSError])
    assert manta.get(only.remote(str(tmp_path / "c"), OSError)) == 3
    with pytest.raises(KeyError):
        manta.get(only.remote(str(tmp_path / "d"), KeyError))


def test_name_is_what_messages_say():
    @manta.remote(name="my-task")
    def fail():
        raise RuntimeError("x")

    with pytest.raises(RuntimeError) as caught:
        manta.get(fail.remote())
    assert "my-task() (pid=" in str(caught.value)


def test_runtime_env_sets_variables():
    @manta.remote
    def variable(name):
        return os.environ.get(name)

    with_it = variable.options(runtime_env={"env_vars": {"MANTA_TEST_VARIABLE": "on"}})
    assert manta.get([with_it.remote("MANTA_TEST_VARIABLE") for _ in range(5)]) == ["on"] * 5
    assert manta.get([variable.remote("MANTA_TEST_VARIABLE") for _ in range(20)]) == [None] * 20

    @manta.remote(runtime_env={"env_vars": {"MANTA_TEST_VARIABLE": "actor"}})
    class Reader:
        def read(self):
            return os.environ.get("MANTA_TEST_VARIABLE")

    assert manta.get(Reader.remote().read.remote()) == "actor"
    with pytest.raises(NotImplementedError, match="pip"):
        variable.options(runtime_env={"pip": ["x"]})


def test_scheduling_strategies_of_one_machine():
    assert manta.get(busy.options(scheduling_strategy="SPREAD").remote(0), timeout=20)
    assert manta.get(busy.options(scheduling_strategy="DEFAULT").remote(0))
    with pytest.raises(ValueError, match="scheduling_strategy"):
        busy.options(scheduling_strategy="ELSEWHERE")


@pytest.mark.parametrize("options", [
    {"num_cpu": 1}, {"num_cpus": -1}, {"num_cpus": "one"}, {"num_returns": -1}, {"num_returns": "all"},
    {"max_retries": -2}, {"retry_exceptions": [1]}, {"resources": [1]}, {"name": 3}, {"runtime_env": "x"},
    {"max_restarts": 1}, {"lifetime": "detached"}, {"max_concurrency": 2}, {"memory": -5},
])
def test_wrong_options_of_tasks_raise(options):
    with pytest.raises((ValueError, TypeError)):
        busy.options(**options)
    with pytest.raises((ValueError, TypeError)):
        manta.remote(**options)(lambda: 1)


@pytest.mark.parametrize("options", [
    {"max_concurency": 2}, {"max_concurrency": 0}, {"max_restarts": -2}, {"lifetime": "long"}, {"num_returns": 2},
    {"max_retries": 1}, {"get_if_exists": "yes"}, {"namespace": ""}, {"max_task_retries": 1.5},
    {"max_pending_calls": "a"}, {"concurrency_groups": {"io": 0}}, {"concurrency_groups": ["io"]},
    {"concurrency_groups": {"a.b": 1}},
])
def test_wrong_options_of_actors_raise(options):
    class Thing:
        pass

    with pytest.raises((ValueError, TypeError)):
        manta.remote(Thing).options(**options)
    with pytest.raises((ValueError, TypeError)):
        manta.remote(**options)(Thing)


def test_a_misspelt_option_is_corrected():
    with pytest.raises(ValueError, match="did you mean 'num_cpus'"):
        busy.options(num_cpu=1)


def test_max_calls_ends_the_process():
    @manta.remote(max_calls=2)
    def pid():
        return os.getpid()

    pids = [manta.get(pid.remote(), timeout=20) for _ in range(8)]
    assert all(pids.count(one) <= 2 for one in pids)
    many = manta.get([pid.remote() for _ in range(10)], timeout=60)
    assert all(many.count(one) <= 2 for one in many)
    with pytest.raises(ValueError):
        pid.options(max_calls=-1)


@pytest.mark.parametrize("options", [{"accelerator_type": "A100"}])
def test_what_is_not_built_yet_says_so_for_tasks(options):
    with pytest.raises(NotImplementedError, match=next(iter(options))):
        busy.options(**options)


@pytest.mark.parametrize("options", [{"accelerator_type": "A100"}, {"object_store_memory": 1}])
def test_what_is_not_built_yet_says_so_for_actors(options):
    class Thing:
        pass

    with pytest.raises(NotImplementedError, match=next(iter(options))):
        manta.remote(Thing).options(**options)


def test_actors_hold_their_cpus():
    @manta.remote(num_cpus=4)
    class All:
        def ping(self):
            return 1

    actor = All.remote()
    assert manta.get(actor.ping.remote(), timeout=20) == 1
    ref = busy.remote(0)
    assert manta.wait([ref], timeout=0.3)[0] == []
    manta.kill(actor)
    assert manta.get(ref, timeout=20)


def test_init_options(run_script):
    run_script("""
import manta
with manta.init(num_cpus=3, resources={"x": 2}, namespace="mine", object_store_memory=100 << 20) as context:
    assert manta.cluster_resources()["CPU"] == 3 and manta.cluster_resources()["x"] == 2
    assert manta.get_runtime_context().namespace == "mine"
    assert manta.nodes()[0]["Alive"]
    assert context["namespace"] == "mine"
assert not manta.is_initialized()
for bad in ({"num_cpu": 1}, {"include_dashboard": True}, {"num_cpus": -1}, {"runtime_env": {"pip": []}},
            {"num_cpus": -1}, {"num_gpus": -1}, {"local_mode": True}, {"dashboard_port": 1}, {"job_config": {}},
            {"address": "auto", "num_cpus": 2}, {"_system_config": {"a": 1}}, {"object_store_memory": 0},
            {"lineage_memory": 0}, {"address": "@manta-0-1", "lineage_memory": 1 << 20},
            {"runtime_env": "x"}, {"enable_resource_isolation": True}, {"dashboard_host": "0.0.0.0"}):
    try:
        manta.init(**bad)
    except (TypeError, ValueError, NotImplementedError) as problem:
        assert next(iter(bad)) in str(problem) or "num_cpus" in str(problem), problem
    else:
        raise SystemExit(f"{bad} was taken")
manta.init(address="local", num_cpus=1, include_dashboard=False, runtime_env={"env_vars": {"FROM_INIT": "yes"}},
           log_to_driver=False)
import os
@manta.remote
def read():
    print("must not be shown")
    return os.environ["FROM_INIT"]
assert manta.get(read.remote()) == "yes"
manta.shutdown()
""")


def test_available_resources_go_down_while_a_task_runs(tmp_path):
    @manta.remote(num_cpus=3)
    def wait_for(path):
        while not os.path.exists(path):
            time.sleep(0.001)

    def becomes(cpus):
        deadline = time.time() + 20
        while manta.available_resources().get("CPU", 0) != cpus and time.time() < deadline:
            time.sleep(0.01)
        return manta.available_resources().get("CPU", 0) == cpus

    assert becomes(4)
    ref = wait_for.remote(tmp_path / "go")
    assert becomes(1)
    (tmp_path / "go").touch()
    manta.get(ref)
    assert becomes(4)


def test_init_logs_as_asked(run_script):
    done = run_script("""
import logging, manta
manta.init(num_cpus=1, logging_level="info", logging_format="LOG %(message)s")
manta.shutdown()
manta.init(num_cpus=1, logging_level=logging.ERROR)
""")
    assert done.stderr.count("LOG in a cluster with") == 1 and "CPU 1" in done.stderr


def test_configure_logging_false_leaves_handlers_to_the_program(run_script):
    done = run_script("""
import logging, sys, manta
logging.basicConfig(format="OWN %(message)s", stream=sys.stdout)
manta.init(num_cpus=1, logging_level="info", logging_format="LOG %(message)s", configure_logging=False)
assert not logging.getLogger("manta").handlers
""")
    assert "LOG" not in done.stderr and done.stdout.count("OWN in a cluster with") == 1


def test_lineage_memory_is_told_to_the_daemon(run_script):
    done = run_script("""
import glob, os, manta
manta.init(num_cpus=1, lineage_memory=3 << 20)
for path in glob.glob("/proc/[0-9]*/stat"):
    try:
        words = open(path).read().rpartition(")")[2].split()
        line = open(os.path.dirname(path) + "/cmdline").read().split("\\0")
    except OSError:
        continue
    if int(words[1]) == os.getpid() and line[0].endswith("mantad"):
        print(line[line.index("--lineage-memory") + 1])
""")
    assert done.stdout.split() == [str(3 << 20)]


def test_object_store_memory_is_the_stores_size(run_script):
    run_script("""
import manta
try:
    manta.init(num_cpus=1, _temp_dir="/nonexistent")
except ValueError as problem:
    assert "/nonexistent" in str(problem), problem
else:
    raise SystemExit("the folder was not looked at")
manta.init(num_cpus=1, object_store_memory=64 << 20)
try:
    manta.put(bytes(200 << 20))
except manta.exceptions.OutOfMemoryError:
    pass
else:
    raise SystemExit("200 MB fit into 64")
""")


def test_max_task_retries_repeats_calls_of_a_restarted_actor(tmp_path):
    @manta.remote(max_restarts=2, max_task_retries=0)
    class Crashes:
        def once(self, path):
            if not os.path.exists(path):
                open(path, "w").close()
                os._exit(1)
            return "again"

    with pytest.raises(exceptions.MantaError):
        manta.get(Crashes.remote().once.remote(str(tmp_path / "a")), timeout=30)
    again = Crashes.options(max_task_retries=1).remote()
    assert manta.get(again.once.remote(str(tmp_path / "b")), timeout=30) == "again"


def test_calls_overtake_only_if_allowed(tmp_path):
    @manta.remote
    class Notes:
        def __init__(self):
            self.seen = []

        def note(self, what):
            self.seen.append(what)

        def all(self):
            return self.seen

    for allowed, wanted in ((False, ["slow", "fast"]), (True, ["fast", "slow"])):
        notes = Notes.options(allow_out_of_order_execution=allowed).remote()
        sign = str(tmp_path / f"{allowed}")
        slow = notes.note.remote(later.remote(sign))
        notes.note.remote("fast")
        signs.give(sign)
        manta.get(slow, timeout=30)
        assert manta.get(notes.all.remote(), timeout=30) == wanted


@manta.remote
def later(sign):
    signs.wait(sign)
    return "slow"


@manta.remote
def read_variable(name):
    return os.environ.get(name)


@manta.remote
class ReadsVariable:
    def read(self, name):
        return os.environ.get(name)

    def read_nested(self, name):
        return manta.get(read_variable.remote(name))


@manta.remote
def read_everywhere(name):
    reader = ReadsVariable.remote()
    own = read_variable.options(runtime_env={"env_vars": {name: "own"}})
    return manta.get([read_variable.remote(name), reader.read.remote(name), reader.read_nested.remote(name),
                      own.remote(name)])


@manta.remote
def yield_nested(name):
    yield manta.get(read_variable.remote(name))


def test_env_vars_are_inherited_by_nested_calls():
    env = {"runtime_env": {"env_vars": {"MANTA_TEST_NESTED": "outer"}}}
    name = "MANTA_TEST_NESTED"
    assert manta.get(read_everywhere.remote(name), timeout=60) == [None, None, None, "own"]
    assert manta.get(read_everywhere.options(**env).remote(name), timeout=60) == ["outer"] * 3 + ["own"]
    assert manta.get(read_everywhere.remote(name), timeout=60) == [None, None, None, "own"]
    assert manta.get(next(yield_nested.options(**env).remote(name)), timeout=60) == "outer"


def test_a_full_store_collects_what_only_cycles_hold(tmp_path):
    """Nothing can be spilled there, so what is not needed any more must go."""
    secrets = str(tmp_path / "secrets")
    command = [os.path.join(os.path.dirname(manta.__file__), "bin", "manta"), "--secrets", secrets]
    subprocess.run([*command, "start", "--head", "--listen", "127.0.0.1:0", "--cpus", "1", "--store-bytes",
                    str(64 << 20), "--spill", "none"], check=True, timeout=60, capture_output=True)
    try:
        subprocess.run([sys.executable, "-c", """
import gc, manta
manta.init(address="auto")
gc.disable()

class Node:
    pass

for _ in range(12):
    node = Node()
    node.itself, node.ref = node, manta.put(bytes(10 << 20))
    del node
"""], check=True, timeout=120, env={**os.environ, "MANTA_SECRETS": secrets})
    finally:
        subprocess.run([*command, "stop"], check=True, timeout=60, capture_output=True)
