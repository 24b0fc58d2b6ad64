"""Concurrency groups: an actor whose methods run in several groups, each with its own bound.

Such an actor has an event loop (_async_actor.py). Plain methods run in threads of their group, coroutines on the loop,
as many at a time as the group allows; a group that is full holds up nobody else.
"""
from __future__ import annotations

import functools
from typing import Any

from . import _kinds

DEFAULT = "_default"  # of methods that name none
CLAIMED = 1000  # calls that the process takes in, and holds until their group has room
_METHOD = "__manta_method__"


class Host:
    """Stands for the user's object in the worker: its methods are coroutines that wait for their group."""

    def __init__(self, thing: Any, groups: dict[str, int]) -> None:
        self._object = thing
        self._sizes = groups
        self._threads: dict[str, Any] = {}
        self._rooms: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._object, name)
        return self.in_group(name, getattr(method, _METHOD, {}).get("concurrency_group", DEFAULT))

    def in_group(self, name: str, group: str) -> Any:
        method = getattr(self._object, name)
        if _kinds.is_coroutine(method):
            return functools.partial(self._await, method, group)
        return functools.partial(self._call, method, group)

    async def _await(self, method: Any, group: str, /, *args: Any, **kwargs: Any) -> Any:
        import asyncio

        room = self._rooms.get(group)
        if room is None:
            room = self._rooms[group] = asyncio.Semaphore(self._sizes[group])
        async with room:
            return await method(*args, **kwargs)

    async def _call(self, method: Any, group: str, /, *args: Any, **kwargs: Any) -> Any:
        import asyncio

        threads = self._threads.get(group)
        if threads is None:
            from concurrent.futures import ThreadPoolExecutor

            threads = self._threads[group] = ThreadPoolExecutor(self._sizes[group], f"manta-{group}")
        return await asyncio.get_running_loop().run_in_executor(
            threads, functools.partial(method, *args, **kwargs))


def hosted(make: Any, groups: dict[str, int]) -> Any:
    """A class, or what stands for it, whose objects are Hosts."""

    def create(*args: Any, **kwargs: Any) -> Host:
        return Host(make(*args, **kwargs), groups)

    return create
