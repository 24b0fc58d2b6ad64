"""What a worker process does, between the fork (see _fork_server.py) and the user's code."""
from __future__ import annotations

import io
import os
import sys
from typing import Any

IN_GROUP = "__manta_in__"  # then "group.method"
own_class: Any = None  # of this process's actor
DYNAMIC = "__manta_dynamic__"  # then the method


class _Stream(io.TextIOBase):
    """stdout and stderr, through the engine's lines that carry the task's name."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return False

    def write(self, text: str) -> int:
        from . import _core

        _core.write(self._fd, text.encode("utf-8", "backslashreplace").decode())
        return len(text)


def begin() -> None:
    """In each worker, right after the fork."""
    import faulthandler

    from . import _runtime

    # Before the engine's own handlers, which write the frames of C and then call this one (worker/crash.cc).
    faulthandler.enable(2, all_threads=False)
    _runtime._in_worker = True
    sys.stdout = _Stream(1)  # type: ignore[assignment]
    sys.stderr = _Stream(2)  # type: ignore[assignment]
    random = sys.modules.get("random")
    if random is not None:
        random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def begin_embedded() -> None:
    """In a worker of a C++ program, which has started Python for its first call of a Python function."""
    import contextlib
    import signal

    from . import _core

    _core.embed()
    begin()
    with contextlib.suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)  # which is how a cancelled call is interrupted


def load_named(module: str, name: str) -> tuple[Any, Any, bool, int]:
    """As load_function, for a function or class that another language names."""
    import importlib

    from . import _checkpoint, _core, _kinds
    from ._actor import ActorClass
    from ._function import RemoteFunction

    thing: Any = importlib.import_module(module)
    for part in name.split("."):
        thing = getattr(thing, part)
    if isinstance(thing, RemoteFunction):
        thing = thing._function
    elif isinstance(thing, ActorClass):
        thing = thing._cls
    is_async = isinstance(thing, type) and any(_kinds.is_coroutine(value) for value in vars(thing).values())
    if isinstance(thing, type):
        _checkpoint.seed(_core.own_actor())
    return thing, None, is_async, -1


def load_function(published: tuple[Any, dict[str, Any]], ref: Any) -> tuple[Any, Any, bool, int]:
    """What to call, which exceptions are worth another try, whether it is a class with coroutines, and after how many
    calls the process shall leave (-1: never).
    """
    from . import _checkpoint, _core, _publish

    thing, details = published
    if not details:
        _publish.note_loaded(thing, ref)
    code = thing
    if isinstance(thing, type):
        global own_class
        own_class = thing
        _checkpoint.seed(_core.own_actor())
        code = for_good(code, details)
    else:
        if details.get("dynamic"):
            code = _dynamic(code)
        if details.get("env"):
            code = _with_environment(details["env"], code)
        if details.get("group"):
            code = _in_group(details["group"], code)
    if details.get("groups"):
        from ._groups import hosted

        code = hosted(code, details["groups"])
    return code, details.get("retry"), "async" in details, details.get("max_calls", -1)


def for_good(code: Any, details: dict[str, Any]) -> Any:
    """Code that has this process to itself: an actor's class, a generator."""
    env, group = details.get("env"), details.get("group")
    if not env and not group:
        return code

    def make(*args: Any, **kwargs: Any) -> Any:
        from . import _surroundings

        if env:
            os.environ.update(env)
            _surroundings.enter_env(env)
        if group:
            _surroundings.enter(group)
        return code(*args, **kwargs)

    return make


def _with_environment(env: dict[str, str], function: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        from . import _surroundings

        before = {key: os.environ.get(key) for key in env}
        os.environ.update(env)
        outer = _surroundings.enter_env(env)
        try:
            return function(*args, **kwargs)
        finally:
            _surroundings.enter_env(outer)
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value

    return run


def _in_group(group: tuple[str, bool], function: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        from . import _surroundings

        before = _surroundings.enter(group)
        try:
            return function(*args, **kwargs)
        finally:
            _surroundings.enter(before)

    return run


def _dynamic(function: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        from . import _core
        from ._stream import DynamicObjectRefGenerator

        return DynamicObjectRefGenerator([_core.put(value) for value in function(*args, **kwargs)])

    return run


def special(actor: Any, name: str) -> Any:
    """Methods that every actor has."""
    from . import _groups, _stream

    if name.startswith(IN_GROUP):
        group, _, method = name[len(IN_GROUP):].partition(".")
        return actor.in_group(method, group)
    if isinstance(actor, _groups.Host):
        actor = actor._object
    if name.startswith(DYNAMIC):
        return _dynamic(getattr(actor, name[len(DYNAMIC):]))
    return _stream.METHODS[name].__get__(actor)


def save_actor(actor: Any) -> Any:
    from . import _checkpoint, _groups

    return _checkpoint.save(actor._object if isinstance(actor, _groups.Host) else actor)


def load_actor(actor: Any, saved: Any) -> Any:
    from . import _checkpoint, _groups

    if not isinstance(actor, _groups.Host):
        return _checkpoint.load(actor, saved)
    actor._object = _checkpoint.load(actor._object, saved)
    return actor


def leaving(error: SystemExit) -> tuple[int, bool, str]:
    """What a SystemExit that leaves a call means: the exit status, whether an actor ends for good, and why.
    As Ray: an actor that exits with status 0 wanted to; sys.exit() without a status is not such a wish.
    """
    code = error.code
    if code is None:
        return 0, False, ""
    if isinstance(code, int):
        return code & 0xFF, code == 0, f"its process exits with exit code {code}"
    print(code, file=sys.stderr)
    return 1, False, ""


def farewell(actor: Any) -> None:
    """The process ends in order: not by a kill or a crash."""
    import atexit
    import traceback

    from . import _groups

    if isinstance(actor, _groups.Host):
        actor = actor._object
    end = getattr(type(actor), "__ray_shutdown__", None)
    if end is not None:
        try:
            end(actor)
        except BaseException:
            traceback.print_exc()
    atexit._run_exitfuncs()


_begin: Any = None
_step: Any = None


def begin_async(coroutine: Any, number: int) -> None:
    global _begin
    if _begin is None:
        from ._async_actor import begin

        _begin = begin
    _begin(coroutine, number)


def step_async(wait: bool) -> bool:
    global _step
    if _step is None:
        from ._async_actor import step

        _step = step
    return bool(_step(wait))
