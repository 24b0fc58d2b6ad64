"""Generators: a task or method that yields, read item by item while it runs.

A generator lives in an actor: a task's in one of its own, a method's in that of the method. The reader keeps a window
of calls on their way, each of which makes one item; so the writer is never further ahead than the window.

Each call says which item it wants. When the actor's process dies and another takes over, the generator runs again, and
what the reader has already got is made and thrown away: as with any task that is retried, its items should be the same.

A call answers with its item first and with its kind after that, so that the item of a known kind is there: a process
may die between the two answers.
"""
from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from . import _core
from ._checkpoint import STREAMS
from .exceptions import ActorDiedError

WINDOW = 16  # items on their way, unless _generator_backpressure_num_objects says otherwise
UNBOUNDED = 1000  # … and if it says -1
_END = "end"
_ITEM = "item"
_BUSY = "busy"  # a method's: other threads are at its generator, so the reader asks again
_LOST = "lost"  # a method's: the actor's process is another than the one in which it began


class StreamHost:
    """The actor of a generator task."""

    def __init__(self, published: Any, retries: int, retry: Any, /, *args: Any, **kwargs: Any) -> None:
        from . import _worker

        _core.lend_when_idle()  # while the reader has as many items as it may: it may wait for a task that needs a CPU
        code = _worker.for_good(*published)
        self._make: Callable[[], Iterator[Any]] = lambda: iter(code(*args, **kwargs))
        self._retry = retry  # exceptions after which it runs again, so often:
        self._retries = retries
        self._items: Any = None
        self._at = 0

    def next(self, number: int) -> tuple[Any, str]:
        while True:
            try:
                if self._items is None:
                    self._items = self._make()
                while self._at < number:  # these the reader has
                    next(self._items)
                    self._at += 1
                item = next(self._items)
                self._at += 1
                return item, _ITEM
            except StopIteration:
                return None, _END
            except self._retry:
                if self._retries == 0:
                    raise
                self._retries -= 1
                self._items = None
                self._at = 0


class _Stream:
    """The generator of a method. Threads of one actor may ask for its items at the same time and in any order: one of
    them runs it, one more waits, so that a slow generator does not take all threads, and others are told to ask again.
    """

    def __init__(self, make: Callable[[], Iterator[Any]], first: int, retry: Any, retries: int) -> None:
        self._make = make
        self._items = make()
        self._first = first  # the reader has those before
        self._retry = retry  # exceptions after which it runs again, so often (-1: always):
        self._retries = retries
        self._at = 0
        self._made: dict[int, Any] = {}  # for calls that were overtaken
        self._end: int | None = None
        self._error: BaseException | None = None
        self._running = threading.Lock()
        self._seat = threading.Lock()  # of the call that waits

    def step(self, number: int) -> tuple[Any, str]:
        if not self._running.acquire(blocking=False):
            if not self._seat.acquire(blocking=False):
                return None, _BUSY
            try:
                self._running.acquire()
            finally:
                self._seat.release()
        try:
            return self._take(number)
        finally:
            self._running.release()

    def _take(self, number: int) -> tuple[Any, str]:
        if number in self._made:
            return self._made.pop(number), _ITEM
        while self._end is None:
            try:
                item = next(self._items)
            except StopIteration:
                self._end = self._at
            except BaseException as problem:
                if isinstance(problem, self._retry) and self._retries != 0:
                    self._retries -= 1
                    self._again()
                else:
                    self._end, self._error = self._at, problem
            else:
                self._at += 1
                if self._at > number:
                    return item, _ITEM
                if self._at > self._first:
                    self._made[self._at - 1] = item
        if self._error is not None and number == self._end:
            raise self._error
        return None, _END

    def _again(self) -> None:
        self._items = itertools.islice(self._make(), self._at, None)


def _open(actor: Any, stream: str, made: Any) -> None:
    actor.__dict__.setdefault(STREAMS, {})[stream] = made


def _find(actor: Any, stream: str, again: bool) -> Any:
    found = actor.__dict__.get(STREAMS, {}).get(stream)
    if found is None and not again:
        raise ActorDiedError("the actor was started anew, and its generator went with the old process; set "
                             "max_task_retries to have it run again")
    return found


def _start(actor: Any, stream: str, first: int, retry: Any, retries: int, name: str, /, *args: Any,
           **kwargs: Any) -> None:
    _open(actor, stream, _Stream(lambda: iter(getattr(actor, name)(*args, **kwargs)), first, retry, retries))


def _step(actor: Any, stream: str, number: int, again: bool, _: None) -> tuple[Any, str]:
    found = _find(actor, stream, again)
    return (None, _LOST) if found is None else found.step(number)  # type: ignore[no-any-return]


async def _start_async(actor: Any, stream: str, _: int, retry: Any, retries: int, name: str, /, *args: Any,
                       **kwargs: Any) -> None:
    import asyncio

    def make() -> Any:
        return getattr(actor, name)(*args, **kwargs)

    _open(actor, stream, [make(), 0, asyncio.Lock(), make, retry, retries])


