"""How workers end: on their own wish, in order, with the processes that they have started."""
import asyncio
import atexit
import os
import signal
import subprocess
import sys
import time

import pytest
import signs

import manta
from manta import exceptions

pytestmark = pytest.mark.usefixtures("cluster")


class _Leaver:
    """Leaves a file behind at each of the two occasions that an actor has to clean up."""

    def __init__(self, folder):
        self.folder = folder
        self.value = 0
        atexit.register(signs.give, os.path.join(folder, "atexit"))

    def __ray_shutdown__(self):
        signs.give(os.path.join(self.folder, "shutdown"))

    def pid(self):
        return os.getpid()

    def exit_actor(self):
        manta.exit_actor()

    def exit(self, *code):
        sys.exit(*code)

    def catch(self):
        try:
            manta.exit_actor()
        except SystemExit:
            return "caught"


def _said(folder):
    return sorted(os.listdir(folder))


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _actor(folder, **options):
    return manta.remote(**{"num_cpus": 0, "replay": False, **options})(_Leaver).remote(str(folder))


def test_exit_actor_runs_both_handlers_before_its_caller_hears_of_the_end(tmp_path):
    actor = _actor(tmp_path, max_restarts=5)
    with pytest.raises(exceptions.ActorDiedError, match="exit_actor"):
        manta.get(actor.exit_actor.remote(), timeout=60)
    assert _said(tmp_path) == ["atexit", "shutdown"]


def test_an_actor_ends_although_the_method_caught_what_exit_actor_raised(tmp_path):
    actor = _actor(tmp_path)
    assert manta.get(actor.catch.remote(), timeout=60) == "caught"
    with pytest.raises(exceptions.ActorDiedError, match="exit_actor"):
        manta.get(actor.pid.remote(), timeout=60)


def test_exit_with_status_0_is_the_end_of_an_actor_and_others_are_a_crash(tmp_path):
    (tmp_path / "zero").mkdir()
    (tmp_path / "four").mkdir()
    zero = _actor(tmp_path / "zero", max_restarts=1)
    with pytest.raises(exceptions.ActorDiedError, match="exit code 0"):
        manta.get(zero.exit.remote(0), timeout=60)
    assert _said(tmp_path / "zero") == ["atexit", "shutdown"]
    four = _actor(tmp_path / "four", max_restarts=1)
    before = manta.get(four.pid.remote(), timeout=60)
    with pytest.raises(exceptions.ActorError, match="exited with status 4"):
        manta.get(four.exit.remote(4), timeout=60)
    assert _said(tmp_path / "four") == ["atexit", "shutdown"]
    assert manta.get(four.pid.remote(), timeout=60) != before
    with pytest.raises(exceptions.ActorDiedError, match="exited with status 4"):
        manta.get(four.exit.remote(4), timeout=60)


def test_an_actor_whose_handle_is_gone_or_that_is_terminated_ends_in_order_and_a_killed_one_does_not(tmp_path,
                                                                                                     eventually):
    folders = [tmp_path / name for name in ("gone", "terminated", "killed")]
    for folder in folders:
        folder.mkdir()
    gone, terminated, killed = (_actor(folder) for folder in folders)
    pids = manta.get([actor.pid.remote() for actor in (gone, terminated, killed)], timeout=60)
    del gone
    assert eventually(lambda: _said(folders[0]) == ["atexit", "shutdown"])
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(terminated.__ray_terminate__.remote(), timeout=60)
    assert _said(folders[1]) == ["atexit", "shutdown"]
    manta.kill(killed)
    assert eventually(lambda: not any(_alive(pid) for pid in pids))
    assert _said(folders[2]) == []


def test_a_handler_that_raises_keeps_no_actor_from_its_end(tmp_path):
    @manta.remote(num_cpus=0)
    class Faulty:
        def __ray_shutdown__(self):
            raise ValueError("cannot clean up")

        def leave(self):
            atexit.register(signs.give, str(tmp_path / "atexit"))
            manta.exit_actor()

    with pytest.raises(exceptions.ActorDiedError, match="exit_actor"):
        manta.get(Faulty.remote().leave.remote(), timeout=60)
    assert _said(tmp_path) == ["atexit"]


