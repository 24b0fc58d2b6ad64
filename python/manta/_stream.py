"""Generators: a task or method that yields, read item by item while it runs.

A generator lives in an actor: a task's in one of its own, a method's in that of the method. The reader keeps a window
of calls on their way, each of which makes one item; so the writer is never further ahead than the window.

Each call says which item it wants. When the actor's process dies and another takes over, the generator runs again, and
what the reader has already got is made and thrown away: as with any task that is retried, its items should be the same.
"""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from . import _core
from ._checkpoint import STREAMS
from .exceptions import ActorDiedError

WINDOW = 16  # items on their way, unless _generator_backpressure_num_objects says otherwise
_END = "end"
_ITEM = "item"
_LOST = "lost"  # a method's: the actor's process is another than the one in which it began


class StreamHost:
    """The actor of a generator task."""

    def __init__(self, published: Any, retries: int, retry: Any, /, *args: Any, **kwargs: Any) -> None:
        from . import _worker

        code = _worker.for_good(*published)
        self._make: Callable[[], Iterator[Any]] = lambda: iter(code(*args, **kwargs))
        self._retry = retry  # exceptions after which it runs again, so often:
        self._retries = retries
        self._items: Any = None
        self._at = 0

    def next(self, number: int) -> tuple[str, Any]:
        while True:
            try:
                if self._items is None:
                    self._items = self._make()
                while self._at < number:  # these the reader has
                    next(self._items)
                    self._at += 1
                item = next(self._items)
                self._at += 1
                return _ITEM, item
            except StopIteration:
                return _END, None
            except self._retry:
                if self._retries == 0:
                    raise
                self._retries -= 1
                self._items = None
                self._at = 0


def _open(actor: Any, stream: str, make: Any) -> None:
    actor.__dict__.setdefault(STREAMS, {})[stream] = [make(), 0]


def _find(actor: Any, stream: str, again: bool) -> Any:
    found = actor.__dict__.get(STREAMS, {}).get(stream)
    if found is None and not again:
        raise ActorDiedError("the actor was started anew, and its generator went with the old process; set "
                             "max_task_retries to have it run again")
    return found


def _start(actor: Any, stream: str, name: str, /, *args: Any, **kwargs: Any) -> None:
    _open(actor, stream, lambda: iter(getattr(actor, name)(*args, **kwargs)))


def _step(actor: Any, stream: str, number: int, again: bool) -> tuple[str, Any]:
    found = _find(actor, stream, again)
    if found is None:
        return _LOST, None
    try:
        while found[1] < number:
            next(found[0])
            found[1] += 1
        item = next(found[0])
    except StopIteration:
        return _END, None
    found[1] += 1
    return _ITEM, item


async def _start_async(actor: Any, stream: str, name: str, /, *args: Any, **kwargs: Any) -> None:
    import asyncio

    _open(actor, stream, lambda: getattr(actor, name)(*args, **kwargs))
    actor.__dict__[STREAMS][stream].append(asyncio.Lock())


async def _step_async(actor: Any, stream: str, number: int, again: bool) -> tuple[str, Any]:
    found = _find(actor, stream, again)
    if found is None:
        return _LOST, None
    async with found[2]:  # calls of one reader are begun in order, and each must wait for the one before
        try:
            while found[1] < number:
                await found[0].__anext__()
                found[1] += 1
            item = await found[0].__anext__()
        except StopAsyncIteration:
            return _END, None
        found[1] += 1
        return _ITEM, item


def _drop(actor: Any, stream: str) -> None:
    actor.__dict__.get(STREAMS, {}).pop(stream, None)


def _ready(_: Any) -> bool:
    return True  # its constructor has run


def _terminate(_: Any) -> None:
    from ._actor import exit_actor

    exit_actor()


METHODS = {"__manta_ready__": _ready, "__manta_terminate__": _terminate,
           "__manta_start__": _start, "__manta_step__": _step, "__manta_drop__": _drop,
           "__manta_start_async__": _start_async, "__manta_step_async__": _step_async}


