"""ObjectRefs in asyncio: ``await ref``, and as futures: ``ref.future()``. One thread waits for all such refs of the
process, and wakes their loops or fills their futures.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from concurrent.futures import Future

_lock = threading.Lock()
_wake = threading.Condition(_lock)
_new: list[tuple[_core.ObjectRef[Any], Callable[[], object]]] = []
_thread: threading.Thread | None = None


def await_ref(ref: _core.ObjectRef[Any]) -> Generator[Any, None, Any]:
    """What ``ObjectRef.__await__`` returns."""
    if not ref.is_ready():
        import asyncio

        loop = asyncio.get_running_loop()
        future = loop.create_future()
        _watch(ref, lambda: loop.call_soon_threadsafe(_done, future))
        yield from future.__await__()
    return _core.get(ref)


def future_of(ref: _core.ObjectRef[Any]) -> Future[Any]:
    """What ``ObjectRef.future`` returns."""
    from concurrent.futures import Future

    future: Future[Any] = Future()

    def fill() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            value = _core.get(ref)
        except BaseException as problem:
            future.set_exception(problem)
        else:
            future.set_result(value)

    _watch(ref, fill)
    return future


def _watch(ref: _core.ObjectRef[Any], tell: Callable[[], object]) -> None:
    global _thread
    with _wake:
        _new.append((ref, tell))
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_run, name="manta-await", daemon=True)
            _thread.start()
        _wake.notify()


def _done(future: Any) -> None:
    if not future.done():
        future.set_result(None)


def _run() -> None:
    waiting: dict[Any, list[Callable[[], object]]] = {}
    while True:
        with _wake:
            while not _new and not waiting:
                _wake.wait()
            for ref, tell in _new:
                waiting.setdefault(ref, []).append(tell)
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
            for tell in waiting.pop(ref):
                try:
                    tell()
                except RuntimeError:  # the loop was closed
                    pass
        ref = tell = None  # type: ignore[assignment]
        del refs, ready