def test_calls_in_flight_of_a_threaded_actor_finish_and_queued_ones_fail(tmp_path):
    @manta.remote(num_cpus=0, max_concurrency=3)
    class Threaded:
        def work(self, go, number):
            signs.give(str(tmp_path / f"began{number}"))
            assert signs.wait(go)
            return number

        def leave(self):
            manta.exit_actor()

    actor = Threaded.remote()
    go = str(tmp_path / "go")
    running = [actor.work.remote(go, number) for number in range(2)]
    assert all(signs.wait(str(tmp_path / f"began{number}")) for number in range(2))
    leaving = actor.leave.remote()
    assert manta.wait([leaving], timeout=0.2)[0] == []  # others still run
    late = actor.work.remote(go, 2)
    signs.give(go)
    assert manta.get(running, timeout=60) == [0, 1]
    for ref in (leaving, late):
        with pytest.raises(exceptions.ActorDiedError, match="exit_actor"):
            manta.get(ref, timeout=60)


def test_calls_in_flight_of_an_async_actor_finish(tmp_path):
    @manta.remote(num_cpus=0)
    class Async:
        def __init__(self):
            self.go = asyncio.Event()

        async def work(self, number):
            await self.go.wait()
            return number

        async def leave(self):
            asyncio.get_running_loop().call_later(0.05, self.go.set)
            manta.exit_actor()

    actor = Async.remote()
    running = [actor.work.remote(number) for number in range(5)]
    with pytest.raises(exceptions.ActorDiedError, match="exit_actor"):
        manta.get(actor.leave.remote(), timeout=60)
    assert manta.get(running, timeout=60) == list(range(5))


def test_a_background_task_of_an_async_actor_ends_it():
    @manta.remote(num_cpus=0)
    class Async:
        async def later(self):
            asyncio.get_running_loop().create_task(self.leave())
            return 1

        async def leave(self):
            manta.exit_actor()

    actor = Async.remote()
    assert manta.get(actor.later.remote(), timeout=60) == 1
    with pytest.raises(exceptions.ActorDiedError, match="exit_actor"):
        while True:
            manta.get(actor.later.remote(), timeout=60)


def test_an_exit_in_a_constructor_is_the_end_of_the_actor():
    @manta.remote(num_cpus=0, max_restarts=0)
    class Early:
        def __init__(self, how):
            if how == "exit_actor":
                manta.exit_actor()
            sys.exit(3)

        def call(self):
            return 1

    for how, text in (("exit_actor", "exit_actor"), ("exit", "exited with status 3")):
        with pytest.raises(exceptions.ActorDiedError, match=text):
            manta.get(Early.remote(how).call.remote(), timeout=60)


def test_an_exit_in_a_task_is_a_crash_of_its_worker_and_runs_its_handlers(tmp_path):
    @manta.remote(max_retries=1)
    def leave(code):
        atexit.register(signs.give, str(tmp_path / f"atexit{os.getpid()}"))
        sys.exit(code)

    for code in (0, 7):
        with pytest.raises(exceptions.WorkerCrashedError, match=f"exited with status {code}"):
            manta.get(leave.remote(code), timeout=60)
    assert len(_said(tmp_path)) == 4  # each was started twice


def test_a_task_that_exits_in_its_callers_process_takes_nobody_along():
    @manta.remote(max_retries=0)
    def leave():
        sys.exit(3)

    @manta.remote(max_retries=0)
    def call():
        with pytest.raises(exceptions.WorkerCrashedError, match="status 3"):
            manta.get(leave.remote())
        return "lives"

    assert manta.get(call.remote(), timeout=60) == "lives"


# ---- processes of workers ----

_TREE = "import subprocess, sys, time\n" \
        "child = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n" \
        "print(child.pid, flush=True)\n" \
        "time.sleep(1000)\n"


def _start_tree():
    """A process and its child, which is in another session."""
    parent = subprocess.Popen([sys.executable, "-c", _TREE], stdout=subprocess.PIPE, text=True)
    return parent.pid, int(parent.stdout.readline())


class _Starter:
    def start(self):
        return _start_tree()

    def orphan(self):
        """One whose parent has ended already."""
        return int(subprocess.run(["sh", "-c", "sleep 1000 > /dev/null 2>&1 & echo $!"], capture_output=True, text=True,
                                  check=True).stdout)

    def pid(self):
        return os.getpid()

    def leave(self):
        manta.exit_actor()


