"""Functions and classes are pickled once, put once, and named by the id of that object in every call.

They stay published as long as the cluster lives: a call that waits in a queue names its function and does not hold it.
"""
from __future__ import annotations

import threading
from typing import Any

from . import _core

_lock = threading.RLock()
_published: dict[bytes, _core.ObjectRef[Any]] = {}
_session = 0
_loaded: dict[int, tuple[Any, _core.ObjectRef[Any]]] = {}  # by id() of what was unpickled here, which this keeps alive
_busy = threading.local()


def publish(thing: Any, details: dict[str, Any]) -> _core.ObjectRef[Any]:
    """The object that holds both, pickled."""
    global _session
    if not details:
        known = _loaded.get(id(thing))
        if known is not None:
            return known[1]
    with _lock:
        if _session != _core.session():
            _published.clear()
            _session = _core.session()
        before: frozenset[int] = getattr(_busy, "things", frozenset())
        _busy.things = before | {id(thing)}
        try:
            return _core.publish((thing, details), _published, _digest)
        finally:
            _busy.things = before


def being_published(thing: Any) -> bool:
    """Is this thread pickling it just now? Then it must go by value, or the recursion would not end."""
    return id(thing) in getattr(_busy, "things", ())


def note_loaded(thing: Any, ref: _core.ObjectRef[Any]) -> None:
    """A function that calls itself by its remote name need not be published again by every worker."""
    _loaded[id(thing)] = (thing, ref)


def _digest(data: bytes) -> bytes:
    import hashlib

    return hashlib.blake2b(data, digest_size=16).digest()
