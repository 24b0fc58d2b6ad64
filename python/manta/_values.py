"""What the extension asks for when it reads a value that is no pickle: arrays, Arrow tables, handles."""
from __future__ import annotations

from typing import Any

_dtypes: dict[str, Any] = {}
_ndarray: Any = None
_CODES = {"b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q", "f4": "f",
          "f8": "d"}


def make_array(buffer: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """An array that looks at the buffer; without NumPy, a memoryview."""
    global _ndarray
    if _ndarray is None:
        try:
            import numpy
        except ImportError:
            return memoryview(buffer).cast(_CODES[dtype], shape)
        _ndarray = numpy.ndarray
        for name in (*_CODES, "f2", "c8", "c16"):
            _dtypes[name] = numpy.dtype(name)
    return _ndarray(shape, _dtypes[dtype], buffer)


def import_arrow(schema: Any, batches: list[tuple[Any, Any]], table: bool) -> Any:
    """Of capsules as in Arrow's PyCapsule interface."""
    import pyarrow

    made = [pyarrow.RecordBatch._import_from_c_capsule(*pair) for pair in batches]
    if not table:
        return made[0]
    return pyarrow.Table.from_batches(made, pyarrow.Schema._import_from_c_capsule(schema))


def make_actor(actor: Any) -> Any:
    """A handle that came from another language, which does not know the methods."""
    from ._actor import ActorHandle

    return ActorHandle(actor, "actor", None)