def test_processes_end_with_the_worker_that_started_them_however_it_ends(eventually):
    for how in ("kill", "crash", "leave"):
        actor = manta.remote(num_cpus=0)(_Starter).remote()
        pids = [*manta.get(actor.start.remote(), timeout=60), manta.get(actor.orphan.remote(), timeout=60)]
        own = manta.get(actor.pid.remote(), timeout=60)
        assert all(_alive(pid) for pid in pids)
        if how == "kill":
            manta.kill(actor)
        elif how == "crash":
            os.kill(own, signal.SIGSEGV)
        else:
            actor.leave.remote()
        assert eventually(lambda pids=pids: not any(_alive(pid) for pid in pids)), how


def test_processes_of_one_worker_outlive_another():
    first, second = (manta.remote(num_cpus=0)(_Starter).remote() for _ in range(2))
    pids = [*manta.get(first.start.remote(), timeout=60), manta.get(first.orphan.remote(), timeout=60)]
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(second.leave.remote(), timeout=60)
    manta.get(manta.remote(num_cpus=0)(_Starter).remote().pid.remote(), timeout=60)
    assert all(_alive(pid) for pid in pids)
    manta.kill(first)


def test_processes_end_with_their_driver(run_script, eventually):
    for end in ("", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"):
        done = run_script(f"""
import subprocess, manta
manta.init(num_cpus=1)

@manta.remote
def start():
    return subprocess.Popen(["sleep", "1000"]).pid

print(manta.get(start.remote()), flush=True)
{end}""", check=not end)
        pid = int(done.stdout.split()[0])
        assert eventually(lambda pid=pid: not _alive(pid))


def test_a_process_that_is_detached_outlives_its_worker_and_its_driver(run_script):
    done = run_script("""
import os, subprocess, manta
manta.init(num_cpus=1)

@manta.remote
class Starter:
    def start(self):
        return subprocess.Popen(["sleep", "1000"], env={**os.environ, "MANTA_DETACHED": "1"}).pid
    def leave(self):
        manta.exit_actor()

starter = Starter.remote()
pid = manta.get(starter.start.remote())
try:
    manta.get(starter.leave.remote())
except manta.exceptions.ActorDiedError:
    pass
os.kill(pid, 0)
print(pid)
""")
    pid = int(done.stdout)
    assert _alive(pid)
    os.kill(pid, signal.SIGKILL)


# ---- cancelling ----


def _wait_in_get(folder):
    """A task that waits for another one, which does not end."""

    @manta.remote(max_retries=0)
    def child():
        signs.give(os.path.join(folder, f"child.{os.getpid()}"))
        time.sleep(1000)

    @manta.remote(max_retries=0)
    def parent():
        return manta.get(child.options(num_cpus=0.5).remote())

    return parent


def _children(folder):
    return [int(name.rpartition(".")[2]) for name in os.listdir(folder) if name.startswith("child.")]


def test_cancel_reaches_a_task_that_another_worker_owns(tmp_path, eventually):
    parent = _wait_in_get(str(tmp_path))

    @manta.remote(num_cpus=0)
    class Owner:
        def start(self):
            self.ref = parent.remote()
            return [self.ref]

    owner = Owner.remote()
    ref = manta.get(owner.start.remote(), timeout=60)[0]
    assert eventually(lambda: _children(tmp_path))
    manta.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        manta.get(ref, timeout=60)


def test_cancel_by_force_ends_the_children_too(tmp_path, eventually):
    ref = _wait_in_get(str(tmp_path)).remote()
    assert eventually(lambda: _children(tmp_path))
    manta.cancel(ref, force=True, recursive=True)
    with pytest.raises(exceptions.TaskCancelledError):
        manta.get(ref, timeout=60)
    assert eventually(lambda: not any(_alive(pid) for pid in _children(tmp_path)))


def test_a_task_that_ignores_its_cancel_has_no_result(tmp_path):
    @manta.remote(num_returns=2)
    def stubborn():
        signs.give(str(tmp_path / "began"))
        try:
            signs.wait(str(tmp_path / "never"))
        except KeyboardInterrupt:
            pass
        return b"x" * 1_000_000, manta.put(1)

    large, held = stubborn.remote()
    assert signs.wait(str(tmp_path / "began"))
    manta.cancel(large)
    for ref in (large, held):
        with pytest.raises(exceptions.TaskCancelledError):
            manta.get(ref, timeout=60)
