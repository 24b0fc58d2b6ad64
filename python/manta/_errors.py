"""How an exception travels: its text, written where it was raised, and itself, if it can be pickled."""
from __future__ import annotations

import os
import pickle
from typing import Any

from . import _core, _serialize
from .exceptions import TaskCancelledError, TaskError

_MOST_PAYLOAD = 64000  # bytes of a failure that arrive whole (manta/internal/embed.h)
_dual_classes: dict[type, type] = {}
_ARGS: Any = BaseException.args  # the slot itself: a class may have made the name a property
_OUTSIDE = (SystemExit, KeyboardInterrupt, GeneratorExit)  # these would end the reader


def describe(error: BaseException, cancelled: bool) -> tuple[str, bytes]:
    """The text for whoever gets the result, and the pickled exception (empty if it cannot be pickled)."""
    import traceback

    task, task_id, node, *_ = _core.context()
    if cancelled:
        return f"task {task} was cancelled in worker {os.getpid()}", b""
    where = f"{task}() (pid={os.getpid()}, node={node}, task={task_id[:12]})"
    # Frames of ours say nothing to a user; there are none in between, since calls start in C++.
    if isinstance(error, TaskError):
        lines = traceback.format_exception(type(error), error, error.__traceback__, chain=False)
        text = f"{str(error).rstrip()}\n\nwhich made {where} raise in turn:\n{''.join(lines[:-1])}".rstrip()
        cause: BaseException | None = error.cause
    else:
        text = f"{where} raised\n{''.join(traceback.format_exception(error)).rstrip()}"
        cause = error
    payload = b""
    try:
        payload = _travels(cause)
    except BaseException as problem:
        text += f"\n(the exception itself stays there: it cannot be pickled: {problem})"
        payload = b""
    if len(payload) > _MOST_PAYLOAD:
        text += f"\n(the exception itself stays there: it has {len(payload)} bytes, {_MOST_PAYLOAD} may travel)"
        payload = b""
    return _cut(text), payload


def _cut(text: str) -> str:
    """At most _MOST_PAYLOAD characters: the head, which says where it was raised, and the end of the traceback."""
    if len(text) <= _MOST_PAYLOAD:
        return text
    head, tail = _MOST_PAYLOAD // 4, _MOST_PAYLOAD // 2
    return f"{text[:head]}\n… ({len(text) - head - tail} characters were cut) …\n{text[-tail:]}"


def _travels(cause: BaseException | None) -> bytes:
    """The pickled exception. Those whose constructor wants other arguments than the exception keeps come apart only
    when they are unpickled: they are put together again without it.
    """
    try:
        payload = _serialize.dumps_plain(cause)
        if len(payload) > _MOST_PAYLOAD:  # it stays here anyway
            return payload
        pickle.loads(payload)
    except Exception:
        payload = _serialize.dumps_plain(_Parts(cause))
        pickle.loads(payload)
    return payload


class _Parts:
    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        assert self.error is not None
        return _revive, (type(self.error), self.error.args, self.error.__dict__)


def _revive(cls: type[BaseException], args: tuple[object, ...], state: dict[str, object]) -> BaseException:
    error = cls.__new__(cls)
    _ARGS.__set__(error, args)
    error.__dict__.update(state)
    return error


def _dual_class(cause_class: type) -> type:
    """TaskError and the user's class in one."""
    known = _dual_classes.get(cause_class)
    if known is not None:
        return known

    class Both(TaskError, cause_class):  # type: ignore[misc]
        def __new__(cls, cause: BaseException, text: str) -> Any:
            if isinstance(cause, BaseExceptionGroup):
                return cause_class.__new__(cls, cause.message, cause.exceptions)  # type: ignore[call-overload]
            return super().__new__(cls, cause, text)

        def __init__(self, cause: BaseException, text: str) -> None:
            self.cause = cause
            self.traceback_str = text
            _ARGS.__set__(self, (cause,))

        def __getattr__(self, name: str) -> object:
            return getattr(self.cause, name)

        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return make, (self.cause, self.traceback_str)

    Both.__name__ = f"TaskError({cause_class.__name__})"
    Both.__qualname__ = Both.__name__
    Both.__module__ = "manta.exceptions"
    _dual_classes[cause_class] = Both
    return Both


def make(cause: BaseException | None, text: str) -> BaseException:
    error: BaseException | None = None
    if isinstance(cause, BaseException) and not isinstance(cause, (TaskError, *_OUTSIDE)):
        try:
            error = _dual_class(type(cause))(cause, text)
        except TypeError:  # a class that cannot be a base, or has its own idea of memory
            error = None
    if error is None:
        error = TaskError(text)
        error.cause = cause
        error.traceback_str = text
    if cause is not None:
        error.__cause__ = cause
        error.__suppress_context__ = True
    return error


def rebuild(text: str, payload: bytes) -> BaseException:
    """What ``get`` raises."""
    cause = None
    if payload:
        try:
            cause = pickle.loads(payload)
        except BaseException as problem:
            text += f"\n(the exception itself cannot be unpickled here: {problem!r})"
    if isinstance(cause, TaskCancelledError):
        return cause
    return make(cause, text)
