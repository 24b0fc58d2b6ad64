"""Queue: a first-in, first-out queue that tasks and actors share, under Ray's names. It lives in an actor."""
from __future__ import annotations

import asyncio
from collections.abc import Iterable
from queue import Empty, Full
from typing import Any

from .. import _core
from .._runtime import kill, remote

__all__ = ["Empty", "Full", "Queue"]


class _QueueActor:
    def __init__(self, maxsize: int) -> None:
        self._queue: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    async def put(self, items: list[Any], timeout: float | None) -> bool:
        try:
            for item in items:
                await asyncio.wait_for(self._queue.put(item), timeout)
        except TimeoutError:
            return False
        return True

    async def get(self, timeout: float | None) -> tuple[bool, Any]:
        try:
            return True, await asyncio.wait_for(self._queue.get(), timeout)
        except TimeoutError:
            return False, None

    async def put_nowait(self, items: list[Any]) -> bool:
        if self._queue.maxsize > 0 and self._queue.qsize() + len(items) > self._queue.maxsize:
            return False
        for item in items:
            self._queue.put_nowait(item)
        return True

    async def get_nowait(self, count: int) -> tuple[bool, list[Any]]:
        if self._queue.qsize() < count:
            return False, []
        return True, [self._queue.get_nowait() for _ in range(count)]

    async def qsize(self) -> int:
        return self._queue.qsize()


class Queue:
    """``Queue(maxsize=100)``; a copy sent to a task is the same queue."""

    def __init__(self, maxsize: int = 0, actor_options: dict[str, Any] | None = None) -> None:
        self.maxsize = maxsize
        # It would come back empty, and nobody would know what is missing.
        options = {"max_restarts": 0, **(actor_options or {})}
        self.actor = remote(_QueueActor).options(**options).remote(maxsize)

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        _check(timeout)
        ref = self.actor.put.remote([item], timeout) if block else self.actor.put_nowait.remote([item])
        if not _core.get(ref):
            raise Full

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        _check(timeout)
        if not block:
            return self.get_nowait_batch(1)[0]
        found, item = _core.get(self.actor.get.remote(timeout))
        if not found:
            raise Empty
        return item

    def put_nowait(self, item: Any) -> None:
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def put_nowait_batch(self, items: list[Any]) -> None:
        if not isinstance(items, Iterable):
            raise TypeError(f"put_nowait_batch takes a list of items, not {type(items).__qualname__}")
        if not _core.get(self.actor.put_nowait.remote(list(items))):
            raise Full

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        if not isinstance(num_items, int):
            raise TypeError(f"num_items={num_items!r}: it must be an int")
        if num_items < 0:
            raise ValueError(f"num_items={num_items}: it must be 0 or more")
        found, items = _core.get(self.actor.get_nowait.remote(num_items))
        if not found:
            raise Empty
        return list(items)

    async def put_async(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        _check(timeout)
        ref = self.actor.put.remote([item], timeout) if block else self.actor.put_nowait.remote([item])
        if not await ref:
            raise Full

    async def get_async(self, block: bool = True, timeout: float | None = None) -> Any:
        _check(timeout)
        if not block:
            found, items = await self.actor.get_nowait.remote(1)
            item = items[0] if found else None
        else:
            found, item = await self.actor.get.remote(timeout)
        if not found:
            raise Empty
        return item

    def qsize(self) -> int:
        return int(_core.get(self.actor.qsize.remote()))

    def size(self) -> int:
        return self.qsize()

    def __len__(self) -> int:
        return self.qsize()

    def empty(self) -> bool:
        return self.qsize() == 0

    def full(self) -> bool:
        return 0 < self.maxsize <= self.qsize()

    def shutdown(self, force: bool = False, grace_period_s: int = 5) -> None:
        """Ends the queue's actor."""
        kill(self.actor)


def _check(timeout: float | None) -> None:
    if timeout is not None and timeout < 0:
        raise ValueError("timeout must be 0 or more")