async def _step_async(actor: Any, stream: str, number: int, again: bool, _: None) -> tuple[Any, str]:
    found = _find(actor, stream, again)
    if found is None:
        return None, _LOST
    async with found[2]:  # calls of one reader are begun in order, and each must wait for the one before
        while True:
            try:
                while found[1] < number:
                    await found[0].__anext__()
                    found[1] += 1
                item = await found[0].__anext__()
            except StopAsyncIteration:
                return None, _END
            except found[4]:
                if found[5] == 0:
                    raise
                found[0], found[1] = found[3](), 0
                found[5] -= 1
                continue
            found[1] += 1
            return item, _ITEM


def _drop(actor: Any, stream: str) -> None:
    actor.__dict__.get(STREAMS, {}).pop(stream, None)


def _ready(_: Any) -> bool:
    return True  # its constructor has run


def _terminate(_: Any) -> None:
    from ._actor import exit_actor

    exit_actor()


def _call(actor: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    return function(actor, *args, **kwargs)


METHODS = {"__manta_ready__": _ready, "__manta_call__": _call, "__manta_terminate__": _terminate,
           "__manta_start__": _start, "__manta_step__": _step, "__manta_drop__": _drop,
           "__manta_start_async__": _start_async, "__manta_step_async__": _step_async}


class ObjectRefGenerator:
    """Yields an ObjectRef for each item, as soon as the item is there."""

    _manta_generator = True  # get returns it as it is

    def __init__(self, step: Any, window: int, keep: Any, restart: Any, close: Any) -> None:
        self._step = step  # of the item's number: two refs, of the item and of its kind, which is answered last
        self._keep = keep
        self._restart = restart
        self._close = close
        self._over = False
        self._read: list[Any] = []  # by completed
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
        return self._read.pop(0) if self._read else self._receive()  # type: ignore[no-any-return]

    def _receive(self) -> _core.ObjectRef[Any]:
        while not self._over:
            value, kind = self._calls.pop(0)
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
            self._restart(self._next)
            self._ask(window)
        elif what == _BUSY:
            self._calls.insert(0, self._step(self._next - len(self._calls) - 1))
        else:
            self._ask(1)
        return what == _ITEM

    def pending(self) -> _core.ObjectRef[Any] | None:
        """Ready when ``next`` would return or raise at once; None: it would raise StopIteration."""
        if self._read:
            return self._read[0]  # type: ignore[no-any-return]
        return None if self._over else self._calls[0][1]

    def next_ready(self) -> bool:
        """Would ``next`` return or raise at once?"""
        pending = self.pending()
        return pending is None or pending.is_ready()

    def is_finished(self) -> bool:
        """Has everything been read?"""
        return self._over and not self._read

    def completed(self) -> _core.ObjectRef[Any]:
        """Receives all items, which ``next`` gives afterwards. The Ref that it returns is ready: the task has ended."""
        while not self._over:
            try:
                self._read.append(self._receive())
            except StopIteration:
                break
        return _core.put(None)

    def __aiter__(self) -> ObjectRefGenerator:
        return self

    async def __anext__(self) -> _core.ObjectRef[Any]:
        if self._read:
            return self._read.pop(0)  # type: ignore[no-any-return]
        while not self._over:
            value, kind = self._calls.pop(0)
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
    published = plain._published(_surroundings.of_options(options), _surroundings.environment(options))
    handle = host.remote(published, retries,
                         Exception if retry is True else tuple(retry or ()), *args, **kwargs)
    step = handle.next.options(num_returns=2).remote
    return ObjectRefGenerator(step, _window(options), handle, None, None)


def _window(options: Mapping[str, Any]) -> int:
    asked = options.get("_generator_backpressure_num_objects", WINDOW)
    return UNBOUNDED if asked == -1 else int(asked)


def start_method(handle: Any, name: str, options: dict[str, Any], again: bool, args: Any,
                 kwargs: Any) -> ObjectRefGenerator:
    """`again`: its actor, or it itself, is retried."""
    is_async = options.get("_async", False)
    retries = {key: options[key] for key in ("max_task_retries",) if key in options}
    start = (handle.__manta_start_async__ if is_async else handle.__manta_start__).options(**retries).remote
    step = (handle.__manta_step_async__ if is_async else handle.__manta_step__).options(num_returns=2, **retries).remote

    retry = options.get("retry_exceptions", False)
    retry = Exception if retry is True else tuple(retry or ())
    tries = options.get("max_task_retries", handle._actor.retries())
    # Its name in the actor, another one each time that it is begun: calls for items of a stream that was lost with its
    # process may still be on their way, and must not take items of the next one. And the Ref of its start, which the
    # items' calls wait for: threads may overtake each other.
    stream, started = "", None

    def begin(first: int) -> None:
        nonlocal stream, started
        stream = os.urandom(16).hex()
        started = start(stream, first, retry, tries, name, *args, **kwargs)

    begin(0)
    return ObjectRefGenerator(lambda number: step(stream, number, again, started), _window(options), handle, begin,
                              lambda: handle.__manta_drop__.remote(stream))
