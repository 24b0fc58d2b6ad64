"""A line that shows how far a ``get`` of many refs is: in a terminal or a notebook, after a second, and gone when it is
done. MANTA_PROGRESS=0 turns it off.
"""
from __future__ import annotations

import os
import sys
import time
from typing import Any

_MANY = 2
_AFTER = 1.0
_WIDTH = 30
_begun: float | None = None
_drawn = 0  # characters


def _shows(stream: Any) -> bool:
    if stream is None:
        return False
    if type(stream).__module__.partition(".")[0] == "ipykernel":  # a notebook's cell, which knows \r
        return True
    return bool(stream.isatty())


def show(ready: int, total: int) -> None:
    """Called by get ten times a second while it waits, and at its end with ready == total."""
    global _begun, _drawn
    if total < _MANY or os.environ.get("MANTA_PROGRESS") == "0":
        return
    stream: Any = sys.stderr
    if ready >= total:
        if _drawn:
            # Blanks, not an escape sequence: notebooks know few of them.
            stream.write("\r" + " " * _drawn + "\r")
            stream.flush()
        _begun, _drawn = None, 0
        return
    now = time.monotonic()
    if _begun is None:
        _begun = now
    if now - _begun < _AFTER or not _shows(stream):
        return
    filled = ready * _WIDTH // total
    text = f"[{'#' * filled}{'.' * (_WIDTH - filled)}] {ready}/{total} {now - _begun:.0f} s"
    stream.write("\r" + text.ljust(_drawn))
    stream.flush()
    _drawn = max(_drawn, len(text))
