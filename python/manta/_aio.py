"""ObjectRefs in asyncio: ``await ref``. One thread waits for all awaited refs of the process and wakes their loops."""
from __future__ import annotations

import threading
from collections.abc import Generator
from typing import Any

from . import _core

_lock = threading.Lock()
_wake = threading.Condition(_lock)
_new: list[tuple[_core.ObjectRef[Any], Any, Any]] = []
_thread: threading.Thread | None = None


def await_ref(ref: _core.ObjectRef[Any]) -> Generator[Any, None, Any]:
    """What ``ObjectRef.__await__`` returns."""
    if not ref.is_ready():
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()
        _watch(ref, loop, future)
        yield from future.__await__()
    return _core.get(ref)


def _watch(ref: _core.ObjectRef[Any], loop: Any, future: Any) -> None:
    global _thread
    with _wake:
        _new.append((ref, loop, future))
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_run, name="manta-await", daemon=True)
            _thread.start()
        _wake.notify()


def _done(future: Any) -> None:
    if not future.done():
        future.set_result(None)


def _run() -> None:
    waiting: dict[Any, list[tuple[Any, Any]]] = {}
    while True:
        with _wake:
            while not _new and not waiting:
                _wake.wait()
            for ref, loop, future in _new:
                waiting.setdefault(ref, []).append((loop, future))
            _new.clear()
        refs = list(waiting)
        try:
            # One of them, or a moment: then those that came meanwhile are looked at, too.
            # What another node has is ready when it is here: the loop must not stand still for it.
            if _core.wait(refs, 1, 0.001, True)[0]:
                ready = _core.wait(refs, len(refs), 0, True)[0]
            else:
                ready = []
        except Exception:  # the cluster is gone: get will say so
            ready = refs
        for ref in ready:
            for loop, future in waiting.pop(ref):
                try:
                    loop.call_soon_threadsafe(_done, future)
                except RuntimeError:  # the loop was closed
                    pass
        del refs, ready
