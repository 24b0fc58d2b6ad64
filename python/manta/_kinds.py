"""What kind of function it is, without the 20 ms that `inspect` takes to load."""
from __future__ import annotations

from typing import Any

_GENERATOR = 0x20  # flags of code objects, as in inspect.CO_*
_COROUTINE = 0x80
_ASYNC_GENERATOR = 0x200


def _flags(function: Any) -> int:
    for _ in range(10):  # through functools.partial and bound methods
        inner = getattr(function, "func", None) or getattr(function, "__func__", None)
        if inner is None:
            break
        function = inner
    code = getattr(function, "__code__", None)
    return int(getattr(code, "co_flags", 0))


def is_generator(function: Any) -> bool:
    return bool(_flags(function) & _GENERATOR)


def is_coroutine(function: Any) -> bool:
    return bool(_flags(function) & _COROUTINE)


def is_async_generator(function: Any) -> bool:
    return bool(_flags(function) & _ASYNC_GENERATOR)
