"""Generators: a task or method that yields, read item by item while it runs.

A generator lives in an actor: a task's in one of its own, a method's in that of the method. The reader keeps a window
of calls on their way, each of which makes one item; so the writer is never further ahead than the window.
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from . import _core

WINDOW = 16  # items on their way, unless _generator_backpressure_num_objects says otherwise
_END = "end"
_ITEM = "item"


class StreamHost:
    """The actor of a generator task."""

    def __init__(self, published: Any, args: Any, kwargs: Any) -> None:
        from . import _worker

        code = _worker.load_function(published, None)[0] if published[1] else published[0]
        self._items = iter(code(*args, **kwargs))

    def next(self) -> tuple[str, Any]:
        return _next(self._items)


def _next(items: Iterator[Any]) -> tuple[str, Any]:
    try:
        return _ITEM, next(items)
    except StopIteration:
        return _END, None


def _start(actor: Any, stream: str, name: str, args: Any, kwargs: Any) -> None:
    streams = actor.__dict__.setdefault("__manta_streams__", {})
    streams[stream] = iter(getattr(actor, name)(*args, **kwargs))


def _step(actor: Any, stream: str) -> tuple[str, Any]:
    streams = actor.__dict__["__manta_streams__"]
    out = _next(streams[stream])
    if out[0] == _END:
        streams[stream] = iter(())
    return out


async def _start_async(actor: Any, stream: str, name: str, args: Any, kwargs: Any) -> None:
    streams = actor.__dict__.setdefault("__manta_streams__", {})
    streams[stream] = getattr(actor, name)(*args, **kwargs)


async def _step_async(actor: Any, stream: str) -> tuple[str, Any]:
    import asyncio

    items = actor.__dict__["__manta_streams__"][stream]
    # Calls of one reader are begun in order, and each must wait for the one before.
    lock = actor.__dict__.setdefault("__manta_locks__", {}).setdefault(stream, asyncio.Lock())
    async with lock:
        try:
            return _ITEM, await items.__anext__()
        except StopAsyncIteration:
            return _END, None


def _drop(actor: Any, stream: str) -> None:
    actor.__dict__.get("__manta_streams__", {}).pop(stream, None)


METHODS = {"__manta_start__": _start, "__manta_step__": _step, "__manta_drop__": _drop,
           "__manta_start_async__": _start_async, "__manta_step_async__": _step_async}


class ObjectRefGenerator:
    """Yields an ObjectRef for each item, as soon as the item is there."""

    def __init__(self, step: Any, arguments: tuple[Any, ...], window: int, keep: Any, close: Any) -> None:
        self._step = step
        self._arguments = arguments
        self._keep = keep
        self._close = close
        self._over = False
        self._calls: list[Any] = [step(*arguments) for _ in range(window)]

    def __iter__(self) -> ObjectRefGenerator:
        return self

    def __next__(self) -> _core.ObjectRef[Any]:
        if self._over:
            raise StopIteration
        kind, value = self._calls.pop(0)
        try:
            ended = _core.get(kind) == _END
        except Exception:
            self.close()
            return value  # type: ignore[no-any-return]  # whose get raises the same
        return self._take(ended, value)  # type: ignore[no-any-return]

    def _take(self, ended: bool, value: Any) -> Any:
        if ended:
            self.close()
            raise StopIteration
        self._calls.append(self._step(*self._arguments))
        return value

    def __aiter__(self) -> ObjectRefGenerator:
        return self

    async def __anext__(self) -> _core.ObjectRef[Any]:
        if self._over:
            raise StopAsyncIteration
        kind, value = self._calls.pop(0)
        try:
            ended = await kind == _END
        except Exception:
            self.close()
            return value  # type: ignore[no-any-return]
        try:
            return self._take(ended, value)  # type: ignore[no-any-return]
        except StopIteration:
            raise StopAsyncIteration from None

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
    from ._actor import ActorClass

    options = function._options
    plain = function.options()
    plain._options = {key: value for key, value in options.items() if key not in ("num_returns", "retry_exceptions")}
    own = ("num_cpus", "num_gpus", "memory", "resources", "scheduling_strategy", "label_selector")
    host = ActorClass(StreamHost, {"num_cpus": 1, **{key: options[key] for key in own if key in options}})
    host._name = options.get("name", function._name)
    handle = host.remote(plain._published(), _Carried(args), _Carried(kwargs))
    step = handle.next.options(num_returns=2).remote
    return ObjectRefGenerator(step, (), options.get("_generator_backpressure_num_objects", WINDOW), handle, None)


def start_method(handle: Any, name: str, options: dict[str, Any], args: Any, kwargs: Any) -> ObjectRefGenerator:
    stream = os.urandom(16).hex()
    is_async = options.get("_async", False)
    start = handle.__manta_start_async__ if is_async else handle.__manta_start__
    start.remote(stream, name, args, kwargs)
    step = (handle.__manta_step_async__ if is_async else handle.__manta_step__).options(num_returns=2).remote
    return ObjectRefGenerator(step, (stream,), options.get("_generator_backpressure_num_objects", WINDOW), handle,
                              lambda: handle.__manta_drop__.remote(stream))


def _Carried(value: Any) -> Any:
    """Arguments of a generator may be refs, which are waited for as in any call: that is done by the host's calls."""
    if isinstance(value, dict):
        return {key: _core.get(item) if type(item) is _core.ObjectRef else item for key, item in value.items()}
    return tuple(_core.get(item) if type(item) is _core.ObjectRef else item for item in value)
