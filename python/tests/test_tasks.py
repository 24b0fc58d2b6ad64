"""Remote functions, written as users write them."""
import os
import sys

import pytest
import signs

import manta

pytestmark = pytest.mark.usefixtures("cluster")


@manta.remote
def add(a, b=10):
    return a + b


@manta.remote
def fib(n):
    if n < 2:
        return n
    return sum(manta.get([fib.remote(n - 1), fib.remote(n - 2)]))


def test_a_function_runs_in_another_process():
    @manta.remote
    def pid():
        return os.getpid()

    assert manta.get(pid.remote()) != os.getpid()


def test_positional_and_keyword_arguments_arrive():
    assert manta.get(add.remote(1)) == 11
    assert manta.get(add.remote(1, 2)) == 3
    assert manta.get(add.remote(1, b=5)) == 6
    assert manta.get(add.remote(b=5, a=7)) == 12


@pytest.mark.parametrize("value", [
    None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, 10**40, 1.5, float("inf"), "", "text", "ümläut €", "\ud800",
    b"", b"bytes\0more", (), (1, "a", (2.0, None)), tuple(range(40)), [1, [2]], {"a": (1,)}, {1, 2}, range(5), 1 + 2j,
    ((((((1,),),),),),), "x" * 100_000, b"y" * 100_000, list(range(10_000)),
])
def test_every_value_comes_back_as_it_was(value):
    @manta.remote
    def echo(x):
        return x

    back = manta.get(echo.remote(value))
    assert back == value and type(back) is type(value)
    assert manta.get(manta.put(value)) == value


def test_closures_lambdas_and_functions_made_at_run_time():
    factor = 7
    assert manta.get(manta.remote(lambda x: x * factor).remote(6)) == 42

    def outer(n):
        def inner(x):
            return x + n + factor
        return inner

    assert manta.get(manta.remote(outer(100)).remote(1)) == 108


def test_a_ref_as_argument_is_waited_for_and_its_value_passed():
    first = add.remote(1, 1)
    assert manta.get(add.remote(first, first)) == 4
    assert manta.get(add.remote(manta.put(5), b=first)) == 7


def test_a_ref_inside_a_value_stays_a_ref():
    @manta.remote
    def look(refs):
        assert isinstance(refs[0], manta.ObjectRef)
        return manta.get(refs[0]) + 1

    assert manta.get(look.remote([manta.put(41)])) == 42


def test_a_task_may_return_refs():
    @manta.remote
    def make():
        return [manta.put(i) for i in range(3)]

    assert manta.get(manta.get(make.remote())) == [0, 1, 2]


def test_tasks_start_tasks_to_any_depth():
    assert manta.get(fib.remote(10)) == 55


def test_remote_functions_that_call_each_other():
    @manta.remote
    def even(n):
        return True if n == 0 else manta.get(odd.remote(n - 1))

    @manta.remote
    def odd(n):
        return False if n == 0 else manta.get(even.remote(n - 1))

    assert manta.get(even.remote(6)) is True


def test_a_remote_function_can_be_an_argument():
    @manta.remote
    def apply(f, x):
        return manta.get(f.remote(x))

    assert manta.get(apply.remote(add, 1)) == 11


def test_several_returns():
    @manta.remote(num_returns=3)
    def three():
        return 1, "two", [3]

    a, b, c = three.remote()
    assert manta.get([a, b, c]) == [1, "two", [3]]
    assert three.options(num_returns=0).remote() is None
    with pytest.raises(ValueError, match="num_returns=2"):
        manta.get(three.options(num_returns=2).remote()[0])


def test_refs_in_several_returns_belong_to_their_own_value():
    @manta.remote(num_returns=2)
    def pair():
        return manta.put("a"), [manta.put("b")]

    a, b = pair.remote()
    got = manta.get(b)
    assert manta.get(manta.get(a)) == "a"
    del a
    assert manta.get(got[0]) == "b"


