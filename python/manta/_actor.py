"""Actors: classes whose one object lives in a process of its own."""
from __future__ import annotations

import functools
import types
from typing import Any, Generic, TypeVar

from . import _checkpoint, _core, _groups, _kinds, _options, _publish, _surroundings
from ._ids import ActorID
from ._worker import DYNAMIC as _DYNAMIC
from ._worker import IN_GROUP as _IN_GROUP
from .exceptions import PendingCallsLimitExceeded, UnavailableError

T = TypeVar("T")
_METHOD = "__manta_method__"
# What Ray's users call of every actor: what it is here, and its options.
_OF_RAY: dict[str, tuple[str, dict[str, Any]]] = {
    "__ray_ready__": ("__manta_ready__", {"read_only": True}),
    "__ray_terminate__": ("__manta_terminate__", {}),
    "__ray_call__": ("__manta_call__", {}),
}
_OF_HANDLES = ("__getattr__", "__del__", "__setstate__", "__getnewargs__", "__getnewargs_ex__", "__copy__",
               "__deepcopy__", "__class_getitem__", "__manta_save__", "__manta_load__", "__manta_method__")
_ASYNC_CONCURRENCY = 1000  # calls at a time of a class with coroutines, unless asked otherwise


def method(*args: Any, **options: Any) -> Any:
    """``@manta.method(num_returns=2)`` on a method of an actor."""
    if args or not options:
        raise TypeError("use it as @manta.method(num_returns=..., ...)")
    checked = _options.check(options, _options.METHOD, "a method")

    def mark(function: Any) -> Any:
        setattr(function, _METHOD, checked)
        return function

    return mark


class ActorMethod:
    """``handle.method``; ``remote`` is a C++ callable. Holds the actor, not the handle, which holds this: an actor ends
    with its last handle, and must not wait for a garbage collection.
    """

    def __init__(self, target: _Target, name: str, options: dict[str, Any]) -> None:
        self._target = target
        self._name = name
        self._options = options
        returns = options.get("num_returns", 1)
        group = options.get("concurrency_group")
        if group is not None and target.groups is not None and group not in target.groups:
            raise ValueError(f"actor class {target.class_name} has no concurrency group {group!r}; it has "
                             f"{', '.join(sorted(target.groups)) or 'none'}")
        self.remote: Any
        if returns == "streaming":
            self.remote = functools.partial(_stream, target, name, options)
            return
        sent = name
        if returns == "dynamic":
            sent, returns = _DYNAMIC + name, 1
        elif group is not None:
            sent = f"{_IN_GROUP}{group}.{name}"
        call = _core.new_call(_gone)
        plan = _options.intern(options.get("name", f"{target.class_name}.{name}"), {}, 0, 0,
                               options.get("max_task_retries"))
        retry = options.get("retry_exceptions")
        some = _publish.publish(None, {"retry": tuple(retry)}) if isinstance(retry, (list, tuple)) and retry else None
        call.set_method(target.actor, sent, plan, returns, retry is True, some, options.get("read_only", False))
        self.remote = call if target.max_pending <= 0 else functools.partial(_limited, target, call)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"an actor's method cannot be called like this: write handle.{self._name}.remote(...)")

    def options(self, **options: Any) -> ActorMethod:
        checked = _options.check(options, _options.METHOD, f"method {self._name}")
        return ActorMethod(self._target, self._name, {**self._options, **checked})

    def __reduce__(self) -> Any:
        return ActorMethod, (self._target, self._name, self._options)


class _Target:
    """The actor that a handle's methods call."""

    def __init__(self, actor: _core.ActorRef, class_name: str, max_pending: int, groups: dict[str, int] | None) -> None:
        self.actor = actor
        self.class_name = class_name
        self.max_pending = max_pending
        self.groups = groups  # None: not known here
        self.pending: list[Any] = []

    def __reduce__(self) -> Any:
        return _Target, (self.actor, self.class_name, self.max_pending, self.groups)


def _gone(_: Any) -> None:
    raise UnavailableError("this actor belongs to a cluster that was shut down")


def _limited(target: _Target, call: Any, *args: Any, **kwargs: Any) -> Any:
    if len(target.pending) >= target.max_pending:
        target.pending[:] = [ref for ref in target.pending if not ref.is_ready()]
    if len(target.pending) >= target.max_pending:
        raise PendingCallsLimitExceeded(
            f"actor {target.class_name} has {len(target.pending)} calls that it has not answered, and "
            f"max_pending_calls={target.max_pending}: wait for some of them")
    out = call(*args, **kwargs)
    if out is not None:
        target.pending.append(out[0] if isinstance(out, list) else out)
    return out


