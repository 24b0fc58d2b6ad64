"""Record batches and tables of pyarrow: read in place, in Python and in C++. Run in an environment that has pyarrow."""
import os

import pytest

import manta
from manta import cross_language

pa = pytest.importorskip("pyarrow")

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(manta.__file__))), "tests")

pytestmark = pytest.mark.usefixtures("cluster")


def in_store(buffer):
    """Is it memory that is shared with other processes, and not this process's own?"""
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, _, end = line.split()[0].partition("-")
            if int(begin, 16) <= buffer.address < int(end, 16):
                return line.split()[1].endswith("s")
    return False


@pytest.fixture(scope="module")
def native():
    return cross_language.load_library(os.path.join(FOLDER, "libmanta_python_native.so"))


def large_batch():
    return pa.record_batch({"n": pa.array(range(100_000)), "text": pa.array([f"row {i}" for i in range(100_000)])})


def test_a_batch_is_read_in_place():
    batch = large_batch()
    back = manta.get(manta.put(batch))
    assert isinstance(back, pa.RecordBatch) and back.equals(batch) and back.schema == batch.schema
    assert in_store(back.column(0).buffers()[1]) and in_store(back.column(1).buffers()[2])
    back.validate(full=True)


def test_a_table_of_several_batches_is_read_in_place():
    table = pa.Table.from_batches([large_batch(), large_batch().slice(10, 1000)])
    back = manta.get(manta.put(table))
    assert isinstance(back, pa.Table) and back.equals(table)
    assert in_store(back.column("n").chunk(0).buffers()[1])
    assert back.column("n").num_chunks == 2


def test_tables_inside_values_are_read_in_place():
    table = pa.table({"n": range(100_000)})
    back = manta.get(manta.put({"table": table, "other": 1}))["table"]
    assert back.equals(table) and in_store(back.column("n").chunk(0).buffers()[1])


@pytest.mark.parametrize("array", [
    pa.array([1, None, 3]), pa.array([True, None, False]), pa.array(["a", None, "ccc"]), pa.array([b"x", b""]),
    pa.array([[1, 2], None, []]), pa.array([{"x": 1, "y": "a"}, None]), pa.array([1.5, None], pa.float32()),
    pa.array(["a", "b", "a"]).dictionary_encode(), pa.array([1, 2, 3]).slice(1), pa.nulls(3), pa.array([], pa.string()),
    pa.array(["x"] * 3, pa.large_string()), pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
    pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64())), pa.array([1, 2], pa.timestamp("us", "UTC")),
    pa.array([1, None], pa.date32()), pa.array([b"abcd"], pa.binary(4)), pa.array([None, 1], pa.uint8()),
    pa.array(["long enough for a view", "s"], pa.string_view()), pa.array([1, 2], pa.decimal128(10, 2)),
    pa.array([[1], [2, 3]], pa.large_list(pa.int64())),
    pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
    pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()),
                             [pa.array([1]), pa.array(["b"])]),
    pa.array([1, 1, 2]).cast(pa.int64()), pa.RunEndEncodedArray.from_arrays([2, 3], [10, 20]),
], ids=lambda array: str(array.type))
def test_every_type_comes_back(array):
    schema = pa.schema([pa.field("c", array.type, metadata={"unit": "m"})], metadata={"made": "here"})
    batch = pa.record_batch([array], schema=schema)
    back = manta.get(manta.put(batch))
    back.validate(full=True)
    assert back.schema.equals(schema, check_metadata=True)
    assert back.column(0).to_pylist() == array.to_pylist()


def test_empty_tables():
    table = pa.table({"a": pa.array([], pa.int32()), "b": pa.array([], pa.list_(pa.string()))})
    assert manta.get(manta.put(table)).equals(table)
    none = pa.Table.from_batches([], schema=pa.schema([("x", pa.int8())]))
    assert manta.get(manta.put(none)).schema == none.schema


def test_tasks_take_and_give_them():
    @manta.remote
    def head(table, rows):
        return table.slice(0, rows)

    assert manta.get(head.remote(pa.table({"n": range(1000)}), 3)).to_pydict() == {"n": [0, 1, 2]}


def test_the_memory_stays_as_long_as_a_column():
    column = manta.get(manta.put(large_batch())).column(0)
    others = [manta.put(large_batch()) for _ in range(3)]
    assert column[99_999].as_py() == 99_999 and len(others) == 3


def test_cpp_reads_a_batch_of_python_in_place(native):
    batch = large_batch()
    ref = manta.put(batch)
    assert manta.get(native.FirstColumn.remote(ref)) == (sum(range(100_000)), True)
    assert manta.get(native.RowsOf.remote(manta.put(pa.Table.from_batches([batch, batch])))) == 200_000


def test_python_reads_a_batch_of_cpp_in_place(native):
    batch = manta.get(native.Numbers.remote(50_000))
    assert isinstance(batch, pa.RecordBatch) and batch.column_names == ["n"]
    assert batch.column(0).to_pylist() == list(range(50_000)) and in_store(batch.column(0).buffers()[1])
    assert manta.get(native.Numbers.remote(0)).num_rows == 0
