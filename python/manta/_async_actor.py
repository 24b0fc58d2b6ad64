"""The event loop of an actor with coroutines. It runs on the worker's main thread, in turns with the engine, which
begins calls between two turns: so neither a thread nor a hand-over stands between a call and its coroutine.
"""
from __future__ import annotations

import asyncio
import contextvars
from typing import Any

from . import _core

_TURN = 0.001  # seconds that a turn may wait for something to happen: then new calls are looked for
_LOOK = 16  # turns between two looks for cancelled calls

_loop = asyncio.new_event_loop()  # this module is loaded in such actors only
asyncio.set_event_loop(_loop)
_create_task = _loop.create_task
_finish = _core.finish_async
_calls: dict[int, asyncio.Task[Any]] = {}
_turns = 0
_own: contextvars.ContextVar[int] = contextvars.ContextVar("manta_call", default=0)


def begin(coroutine: Any, number: int) -> None:
    """Called by the engine for each call of a coroutine."""
    _calls[number] = _create_task(_run(coroutine, number))


async def _run(coroutine: Any, number: int) -> None:
    _own.set(number)
    try:
        value = await coroutine
    except BaseException as problem:
        del _calls[number]
        _finish(number, None, problem)
    else:
        del _calls[number]
        _finish(number, value, None)


def own_call() -> tuple[str, str] | None:
    """The name and the id of the call whose coroutine runs."""
    number = _own.get()
    return _core.call_context(number) if number in _calls else None  # a task that it has started may outlive it


def step(wait: bool) -> bool:
    """One turn of the loop. Is anything under way after it?"""
    global _turns
    if wait:
        timer = _loop.call_later(_TURN, _loop.stop)
        _loop.run_forever()
        timer.cancel()
        _turns += 1
        if _turns % _LOOK == 0:
            for number, task in list(_calls.items()):
                if _core.is_cancelled(number):
                    task.cancel()
    else:
        _loop.call_soon(_loop.stop)
        _loop.run_forever()
    return bool(_calls) or bool(asyncio.all_tasks(_loop))