class ObjectRefGenerator:
    """Yields an ObjectRef for each item, as soon as the item is there."""

    def __init__(self, step: Any, window: int, keep: Any, restart: Any, close: Any) -> None:
        self._step = step  # of the item's number: two refs, of what kind it is and of the item
        self._keep = keep
        self._restart = restart
        self._close = close
        self._over = False
        self._next = 0  # number of the item that is asked for next
        self._calls: list[Any] = []
        self._ask(window)

    def _ask(self, count: int) -> None:
        for _ in range(count):
            self._calls.append(self._step(self._next))
            self._next += 1

    def __iter__(self) -> ObjectRefGenerator:
        return self

    def __next__(self) -> _core.ObjectRef[Any]:
        while not self._over:
            kind, value = self._calls.pop(0)
            try:
                what = _core.get(kind)
            except Exception:
                self.close()
                return value  # type: ignore[no-any-return]  # whose get raises the same
            if self._take(what):
                return value  # type: ignore[no-any-return]
        raise StopIteration

    def _take(self, what: str) -> bool:
        """Is it an item?"""
        if what == _END:
            self.close()
        elif what == _LOST:
            window = len(self._calls) + 1
            self._next -= window
            self._calls.clear()
            self._restart()
            self._ask(window)
        else:
            self._ask(1)
        return what == _ITEM

    def pending(self) -> _core.ObjectRef[Any] | None:
        """Ready when ``next`` would return or raise at once; None: it would raise StopIteration."""
        return None if self._over else self._calls[0][0]

    def __aiter__(self) -> ObjectRefGenerator:
        return self

    async def __anext__(self) -> _core.ObjectRef[Any]:
        while not self._over:
            kind, value = self._calls.pop(0)
            try:
                what = await kind
            except Exception:
                self.close()
                return value  # type: ignore[no-any-return]
            if self._take(what):
                return value  # type: ignore[no-any-return]
        raise StopAsyncIteration

    def close(self) -> None:
        """Ends the generator; the items already taken stay."""
        if self._over:
            return
        self._over = True
        self._calls.clear()
        if self._close is not None:
            self._close()
        self._keep = None

    def __reduce__(self) -> Any:
        raise TypeError("a running generator cannot be sent: send the ObjectRefs that it gives")


class DynamicObjectRefGenerator:
    """What ``get`` gives for num_returns="dynamic": the refs of all items."""

    def __init__(self, refs: list[_core.ObjectRef[Any]]) -> None:
        self._refs = refs

    def __iter__(self) -> Iterator[_core.ObjectRef[Any]]:
        return iter(self._refs)

    def __len__(self) -> int:
        return len(self._refs)


def start_task(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ObjectRefGenerator:
    from . import _surroundings
    from ._actor import ActorClass

    options = _surroundings.inherited(function._options)
    plain = function.options()
    plain._options = {key: value for key, value in options.items() if key not in ("num_returns", "retry_exceptions")}
    own = ("num_cpus", "num_gpus", "memory", "resources", "scheduling_strategy", "label_selector")
    retries = options.get("max_retries", 3)
    retry = options.get("retry_exceptions", False)
    # An unanswered call is sent again to every new process: how many of those there are is the bound. Items are asked
    # for by number, so nothing needs to be repeated.
    host = ActorClass(StreamHost, {"num_cpus": 1, **{key: options[key] for key in own if key in options},
                                   "max_restarts": retries, "max_task_retries": -1, "replay": False})
    host._name = options.get("name", function._name)
    handle = host.remote(plain._published(_surroundings.of_options(options)), retries,
                         Exception if retry is True else tuple(retry or ()), *args, **kwargs)
    step = handle.next.options(num_returns=2).remote
    return ObjectRefGenerator(step, options.get("_generator_backpressure_num_objects", WINDOW), handle, None, None)


def start_method(handle: Any, name: str, options: dict[str, Any], again: bool, args: Any,
                 kwargs: Any) -> ObjectRefGenerator:
    """`again`: its actor, or it itself, is retried."""
    stream = os.urandom(16).hex()
    is_async = options.get("_async", False)
    retries = {key: options[key] for key in ("max_task_retries",) if key in options}
    start = (handle.__manta_start_async__ if is_async else handle.__manta_start__).options(**retries).remote
    step = (handle.__manta_step_async__ if is_async else handle.__manta_step__).options(num_returns=2, **retries).remote

    def begin() -> None:
        start(stream, name, *args, **kwargs)

    begin()
    return ObjectRefGenerator(lambda number: step(stream, number, again),
                              options.get("_generator_backpressure_num_objects", WINDOW), handle, begin,
                              lambda: handle.__manta_drop__.remote(stream))