def _stream(target: _Target, name: str, options: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    from . import _stream as stream

    handle = ActorHandle[Any](target.actor, target.class_name, None)
    again = options.get("max_task_retries", target.actor.retries()) != 0
    return stream.start_method(handle, name, options, again, args, kwargs)


class ActorHandle(Generic[T]):
    """Calls an actor. Can be copied, passed to tasks and stored in values."""

    def __init__(self, actor: _core.ActorRef, class_name: str, methods: dict[str, dict[str, Any]] | None,
                 max_pending: int = -1, groups: dict[str, int] | None = None) -> None:
        self._actor = actor
        self._class_name = class_name
        self._methods = methods  # None: not known here, so any name may be one
        self._target = _Target(actor, class_name, max_pending, groups)

    def __getattr__(self, name: str) -> ActorMethod:
        if name in _OF_RAY:
            made = self.__dict__[name] = ActorMethod(self._target, *_OF_RAY[name])
            return made
        if name.startswith("__") and not name.startswith("__manta_") and name not in (self._methods or ("__call__",)):
            raise AttributeError(name)
        options: dict[str, Any] = {}
        if self._methods is not None and not name.startswith("__manta_"):
            if name not in self._methods:
                raise AttributeError(f"actor class {self._class_name} has no method {name!r}")
            options = self._methods[name]
        made = self.__dict__[name] = ActorMethod(self._target, name, options)
        return made

    def __repr__(self) -> str:
        return f"Actor({self._class_name}, {self._actor.hex()[:12]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorHandle) and other._actor.hex() == self._actor.hex()

    def __hash__(self) -> int:
        return hash(self._actor.hex())

    @property
    def _actor_id(self) -> ActorID:
        return ActorID(self._actor.hex())

    _ray_actor_id = _actor_id

    def __reduce__(self) -> Any:
        target = self._target
        return ActorHandle, (self._actor, self._class_name, self._methods, target.max_pending, target.groups)


def _name_of(cls: type) -> str:
    return cls.__qualname__.rpartition("<locals>.")[2]


def _is_own_special(key: str, value: Any) -> bool:
    """A method like ``__len__`` or ``__call__`` that the user has written, and that a handle itself does not need."""
    new = key == "__call__" or (not hasattr(object, key) and key not in _OF_HANDLES)
    return new and isinstance(value, types.FunctionType)


def _methods_of(cls: type) -> tuple[dict[str, dict[str, Any]], bool]:
    """The options of each method; and is one of them a coroutine?"""
    methods: dict[str, dict[str, Any]] = {}
    is_async = False
    for key in dir(cls):
        value = getattr(cls, key, None)
        if not callable(value) or (key.startswith("__") and not _is_own_special(key, value)):
            continue
        details = dict(getattr(value, _METHOD, {}))
        async_generator = _kinds.is_async_generator(value)
        if "num_returns" not in details and (async_generator or _kinds.is_generator(value)):
            details["num_returns"] = "streaming"
        if async_generator:
            details["_async"] = True
        methods[key] = details
        is_async = is_async or async_generator or _kinds.is_coroutine(value)
    return methods, is_async


def found(actor: _core.ActorRef, name: str) -> ActorHandle[Any]:
    """A handle of an actor that was found by its name: its creator has left word of its methods."""
    about = actor.about()
    if not about:
        return ActorHandle(actor, name, None)  # it is written in C++
    import pickle

    return ActorHandle(actor, *pickle.loads(about))


def own(actor: _core.ActorRef) -> ActorHandle[Any]:
    """A handle of this process's actor, for itself."""
    from . import _worker

    cls = _worker.own_class
    if cls is None:  # named by another language
        return ActorHandle(actor, "actor", None)
    return ActorHandle(actor, _name_of(cls), _methods_of(cls)[0])


class ActorClass(Generic[T]):
    """What ``@manta.remote`` makes of a class."""

    def __init__(self, cls: type[T] | None, options: dict[str, Any], *, name: str = "",
                 methods: dict[str, dict[str, Any]] | None = None, is_async: bool = False,
                 ref: _core.ObjectRef[Any] | None = None) -> None:
        self._cls = cls
        self._options = options
        self._ref = ref
        self._ref_session = _core.session() if ref is not None else 0
        if cls is not None:
            self.__doc__ = cls.__doc__
            self.__module__ = cls.__module__
        # A class that is unpickled together with its own ActorClass has no methods yet, so what came along is kept.
        if cls is not None and methods is None:
            _checkpoint.check_class(cls)
            name = _name_of(cls)
            methods, is_async = _methods_of(cls)
        self._name = name
        self._methods = methods
        self._async = is_async

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"actor class {self._name!r} cannot be instantiated like this: write {self._name}.remote(...)")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        raise TypeError(f"a class cannot inherit from the actor class {self._name!r}: let it inherit from the plain "
                        "class, and make it remote")

    def __getattr__(self, name: str) -> Any:
        """Attributes of the plain class: its constants, its functions."""
        if name.startswith("_"):
            raise AttributeError(f"actor class has no attribute {name!r}")
        if self._cls is None and self._ref is not None and self._ref_session == _core.session():
            self._cls = _core.get(self._ref)[0]
        return getattr(self._cls, name)

    def __repr__(self) -> str:
        return f"ActorClass({self._name})"

    @property
    def __ray_actor_class__(self) -> Any:
        """The plain class, under Ray's name."""
        return self._cls

    def options(self, **options: Any) -> ActorClass[T]:
        checked = _options.check(options, _options.ACTOR, f"actor class {self._name}")
        made = ActorClass[T](None, {**self._options, **checked}, name=self._name, methods=self._methods,
                             is_async=self._async, ref=self._ref)
        made._cls = self._cls
        return made

    def _published(self, group: tuple[str, bool] | None = None,
                   env: dict[str, str] | None = None) -> _core.ObjectRef[Any]:
        details: dict[str, Any] = {}
        if group is not None and group[0]:
            details["group"] = group
        if env:
            details["env"] = env
        groups = self._options.get("concurrency_groups")
        if groups:
            size = self._options.get("max_concurrency", _ASYNC_CONCURRENCY if self._async else 1)
            details["groups"] = {**groups, _groups.DEFAULT: size}
        if self._async or groups:
            details["async"] = True
        if self._ref is not None and self._ref_session == _core.session():
            if not env and not groups and "group" not in details:
                return self._ref
            if self._cls is None:
                self._cls = _core.get(self._ref)[0]
        return _publish.publish(self._cls, details)

    def remote(self, *args: Any, **kwargs: Any) -> ActorHandle[T]:
        """Makes the actor. Returns at once; a constructor that raises fails every call."""
        from . import _runtime

        _runtime.auto_init()
        options = _surroundings.inherited(self._options)
        groups = options.get("concurrency_groups") or {}
        for name, about in (self._methods or {}).items():
            if about.get("concurrency_group", next(iter(groups), None)) not in (*groups, None):
                raise ValueError(f"method {name} of actor class {self._name} is in the concurrency group "
                                 f"{about['concurrency_group']!r}, which concurrency_groups does not have")
        concurrency = options.get("max_concurrency", _ASYNC_CONCURRENCY if self._async else 1)
        if options.get("allow_out_of_order_execution") is False and (self._async or concurrency > 1):
            how = "with coroutines" if self._async else f"with max_concurrency={concurrency}"
            raise ValueError(f"actor class {self._name} {how} runs calls side by side, in no order: leave out "
                             "allow_out_of_order_execution=False, or make the class plain with max_concurrency=1")
        if groups:
            concurrency = _groups.CLAIMED
        is_async = self._async or bool(groups)
        facts = self._name, self._methods, options.get("max_pending_calls", -1), dict(groups)
        published = self._published(_surroundings.of_options(options), _surroundings.environment(options))
        if not options.get("name"):
            return ActorHandle(_options.create_actor(published, self._name, options, concurrency, args, kwargs,
                                                     is_async=is_async), *facts)
        from ._serialize import dumps_plain

        actor = _options.create_actor(published, self._name, options, concurrency, args, kwargs, dumps_plain(facts),
                                      is_async)
        return found(actor, self._name)  # with get_if_exists it may be another one

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("graphs (bind) are not supported yet: call remote")

    def __reduce__(self) -> Any:
        if self._cls is not None and _publish.being_published(self._cls):
            return _rebuild, (self._cls, self._options, self._name, self._methods, self._async, None)
        plain = {key: value for key, value in self._options.items() if key not in ("runtime_env", "concurrency_groups")}
        twin = ActorClass[T](None, plain, name=self._name, methods=self._methods, is_async=self._async, ref=self._ref)
        twin._cls = self._cls
        return _rebuild, (None, self._options, self._name, self._methods, self._async, twin._published())


def _rebuild(cls: Any, options: Any, name: str, methods: Any, is_async: bool, ref: Any) -> ActorClass[Any]:
    return ActorClass(cls, options, name=name, methods=methods, is_async=is_async, ref=ref)


class _ActorExit(SystemExit):
    """Ends the method that called exit_actor. Its caller gets an ActorDiedError."""


def exit_actor() -> None:
    """Inside an actor: ends it, on purpose. Calls that run finish; those that have not begun fail."""
    if not _core.own_actor():
        raise TypeError("exit_actor is for the methods of an actor")
    _core.end_own_actor("exit_actor() is called in it")
    raise _ActorExit(0)