def test_many_tasks():
    assert manta.get([add.remote(i) for i in range(5000)]) == [i + 10 for i in range(5000)]


def test_get_of_a_list_keeps_order_and_get_of_nothing_is_empty():
    assert manta.get([]) == []
    refs = [add.remote(i) for i in range(5)]
    assert manta.get(refs[::-1]) == [14, 13, 12, 11, 10]


def test_get_times_out_and_the_task_goes_on(tmp_path):
    @manta.remote
    def slow():
        signs.wait(tmp_path / "go")
        return "done"

    ref = slow.remote()
    with pytest.raises(manta.exceptions.GetTimeoutError):
        manta.get(ref, timeout=0.05)
    with pytest.raises(TimeoutError):
        manta.get([ref], timeout=0)
    signs.give(tmp_path / "go")
    assert manta.get(ref, timeout=100) == "done"


def test_get_refuses_what_is_not_a_ref():
    for wrong in (1, "x", [1], (add.remote(1),)):
        with pytest.raises((TypeError, ValueError)):
            manta.get(wrong)
    with pytest.raises(ValueError, match="timeout"):
        manta.get(manta.put(1), timeout=-1)


def test_wait_gives_the_ready_ones_in_order(tmp_path):
    @manta.remote
    def wait(sign):
        return sign is None or signs.wait(sign)

    quick, slow = wait.remote(None), wait.remote(tmp_path / "go")
    ready, rest = manta.wait([slow, quick], num_returns=1, timeout=100)
    assert ready == [quick] and rest == [slow]
    ready, rest = manta.wait([slow], timeout=0.01)
    assert ready == [] and rest == [slow]
    puts = [manta.put(i) for i in range(1000)]
    assert manta.wait([slow, *puts[:3]], num_returns=2) == (puts[:2], [slow, puts[2]])
    signs.give(tmp_path / "go")
    rest = puts
    for ref in puts:
        ready, rest = manta.wait(rest)
        assert ready == [ref]
    assert rest == [] and len(puts) == 1000
    ready, rest = manta.wait([manta.put(i) for i in range(4)], num_returns=2, fetch_local=True)
    assert len(ready) == 2 and len(rest) == 2
    with pytest.raises(ValueError):
        manta.wait([quick], num_returns=2)
    with pytest.raises(ValueError, match="twice"):
        manta.wait([quick, quick])
    with pytest.raises(TypeError):
        manta.wait(quick)


def test_calling_a_remote_function_directly_says_how_to():
    with pytest.raises(TypeError, match=r"add\.remote"):
        add(1)


def test_a_ref_can_be_a_key_and_says_its_id():
    ref = manta.put(1)
    assert {ref: 1}[ref] == 1 and len(ref.hex()) == 32 and ref.hex() in repr(ref)
    assert manta.ObjectRef[int] is not None


def test_refs_to_one_object_are_equal_wherever_they_were():
    @manta.remote
    def back(refs):
        return refs

    ref = manta.put("x")
    (again,) = manta.get(back.remote([ref]))
    assert again == ref and hash(again) == hash(ref)


def test_prints_of_workers_carry_the_task(run_script):
    done = run_script("""
import manta, sys
manta.init(num_cpus=1)
@manta.remote
def talk():
    print("hello", "there")
    print("oops", file=sys.stderr)
manta.get(talk.remote())
manta.shutdown()
""")
    assert "(talk pid=" in done.stdout and ") hello there" in done.stdout
    assert ") oops" in done.stderr


def test_main_runs_once_and_what_it_defines_arrives(run_script):
    done = run_script("""
import manta
print("main runs")
class Point:
    def __init__(self, x): self.x = x
SCALE = 3
def helper(p): return Point(p.x * SCALE)
@manta.remote
def move(p): return helper(p)
p = manta.get(move.remote(Point(4)))
assert isinstance(p, Point) and p.x == 12, p
class Odd(Exception): pass
@manta.remote
def fail(): raise Odd("no")
try:
    manta.get(fail.remote())
except Odd as e:
    print("caught", type(e).__name__)
""")
    assert done.stdout.count("main runs") == 1
    assert "caught" in done.stdout


