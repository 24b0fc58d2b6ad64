"""Values in shared memory."""
import sys

import pytest

import manta

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.usefixtures("cluster")


def test_an_array_is_read_in_place_and_read_only():
    array = np.arange(1_000_000, dtype=np.float64)
    ref = manta.put(array)
    one, two = manta.get(ref), manta.get(ref)
    assert np.array_equal(one, array) and not one.flags.writeable
    assert one.__array_interface__["data"][0] == two.__array_interface__["data"][0]
    assert one.__array_interface__["data"][0] % 64 == 0
    with pytest.raises(ValueError):
        one[0] = 1


def test_an_array_outlives_its_ref():
    array = manta.get(manta.put(np.ones(100_000)))
    for _ in range(20):
        manta.put(np.zeros(100_000))
    assert array.sum() == 100_000


def test_small_arrays_and_odd_ones():
    @manta.remote
    def echo(x):
        return x

    for array in (np.zeros(0), np.arange(3), np.arange(12).reshape(3, 4)[:, ::2], np.asfortranarray(np.ones((3, 4))),
                  np.array(["a", "bc"]), np.array([{"o": 1}], dtype=object), np.float32(2.5), np.zeros((2, 0, 3))):
        back = manta.get(echo.remote(array))
        assert np.array_equal(back, array)
        assert np.array_equal(manta.get(manta.put(array)), array)


def test_arrays_inside_values_and_many_buffers():
    value = {"a": [np.full(5000, i) for i in range(20)], "b": np.arange(10), "c": bytearray(b"xyz" * 10_000)}
    back = manta.get(manta.put(value))
    assert all(np.array_equal(x, y) for x, y in zip(back["a"], value["a"], strict=True)) and back["c"] == value["c"]


def test_a_task_reads_and_returns_arrays():
    @manta.remote
    def double(a):
        assert not a.flags.writeable
        return a * 2

    array = np.arange(300_000)
    assert np.array_equal(manta.get(double.remote(manta.put(array))), array * 2)
    assert np.array_equal(manta.get(double.remote(array)), array * 2)


def test_a_hundred_megabytes():
    array = np.random.default_rng(1).integers(0, 255, 100_000_000, dtype=np.uint8)
    back = manta.get(manta.put(array))
    assert np.array_equal(array[::1_000_003], back[::1_000_003]) and back.nbytes == array.nbytes


def test_put_of_a_ref_is_refused():
    with pytest.raises(TypeError):
        manta.put(manta.put(1))


def test_a_serializer_of_the_users():
    class Handle:
        def __init__(self, fd):
            self.fd = fd

        def __reduce__(self):
            raise TypeError("a handle has no copy")

    from manta import util

    util.register_serializer(Handle, serializer=lambda h: h.fd, deserializer=lambda fd: Handle(fd))
    try:
        assert manta.get(manta.put(Handle(5))).fd == 5
    finally:
        util.deregister_serializer(Handle)
    with pytest.raises(TypeError):
        manta.put(Handle(5))


def test_values_are_copies_of_the_moment():
    data = [1]
    ref = manta.put(data)
    data.append(2)
    assert manta.get(ref) == [1]


def test_a_generator_of_numbers_cannot_be_sent():
    with pytest.raises(TypeError, match="cannot pickle"):
        manta.put(i for i in range(3))


def test_the_store_is_used_again_when_refs_go():
    for i in range(30):
        ref = manta.put(np.full(10_000_000, i % 250, dtype=np.uint8))
        assert manta.get(ref)[5] == i % 250


def test_memory_is_shared_between_processes():
    @manta.remote
    def mapping(a):
        at = a.__array_interface__["data"][0]
        for line in open("/proc/self/maps"):
            low, high = (int(x, 16) for x in line.split()[0].split("-"))
            if low <= at < high:
                return line.split()[1]

    assert manta.get(mapping.remote(np.ones(1_000_000))) == "r--s"


def test_the_reducer_of_tensors_needs_only_the_bridge_to_numpy(monkeypatch):
    """With a torch of a few lines, so that the path is run where torch is not installed."""
    import types

    numpy = pytest.importorskip("numpy")

    class Tensor:
        layout = "strided"
        is_quantized = requires_grad = False
        device = types.SimpleNamespace(type="cpu")

        def __init__(self, array):
            self.array = array
            self.dtype = array.dtype

        def detach(self):
            return self

        resolve_conj = resolve_neg = contiguous = detach

        def numpy(self):
            return self.array

    torch = types.ModuleType("torch")
    torch.Tensor, torch.strided, torch.bfloat16, torch.from_numpy = Tensor, "strided", "bfloat16", Tensor
    monkeypatch.setitem(sys.modules, "torch", torch)
    back = manta.get(manta.put([Tensor(numpy.arange(100_000.0))]))[0]
    assert isinstance(back, Tensor) and back.array[-1] == 99_999 and not back.array.flags.writeable


def test_a_ref_is_a_future_of_concurrent_futures():
    import asyncio
    import concurrent.futures

    @manta.remote
    def work(x):
        if x < 0:
            raise ValueError("negative")
        return x * 2

    refs = [work.remote(i) for i in range(5)]
    futures = [ref.future() for ref in refs]
    assert all(isinstance(future, concurrent.futures.Future) for future in futures)
    done, rest = concurrent.futures.wait(futures, timeout=60)
    assert not rest and sorted(future.result() for future in done) == [0, 2, 4, 6, 8]
    with pytest.raises(ValueError, match="negative"):
        work.remote(-1).future().result(timeout=60)

    async def waits():
        return await asyncio.wrap_future(work.remote(21).future())

    assert asyncio.run(waits()) == 42


def test_a_ref_has_an_id():
    ref = manta.put(1)
    assert ref.binary().hex() == ref.hex() and ref.hex() in repr(ref)


def _dumps_called(value):
    """Does put pickle it?"""
    called = False

    def look(frame, event, argument):
        nonlocal called
        called = called or (event == "call" and frame.f_code.co_name == "dumps")

    sys.setprofile(look)
    try:
        manta.put(value)
    finally:
        sys.setprofile(None)
    return called


def test_a_list_of_refs_travels_without_a_pickle_and_comes_back_as_it_was():
    refs = [manta.put(i) for i in range(1000)]
    assert not _dumps_called(refs)
    assert _dumps_called([*refs, 1])  # anything else in it, and pickle has it
    outer = manta.put([*refs, refs[0]])
    got = manta.get(outer)
    assert type(got) is list
    assert got == [*refs, refs[0]]
    assert manta.get(got) == [*range(1000), 0]


def test_refs_in_a_list_keep_their_values_alive_here_and_in_a_task():
    @manta.remote
    def total(refs):
        return sum(manta.get(refs))

    @manta.remote
    def make():
        return [manta.put(i) for i in range(300)]

    outer = manta.put([manta.put(i) for i in range(300)])
    assert manta.get(manta.get(outer)) == list(range(300))
    assert manta.get(total.remote(manta.get(outer))) == sum(range(300))
    assert manta.get(manta.get(make.remote())) == list(range(300))
