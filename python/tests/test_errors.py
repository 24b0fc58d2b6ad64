"""What goes wrong, and how it is told."""
import os
import re
import signal
import threading
import time

import pytest
import signs

import manta
from manta import exceptions

pytestmark = pytest.mark.usefixtures("cluster")


class Custom(ValueError):
    def __init__(self, code, text):
        super().__init__(code, text)
        self.code = code


@manta.remote
def raises(error):
    def deeper():
        raise error
    deeper()


def test_the_users_class_is_caught_as_itself():
    with pytest.raises(KeyError):
        manta.get(raises.remote(KeyError("k")))
    with pytest.raises(Custom) as caught:
        manta.get(raises.remote(Custom(7, "seven")))
    assert caught.value.code == 7
    assert isinstance(caught.value, exceptions.TaskError)
    assert isinstance(caught.value.__cause__, Custom) and isinstance(caught.value.cause, Custom)


def test_the_text_is_the_remote_traceback():
    with pytest.raises(exceptions.TaskError) as caught:
        manta.get(raises.remote(RuntimeError("boom")))
    text = str(caught.value)
    assert "raises() (pid=" in text and "in deeper" in text and "RuntimeError: boom" in text


def test_an_error_passes_through_tasks_that_depend_on_it():
    @manta.remote
    def use(x):
        return x

    with pytest.raises(ZeroDivisionError):
        manta.get(use.remote(use.remote(raises.remote(ZeroDivisionError("0")))))


def test_an_error_of_a_nested_get_tells_the_whole_way():
    @manta.remote
    def outer():
        return manta.get(raises.remote(IndexError("deep")))

    with pytest.raises(IndexError) as caught:
        manta.get(outer.remote())
    text = str(caught.value)
    assert "in deeper" in text and "outer() (pid=" in text and text.index("in deeper") < text.index("outer() (pid=")


def test_an_exception_that_cannot_be_pickled_still_tells_its_story():
    @manta.remote
    def fail():
        class Local(Exception):
            def __reduce__(self):
                raise RuntimeError("not me")
        raise Local("story")

    with pytest.raises(exceptions.TaskError, match="story"):
        manta.get(fail.remote())


def test_the_error_can_be_sent_on():
    @manta.remote
    def classify(error):
        return type(error).__name__, isinstance(error, KeyError)

    with pytest.raises(KeyError) as caught:
        manta.get(raises.remote(KeyError("k")))
    assert manta.get(classify.remote(caught.value)) == ("TaskError(KeyError)", True)


def test_a_crash_is_an_error_here():
    @manta.remote(max_retries=0)
    def crash():
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(exceptions.WorkerCrashedError, match="signal 9"):
        manta.get(crash.remote())


def test_a_crash_shows_the_frames_of_python_and_of_c():
    @manta.remote(max_retries=0)
    def crash_in_c():
        import ctypes

        ctypes.string_at(0)

    with pytest.raises(manta.exceptions.WorkerCrashedError) as caught:
        manta.get(crash_in_c.remote())
    text = str(caught.value)
    assert "SIGSEGV" in text
    assert re.search(r'File ".*test_errors.py", line \d+ in crash_in_c', text), text
    assert re.search(r"#\d+ manta::python::RunPython", text), text


def test_a_crash_is_retried_without_being_asked(tmp_path):
    @manta.remote
    def once(path):
        if not os.path.exists(path):
            open(path, "w").close()
            os._exit(1)
        return "second time"

    assert manta.get(once.remote(str(tmp_path / "mark"))) == "second time"


def test_what_cannot_be_pickled_is_named():
    lock = threading.Lock()

    def captures():
        return lock

    with pytest.raises(TypeError, match="variable 'lock' captured by function .*captures"):
        manta.remote(captures).remote()
    with pytest.raises(TypeError, match="item 'here' of"):
        raises.remote({"here": lock})


def test_a_queued_task_is_cancelled():
    @manta.remote(num_cpus=4)
    def hold():
        time.sleep(30)

    first = hold.remote()
    second = hold.remote()
    manta.cancel(second)
    with pytest.raises(exceptions.TaskCancelledError):
        manta.get(second, timeout=20)
    manta.cancel(first, force=True)
    with pytest.raises((exceptions.TaskCancelledError, exceptions.WorkerCrashedError)):
        manta.get(first, timeout=20)


def test_a_running_task_is_interrupted(tmp_path):
    @manta.remote
    def sleeper(path):
        open(path, "w").close()
        try:
            time.sleep(200)
        except KeyboardInterrupt:
            open(path + ".stopped", "w").close()
            raise

    mark = str(tmp_path / "mark")
    ref = sleeper.remote(mark)
    assert signs.wait(mark)
    manta.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        manta.get(ref, timeout=100)
    assert signs.wait(mark + ".stopped")

    @manta.remote
    def fine():
        return 1

    assert manta.get([fine.remote() for _ in range(20)]) == [1] * 20