def test_modules_beside_the_script_are_found_by_workers(run_script, tmp_path):
    (tmp_path / "beside.py").write_text("def triple(x): return 3 * x\n")
    run_script("""
import manta, beside
assert manta.get(manta.remote(beside.triple).remote(5)) == 15
@manta.remote
def use(x):
    import beside
    return beside.triple(x)
assert manta.get(use.remote(2)) == 6
""")


def test_runtime_context_tells_where_code_runs():
    @manta.remote
    def tell():
        context = manta.get_runtime_context()
        return context.get_task_name(), context.get_task_id(), context.worker_mode

    name, task, mode = manta.get(tell.remote())
    assert name.endswith("tell") and len(task) == 32 and mode == "worker"
    assert manta.get_runtime_context().worker_mode == "driver"


def test_threads_of_a_driver_may_all_submit_and_get():
    from concurrent.futures import ThreadPoolExecutor

    def work(n):
        return sum(manta.get([add.remote(n, i) for i in range(200)]))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [200 * n + sum(range(200)) for n in range(8)]


def test_the_interpreter_of_a_worker_is_the_drivers():
    @manta.remote
    def where():
        return sys.prefix, sys.version, os.getcwd()

    assert manta.get(where.remote()) == (sys.prefix, sys.version, os.getcwd())


@pytest.mark.parametrize("wanted", [True, False])
def test_get_of_many_shows_progress_in_a_terminal(tmp_path, monkeypatch, wanted):
    if not wanted:
        monkeypatch.setenv("MANTA_PROGRESS", "0")
    import pty
    import subprocess

    path = tmp_path / "script.py"
    path.write_text("""
import time, manta
manta.init(num_cpus=1)
@manta.remote
def nap(): time.sleep(0.4)
manta.get([nap.remote() for _ in range(4)])
print("over")
""")
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, str(path)], stdout=subprocess.PIPE, stderr=theirs, timeout=60, check=True)
    os.close(theirs)
    os.set_blocking(ours, False)
    try:
        shown = os.read(ours, 100_000).decode()
    except OSError:  # nothing was written
        shown = ""
    os.close(ours)
    assert done.stdout == b"over\n"
    assert ("/4" in shown and shown.endswith(" \r")) if wanted else "/4" not in shown


def test_progress_shows_in_a_notebook_and_not_in_a_file(monkeypatch):
    import io

    from manta import _progress

    class Cell(io.StringIO):  # as ipykernel.iostream.OutStream: no terminal, but it knows \r
        pass

    Cell.__module__ = "ipykernel.iostream"
    monkeypatch.setattr(_progress, "_AFTER", 0.0)
    for stream, shown in ((Cell(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        _progress.show(1, 4)
        assert ("1/4" in stream.getvalue()) == shown
        _progress.show(4, 4)
        assert stream.getvalue() == "" or stream.getvalue().endswith(" \r")


def test_what_is_defined_at_a_prompt_arrives():
    """As in a notebook: __main__ has no file, and its functions and classes are found nowhere else."""
    import subprocess

    program = """
import manta
manta.init(num_cpus=2)
FACTOR = 3
class Base:
    def factor(self): return FACTOR
def helper(x): return x * FACTOR
@manta.remote
def task(x): return helper(x)
@manta.remote
class Actor(Base):
    def use(self, x): return [self.factor() * x, isinstance(self, Base)]
print(manta.get(task.remote(2)), manta.get(Actor.remote().use.remote(3)))
FACTOR = 5
@manta.remote
def task(x): return helper(x) + 1
print(manta.get(task.remote(2)))
"""
    done = subprocess.run([sys.executable], input=program, capture_output=True, text=True, timeout=100)
    assert done.stdout == "6 [9, True]\n11\n", done.stdout + done.stderr
