"""Python calls C++ of a library by name (native.cc), C++ calls Python by module and name (caller.cc)."""
import os
import subprocess

import pytest

import manta
from manta import cross_language, exceptions

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(manta.__file__))), "tests")
LIBRARY = os.path.join(FOLDER, "libmanta_python_native.so")

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def native():
    return cross_language.load_library(LIBRARY)


def test_functions_with_plain_values(native):
    assert manta.get(native.Add.remote(1, 2)) == 3
    assert manta.get(native.Greet.remote("you", None)) == "hello you"
    assert manta.get(native.Greet.remote("you", 2)) == "hello you, hello you"
    assert manta.get(native.Nothing.remote()) is None
    assert manta.get(native.Grouped.remote([("a", "x"), ("b", "y"), ("a", "z")])) == {"a": ["x", "z"], "b": ["y"]}
    assert "Add" in dir(native)


@pytest.mark.parametrize("value", [None, True, False, 0, -7, 2**62, 1.5, "text ü", b"\x00\xff"])
def test_values_come_back_as_they_were(native, value):
    back = manta.get(native.Echo.remote(value))
    assert back == value and type(back) is type(value)


def test_many_calls(native):
    assert manta.get([native.Add.remote(i, 1) for i in range(1000)]) == list(range(1, 1001))


def test_arrays_are_read_in_place(native):
    numpy = pytest.importorskip("numpy")
    values = numpy.arange(1000.0)
    assert manta.get(native.Sum.remote(values)) == values.sum()
    assert manta.get(native.Sum.remote([1, 2.5])) == 3.5
    assert manta.get(native.Sum.remote(numpy.arange(5, dtype=numpy.int16))) == 10
    large = manta.put(numpy.ones(1_000_000))
    assert manta.get(native.Sum.remote(large)) == 1_000_000
    squares = manta.get(native.Squares.remote(100_000))
    assert squares.dtype == numpy.float32 and squares[7] == 49 and not squares.flags.writeable
    matrix = numpy.arange(6.0).reshape(2, 3)
    assert (manta.get(native.Transposed.remote(matrix)) == matrix.T).all()
    assert (manta.get(native.Transposed.remote(matrix.T)) == matrix).all()  # not in C order
    with pytest.raises(exceptions.TaskError, match="losing digits"):
        manta.get(native.Sum.remote(numpy.ones(3, dtype=complex)))
    assert manta.get(native.InPlace.remote(large)) and manta.get(native.InPlace.remote(numpy.ones(100_000)))
    assert not manta.get(native.InPlace.remote(numpy.ones(3)))


def test_refs(native):
    first = native.Add.remote(1, 1)
    assert manta.get(native.Add.remote(first, manta.put(40))) == 42  # waited for
    assert manta.get(native.Through.remote(first)) == 3  # the Ref itself
    inner = manta.get(native.Forward.remote(manta.put(5)))
    assert isinstance(inner, manta.ObjectRef) and manta.get(inner) == 5

    @manta.remote
    def pairs():
        return [("k", "v")]  # pickled: C++ gets what is in it

    assert manta.get(native.Grouped.remote(pairs.remote())) == {"k": ["v"]}

    @manta.remote
    def more(x):
        return x + 1

    assert manta.get(more.remote(native.Add.remote(1, 2))) == 4


def test_several_returns(native):
    assert manta.get(native.Two.remote()) == (1, "two")
    assert manta.get(native.Two.options(num_returns=2).remote()) == [1, "two"]
    with pytest.raises(ValueError, match="num_returns=3"):
        native.Two.options(num_returns=3)


def test_errors_say_what_is_wrong(native):
    with pytest.raises(exceptions.TaskError, match="std::out_of_range: too far"):
        manta.get(native.Fails.remote("too far"))
    with pytest.raises(TypeError, match="takes 2 arguments, not 1"):
        native.Add.remote(1)
    with pytest.raises(TypeError, match="keyword"):
        native.Add.remote(1, b=2)
    with pytest.raises(exceptions.TaskError, match="str.* cannot be read as an integer"):
        manta.get(native.Add.remote("1", 2))
    with pytest.raises(exceptions.TaskError, match="does not fit"):
        manta.get(native.Add.remote(2**40, 2))
    with pytest.raises(TypeError, match="type object cannot be sent to another language"):
        native.Echo.remote(object())
    with pytest.raises(AttributeError, match="Hidden"):
        native.Hidden  # noqa: B018
    with pytest.raises(exceptions.NotFoundError, match="no_such"):
        cross_language.load_library("/no_such_library.so")
    with pytest.raises(ValueError, match="no library"):
        cross_language.cpp_function("Unheard")
    with pytest.raises(ValueError, match="no option"):
        native.Add.options(num_cpu=1)


def test_actors(native):
    counter = native.Counter.remote(10)
    assert [manta.get(counter.Add.remote(i)) for i in range(3)] == [10, 11, 13]
    with pytest.raises(exceptions.TaskError, match="the counter is stuck"):
        manta.get(counter.Fail.remote())
    assert manta.get(counter.Total.remote()) == 13

    @manta.remote
    def use(handle):
        return manta.get(handle.Add.remote(100))

    assert manta.get(use.remote(counter)) == 113
    with pytest.raises(AttributeError, match="Divide"):
        counter.Divide.remote(1)
    named = cross_language.cpp_actor_class("Counter", LIBRARY).options(name="native-counter").remote(1)
    assert manta.get(named.Total.remote()) == 1
    manta.kill(named)
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(named.Total.remote(), timeout=20)


def test_calls_are_in_the_timeline(native):
    manta.get(native.Add.remote(1, 2))
    assert any(event["name"] == "Add" for event in manta.timeline())


def test_a_function_is_an_argument_and_is_called_by_tasks(native):
    @manta.remote
    def apply(function, a, b):
        return manta.get(function.remote(a, b))

    assert manta.get(apply.remote(native.Add, 3, 4)) == 7
    assert manta.get(cross_language.cpp_function("Add").remote(1, 1)) == 2


def test_cpp_called_from_python_calls_python(native):
    assert manta.get(native.Root.remote(2.25), timeout=60) == 1.5


HELPERS = """
import numpy, manta

def doubled(values):
    assert isinstance(values, numpy.ndarray)
    return values * 2

def count(words):
    return {word: words.count(word) for word in words}

@manta.remote
class Tally:
    def __init__(self, start): self.value = start
    def add(self, by): self.value += by
    def total(self): return self.value

class Later:
    async def get(self): return 7

def ask(actor): return manta.get(actor.total.remote())
def fails(why): raise ValueError(why)
def thing(): return object()
def word(): return "word"
"""


def test_a_cpp_program_calls_python(tmp_path):
    pytest.importorskip("numpy")
    import sys

    (tmp_path / "helpers.py").write_text(HELPERS)
    environment = {**os.environ, "MANTA_PYTHON": sys.executable,
                   "PYTHONPATH": os.pathsep.join([str(tmp_path), os.path.dirname(FOLDER)])}
    program = os.path.join(FOLDER, "manta_python_caller")
    done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "sqrt 1.5", "doubled 3000", "count 2 1", "tally 15", "passed 15", "async 7", "error 1", "unplain 1",
        "type a value of another language (str) cannot be read as an integer", "missing 1"], done.stdout + done.stderr
