"""Pickling: the standard pickler where it will do, cloudpickle where it will not."""
from __future__ import annotations

import copyreg
import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

from . import _core

_MAIN = b"__main__"  # what the driver defines there, a worker has not: it goes by value
_cloudpickle: Any = None


def cloudpickle() -> Any:
    global _cloudpickle
    if _cloudpickle is None:
        import cloudpickle as module  # 30 ms that a program without remote functions need not pay

        _cloudpickle = module
    return _cloudpickle


def _by_value_asked() -> bool:
    module = _cloudpickle
    registry = getattr(module, "list_registry_pickle_by_value", None)
    return bool(registry and registry())


def dumps(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """The pickle and the buffers that lie beside it."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        if "torch" in sys.modules:
            file = io.BytesIO()
            pickler = pickle.Pickler(file, 5, buffer_callback=buffers.append)
            pickler.dispatch_table = _with_tensors(copyreg.dispatch_table)
            pickler.dump(value)
            data = file.getvalue()
        else:
            data = pickle.dumps(value, 5, buffer_callback=buffers.append)
        if _MAIN not in data and not _by_value_asked():
            return data, buffers
    except Exception:
        pass
    return _cloud_dumps(value)


def _cloud_dumps(value: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    module = cloudpickle()
    buffers: list[pickle.PickleBuffer] = []
    with io.BytesIO() as file:
        try:
            pickler = module.CloudPickler(file, protocol=5, buffer_callback=buffers.append)
            if "torch" in sys.modules:
                pickler.dispatch_table = _with_tensors(pickler.dispatch_table)
            pickler.dump(value)
        except Exception as problem:
            raise TypeError(explain(value, problem)) from problem
        return file.getvalue(), buffers


# ---- torch: a tensor in the CPU's memory travels as the array that it is, and is read in place ----


def _with_tensors(table: Any) -> Any:
    import collections

    tensor = getattr(sys.modules["torch"], "Tensor", None)  # None while it is being imported
    return collections.ChainMap({tensor: _reduce_tensor}, table) if tensor is not None else table


def _reduce_tensor(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_quantized:
        return tensor.__reduce_ex__(2)
    data = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if data.dtype is torch.bfloat16:  # which NumPy has not
        return make_tensor, (data.view(torch.int16).numpy(), "bfloat16", tensor.requires_grad)
    return make_tensor, (data.numpy(), None, tensor.requires_grad)


def make_tensor(array: Any, dtype: str | None, requires_grad: bool) -> Any:
    import warnings

    import numpy
    import torch

    guarded = _core.read_only(array)
    if guarded is not array:
        array = numpy.frombuffer(guarded, array.dtype).reshape(array.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it looks at memory that is read-only: to write, clone it
        tensor = torch.from_numpy(array)
    if dtype is not None:
        tensor = tensor.view(getattr(torch, dtype))
    return tensor.requires_grad_() if requires_grad else tensor


def dumps_plain(value: Any) -> bytes:
    """Without buffers beside it."""
    try:
        data = pickle.dumps(value, 5)
        if _MAIN not in data:
            return data
    except Exception:
        pass
    return bytes(cloudpickle().dumps(value, protocol=5))


def explain(value: Any, problem: BaseException) -> str:
    """Names the variable, attribute or item that cannot be pickled."""
    path = _culprit(value, _name_of(value), set(), 0)
    return f"cannot pickle {path or _name_of(value)}: {problem}; leave it out, or make it inside the task"


def _name_of(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    if name is None:
        return f"a value of type {type(value).__qualname__}"
    return f"class {name}" if isinstance(value, type) else f"function {name}" if callable(value) else str(name)


def _pickles(value: Any) -> bool:
    try:
        cloudpickle().dumps(value, protocol=5)
    except Exception:
        return False
    return True


def _culprit(value: Any, name: str, seen: set[int], depth: int) -> str | None:
    """The deepest part that fails on its own."""
    if depth > 6 or id(value) in seen or _pickles(value):
        return None
    seen.add(id(value))
    if hasattr(value, "__qualname__"):
        name = _name_of(value)
    for part, text in _parts(value, name):
        found = _culprit(part, text, seen, depth + 1)
        if found is not None:
            return found
    return f"{name} (a {type(value).__qualname__})"


def _parts(value: Any, name: str) -> list[tuple[Any, str]]:
    out: list[tuple[Any, str]] = []
    code = getattr(value, "__code__", None)
    if code is not None:
        for variable, cell in zip(code.co_freevars, value.__closure__ or (), strict=False):
            try:
                out.append((cell.cell_contents, f"variable '{variable}' captured by {name}"))
            except ValueError:
                continue
        for variable in code.co_names:
            if variable in value.__globals__:
                out.append((value.__globals__[variable], f"global '{variable}' used by {name}"))
        for item in value.__defaults__ or ():
            out.append((item, f"a default argument of {name}"))
    elif isinstance(value, dict):
        for key, item in value.items():
            out.append((item, f"item {key!r} of {name}"))
    elif isinstance(value, (list, tuple, set, frozenset)):
        for number, item in enumerate(value):
            out.append((item, f"item {number} of {name}"))
    elif isinstance(value, type):
        for key, item in vars(value).items():
            if not key.startswith("__") or callable(item):
                out.append((item, f"attribute '{key}' of {name}"))
    elif hasattr(value, "__dict__"):
        for key, item in vars(value).items():
            out.append((item, f"attribute '{key}' of {name}"))
    return out


def register_serializer(
    cls: type, *, serializer: Callable[[Any], Any], deserializer: Callable[[Any], Any]
) -> None:
    """Values of `cls` travel as what `serializer` makes of them."""

    def reduce(value: Any) -> tuple[Callable[[Any], Any], tuple[Any]]:
        return deserializer, (serializer(value),)

    copyreg.pickle(cls, reduce)


def deregister_serializer(cls: type) -> None:
    copyreg.dispatch_table.pop(cls, None)