def test_a_task_that_waits_for_another_is_cancelled(tmp_path):
    mark = str(tmp_path / "mark")

    @manta.remote
    def long():
        time.sleep(200)

    @manta.remote
    def waits(path):
        signs.give(path + ".begun")
        try:
            manta.get(long.options(num_cpus=2).remote())  # another class of tasks, so that it does not run in place
        except KeyboardInterrupt:
            open(path, "w").close()
            raise

    ref = waits.remote(mark)
    assert signs.wait(mark + ".begun")
    assert manta.wait([ref], timeout=0.2)[0] == []
    manta.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        manta.get(ref, timeout=100)
    assert signs.wait(mark)


def test_ctrl_c_interrupts_get(run_script):
    done = run_script("""
import manta, os, signal, threading, time
manta.init(num_cpus=1)
@manta.remote
def forever(): time.sleep(100)
ref = forever.remote()
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.time()
try:
    manta.get(ref)
except KeyboardInterrupt:
    print("interrupted after", time.time() - start < 50)
""")
    assert "interrupted after True" in done.stdout


def test_using_it_after_shutdown_says_so(run_script):
    run_script("""
import manta
manta.init(num_cpus=1)
ref = manta.put(1)
big = manta.put(b"x" * 1000000)
manta.shutdown()
assert not manta.is_initialized()
assert manta.get(ref) == 1
try:
    manta.get(big)
except manta.exceptions.MantaError as e:
    print(e)
else:
    raise SystemExit("no error")
manta.init(num_cpus=1)
@manta.remote
def f(): return 5
assert manta.get(f.remote()) == 5
manta.shutdown()
manta.init(num_cpus=1)
assert manta.get(f.remote()) == 5
try:
    manta.init()
except RuntimeError as e:
    assert "shutdown" in str(e) and isinstance(e, ValueError)
else:
    raise SystemExit("no error")
manta.init(ignore_reinit_error=True)
""")


@pytest.mark.parametrize("recursive", [True, False])
def test_cancel_reaches_what_the_task_has_started(tmp_path, recursive):
    @manta.remote(num_cpus=0)
    def leaf(path):
        signs.give(path)
        try:
            signs.wait(path + ".go")
        except KeyboardInterrupt:
            signs.give(path + ".stopped")
            raise
        signs.give(path + ".ended")

    @manta.remote(num_cpus=0)
    def middle(path):
        ref = leaf.remote(path)
        signs.wait(path + ".go")
        return ref

    @manta.remote(num_cpus=0.5)
    def root(path):
        ref = middle.remote(path)
        signs.wait(path + ".go")
        return ref

    path = str(tmp_path / "leaf")
    ref = root.remote(path)
    assert signs.wait(path)
    manta.cancel(ref, recursive=recursive)
    with pytest.raises(exceptions.TaskCancelledError):
        manta.get(ref, timeout=100)
    if recursive:
        assert signs.wait(path + ".stopped")
    signs.give(path + ".go")
    if not recursive:
        assert signs.wait(path + ".ended")
    assert signs.given(path + ".ended") == (not recursive)


