"""A line that shows how far a ``get`` of many refs is: in a terminal, after a second, and gone when it is done."""
from __future__ import annotations

import os
import sys
import time

_MANY = 2
_AFTER = 1.0
_WIDTH = 30
_begun: float | None = None
_drawn = False


def show(ready: int, total: int) -> None:
    """Called by get ten times a second while it waits, and at its end with ready == total."""
    global _begun, _drawn
    if total < _MANY or os.environ.get("MANTA_PROGRESS") == "0":
        return
    if ready >= total:
        if _drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        _begun, _drawn = None, False
        return
    now = time.monotonic()
    if _begun is None:
        _begun = now
    stream = sys.stderr
    if now - _begun < _AFTER or stream is None or not stream.isatty():
        return
    filled = ready * _WIDTH // total
    stream.write(f"\r\x1b[K[{'#' * filled}{'.' * (_WIDTH - filled)}] {ready}/{total} {now - _begun:.0f} s")
    stream.flush()
    _drawn = True
