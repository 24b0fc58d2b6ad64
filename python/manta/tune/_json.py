"""JSON of values that are neither numbers nor text: what loggers write for them."""
from __future__ import annotations

import json
from typing import Any


def plain(value: Any) -> Any:
    """What json cannot write, as something that it can."""
    for method in ("tolist", "item"):
        if hasattr(value, method):
            try:
                return getattr(value, method)()
            except (TypeError, ValueError, RuntimeError):
                continue
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if callable(value):
        return f"<{type(value).__name__} {getattr(value, '__qualname__', repr(value))}>"
    return str(value)


def text(value: Any) -> str:
    try:
        return json.dumps(value, default=plain)
    except (TypeError, ValueError):  # keys that are no text, or a cycle
        return json.dumps(str(value))