def test_ctrl_c_ends_the_program_and_what_it_started(tmp_path):
    import signal
    import subprocess
    import sys

    script = tmp_path / "script.py"
    script.write_text("""
import os, sys, time, manta
manta.init(num_cpus=1)
@manta.remote
def sleeper(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)
manta.get(sleeper.remote(sys.argv[1]))
""")
    mark = tmp_path / "pid"
    driver = subprocess.Popen([sys.executable, str(script), str(mark)], stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 30
    while not (mark.exists() and mark.read_text()) and time.time() < deadline:
        time.sleep(0.01)
    worker = int(mark.read_text())
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors and driver.returncode != 0
    deadline = time.time() + 20
    while os.path.exists(f"/proc/{worker}") and time.time() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{worker}")


def test_advice_is_given_in_python():
    """What the engine advises names C++; errors.cc has the words for it. None of them is forgotten."""
    import re
    from pathlib import Path

    root = Path(__file__).resolve().parents[2]
    table = (root / "python" / "src" / "errors.cc").read_text()
    named = set()
    for path in (root / "src").rglob("*.cc"):
        if not path.stem.endswith("_test") and "fixture" not in path.parts:
            for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', path.read_text()):
                named |= set(re.findall(r"Config::\w+|manta::Init\(\)", text))
    assert len(named) > 8
    assert not {name for name in named if f'"{name}"' not in table}

    with pytest.raises(exceptions.InfeasibleError) as caught:
        manta.get(manta.remote(num_cpus=1000)(lambda: 1).remote(), timeout=60)
    assert "init(num_cpus=" in str(caught.value) and "::" not in str(caught.value)


RAY = """
RayError Exception
RayTaskError RayError
CrossLanguageError RayError
TaskCancelledError RayError
WorkerCrashedError RayError
NodeDiedError RayError
LocalRayletDiedError RayError
RaySystemError RayError
UserCodeException RayError
RayActorError RayError
ActorDiedError RayActorError
ActorUnavailableError RayActorError
ObjectLostError RayError
OwnerDiedError ObjectLostError
ObjectFetchTimedOutError ObjectLostError
ObjectFreedError ObjectLostError
ReferenceCountingAssertionError ObjectLostError
ObjectReconstructionFailedError ObjectLostError
ObjectReconstructionFailedMaxAttemptsExceededError ObjectLostError
ObjectReconstructionFailedLineageEvictedError ObjectLostError
ObjectStoreFullError RayError
OutOfDiskError RayError
OutOfMemoryError RayError
GetTimeoutError RayError
GetTimeoutError TimeoutError
AsyncioActorExit RayError
RuntimeEnvSetupError RayError
PendingCallsLimitExceeded RayError
TaskPlacementGroupRemoved RayError
ActorPlacementGroupRemoved RayError
TaskUnschedulableError RayError
ActorUnschedulableError RayError
"""


@pytest.mark.parametrize("line", RAY.split("\n")[1:-1])
def test_the_classes_are_related_as_in_ray(line):
    import builtins

    name, base = line.split()
    assert name in exceptions.__all__
    assert issubclass(getattr(exceptions, name), getattr(exceptions, base, None) or getattr(builtins, base))


@pytest.mark.parametrize("options", [{"num_cpus": 0}, {"max_task_retries": 0}, {"replay": False, "max_restarts": 1},
                                     {"max_restarts": 0}, {"max_concurrency": 2}])
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_an_actor_that_dies_in_a_call_is_an_error_of_the_actor(kind, options):
    if kind == "plain":
        @manta.remote(**options)
        class Mortal:
            def die(self):
                os._exit(3)
    else:
        @manta.remote(**options)
        class Mortal:
            async def die(self):
                os._exit(3)

    mortal = Mortal.remote()
    with pytest.raises(exceptions.ActorDiedError) as caught:
        manta.get(mortal.die.remote(), timeout=100)
    assert isinstance(caught.value, exceptions.RayActorError)
    assert "max_call_retries" not in str(caught.value)

    # As an argument of another task, and in one that waits for it.
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(manta.remote(lambda value: value).remote(mortal.die.remote()), timeout=100)
    inside = manta.remote(lambda actor: manta.get(actor.die.remote()))
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(inside.remote(mortal), timeout=100)


class Coded(Exception):
    """Its constructor wants more than the exception keeps, as that of many: pickle alone cannot bring it back."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def test_an_exception_with_a_constructor_of_its_own_is_caught_as_itself():
    class Local(Coded):
        def __init__(self, *, detail):
            super().__init__(4, "local")
            self.detail = detail

    @manta.remote
    def fails(local):
        raise Local(detail="d") if local else Coded(3, "no")

    with pytest.raises(Coded, match="no") as caught:
        manta.get(fails.remote(False))
    assert caught.value.code == 3 and caught.value.cause.args == ("no",)
    assert isinstance(caught.value, exceptions.TaskError)
    with pytest.raises(Coded, match="local") as caught:
        manta.get(fails.remote(True))
    assert caught.value.detail == "d"

    # And once more, by a task that only passes it on.
    with pytest.raises(Coded) as caught:
        manta.get(manta.remote(lambda refs: manta.get(refs[0])).remote([fails.remote(False)]))
    assert caught.value.code == 3


@manta.remote
def shout(size):
    raise ValueError("x" * size)


@manta.remote
def shout_in_place(size):
    try:
        manta.get(shout.remote(size))
    except manta.exceptions.TaskError as error:
        return str(error)


def test_a_text_of_many_megabytes_is_cut_with_a_note():
    with pytest.raises(manta.exceptions.TaskError) as caught:
        manta.get(shout.remote(32 << 20), timeout=60)
    for text in (str(caught.value), manta.get(shout_in_place.remote(32 << 20), timeout=60)):
        assert len(text) < 65536
        assert "shout() (pid=" in text and "characters were cut" in text


def test_an_exception_of_fifty_kilobytes_arrives_whole():
    with pytest.raises(ValueError) as caught:
        manta.get(shout.remote(50_000), timeout=60)
    assert str(caught.value).count("x") >= 50_000
    assert caught.value.cause.args == ("x" * 50_000,)


class OnlyBase(BaseException):
    pass


class ReadOnlyArgs(Exception):
    @property
    def args(self):
        return ("fixed",)


def raising(error):
    @manta.remote(max_retries=0)
    def task():
        raise error

    return task.remote()


def test_an_exception_that_is_only_a_base_exception_is_caught_as_itself(cluster):
    with pytest.raises(OnlyBase) as caught:
        manta.get(raising(OnlyBase("x")))
    assert isinstance(caught.value, manta.exceptions.TaskError)


def test_an_exception_with_read_only_args_is_caught_as_itself(cluster):
    with pytest.raises(ReadOnlyArgs) as caught:
        manta.get(raising(ReadOnlyArgs("x")))
    assert isinstance(caught.value.cause, ReadOnlyArgs)


def test_an_exception_group_is_caught_by_its_parts(cluster):
    seen = []
    try:
        manta.get(raising(ExceptionGroup("both", [ValueError(1), KeyError(2)])))
    except* ValueError as group:
        seen += [str(one) for one in group.exceptions]
    except* KeyError as group:
        seen += [str(one) for one in group.exceptions]
    assert seen == ["1", "2"]
