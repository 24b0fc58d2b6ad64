"""The options of tasks and actors: which there are, what they may be, and which are still missing.

An option is supported, or it raises: none is ignored.
"""
from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

from . import _core

_COMMON = {"num_cpus", "num_gpus", "memory", "resources", "name", "runtime_env", "scheduling_strategy",
           "accelerator_type", "label_selector", "_metadata", "enable_task_events"}
TASK = _COMMON | {"num_returns", "max_retries", "retry_exceptions", "max_calls", "_generator_backpressure_num_objects"}
ACTOR = _COMMON | {"namespace", "lifetime", "get_if_exists", "max_restarts", "max_task_retries", "max_concurrency",
                   "concurrency_groups", "max_pending_calls", "object_store_memory", "allow_out_of_order_execution",
                   "checkpoint_every", "replay"}
METHOD = {"num_returns", "name", "concurrency_group", "max_task_retries", "retry_exceptions", "read_only",
          "_generator_backpressure_num_objects"}

# Known to Ray's users, and not built here yet.
_MISSING = {
    "accelerator_type": "use resources={'name': 1}",
    "object_store_memory": "the store is shared: set it in init(object_store_memory=...)",
    "_metadata": "nobody reads it",
    "enable_task_events": "there is no task log yet",
}
MEBIBYTE = 1 << 20  # the engine counts the resource "memory" in these


def check(given: Mapping[str, Any], known: set[str], what: str) -> dict[str, Any]:
    """The options that were set, checked."""
    out: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            import difflib

            close = difflib.get_close_matches(name, sorted(known), 1)
            raise ValueError(f"{what} has no option {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        if value is None:
            continue
        if name in _MISSING:
            raise NotImplementedError(f"option {name!r} of {what} is not supported yet: {_MISSING[name]}")
        _check_one(name, value, what)
        out[name] = value
    return out


def _fail(name: str, value: Any, wanted: str) -> None:
    raise ValueError(f"{name}={value!r}: it must be {wanted}")


def _check_one(name: str, value: Any, what: str) -> None:
    if name in ("num_cpus", "num_gpus", "memory"):
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or value < 0:
            _fail(name, value, "a number, 0 or more")
    elif name == "resources":
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            _fail(name, value, "a dictionary of names and amounts")
        for key in ("CPU", "GPU"):
            if key in value:
                raise ValueError(f"use num_{key.lower()}s instead of {key!r} in resources")
    elif name == "num_returns":
        if value in ("dynamic", "streaming"):
            return
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            _fail(name, value, "an int, 0 or more, 'dynamic' or 'streaming'")
    elif name in ("max_retries", "max_restarts", "max_task_retries"):
        if isinstance(value, bool) or not isinstance(value, int) or value < -1:
            _fail(name, value, "an int, 0 or more, or -1 for no limit")
    elif name == "retry_exceptions":
        if isinstance(value, bool):
            return
        if not isinstance(value, (list, tuple)) or not all(
            isinstance(item, type) and issubclass(item, BaseException) for item in value
        ):
            _fail(name, value, "True, False or a list of exception classes")
    elif name == "max_calls":
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            _fail(name, value, "an int, 0 (no limit) or more")
    elif name in ("max_concurrency", "_generator_backpressure_num_objects"):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            _fail(name, value, "an int, 1 or more")
    elif name == "max_pending_calls":
        if isinstance(value, bool) or not isinstance(value, int) or value < -1:
            _fail(name, value, "an int, or -1 for no limit")
    elif name == "concurrency_groups":
        if not isinstance(value, Mapping) or not all(
            isinstance(key, str) and key and "." not in key and isinstance(size, int) and not isinstance(size, bool)
            and size >= 1 for key, size in value.items()
        ):
            _fail(name, value, "a dictionary of names (without dots) and numbers of calls, 1 or more")
    elif name == "concurrency_group":
        if not isinstance(value, str) or not value:
            _fail(name, value, "the name of one of the actor's concurrency_groups")
    elif name == "lifetime":
        if value not in ("detached", "non_detached"):
            _fail(name, value, "'detached' or 'non_detached'")
    elif name in ("name", "namespace"):
        if not isinstance(value, str) or not value:
            _fail(name, value, "a string with something in it")
    elif name == "scheduling_strategy":
        if value != "DEFAULT":
            from .util import scheduling_strategies

            scheduling_strategies.check(value)
    elif name == "label_selector":
        from .util import scheduling_strategies

        if not isinstance(value, Mapping):
            _fail(name, value, "a dictionary of labels and what they must be")
        scheduling_strategies.label_rules(dict(value), name)
    elif name == "runtime_env":
        check_runtime_env(value)
    elif name == "checkpoint_every":
        checkpoint_of(value)
    elif name in ("get_if_exists", "allow_out_of_order_execution", "read_only", "replay"):
        if not isinstance(value, bool):
            _fail(name, value, "True or False")


def checkpoint_of(value: Any) -> tuple[int, int]:
    """After how many calls, and after how many microseconds; 0: does not matter."""
    if type(value) is int and value >= 1:
        return value, 0
    from datetime import timedelta

    if not isinstance(value, timedelta) or value <= timedelta(0):
        _fail("checkpoint_every", value, "a number of calls, 1 or more, or a datetime.timedelta")
    return 0, max(1, value // timedelta(microseconds=1))


def check_runtime_env(value: Any) -> dict[str, str]:
    """The environment variables in it; everything else is not built yet."""
    if not isinstance(value, Mapping):
        raise ValueError(f"runtime_env={value!r}: it must be a dictionary")
    others = [key for key in value if key != "env_vars"]
    if others:
        raise NotImplementedError(f"runtime_env field {others[0]!r} is not supported yet; there is 'env_vars'")
    variables = value.get("env_vars") or {}
    if not isinstance(variables, Mapping) or not all(
        isinstance(key, str) and isinstance(item, str) for key, item in variables.items()
    ):
        raise ValueError("runtime_env['env_vars'] must be a dictionary of strings")
    return dict(variables)


def resources_of(options: Mapping[str, Any], cpus: float) -> tuple[float, float, dict[str, float]]:
    others = {key: float(amount) for key, amount in options.get("resources", {}).items()}
    if options.get("memory"):
        others["memory"] = float(-(-int(options["memory"]) // MEBIBYTE))
    return float(options.get("num_cpus", cpus)), float(options.get("num_gpus", 0)), others


def _where(options: Mapping[str, Any]) -> Any:
    if "scheduling_strategy" not in options and "label_selector" not in options:
        return None
    from .util import scheduling_strategies

    return scheduling_strategies.where(options)


def intern(name: str, options: Mapping[str, Any], cpus: float, retries: int, call_retries: int | None = None) -> int:
    """The engine's number for this set of options. `call_retries`: of an actor's call, if not as its actor says."""
    own_cpus, gpus, others = resources_of(options, cpus)
    return _core.intern(name, own_cpus, gpus, others, retries, 0, 0, _where(options), call_retries)


def create_actor(cls: Any, class_name: str, options: Mapping[str, Any], concurrency: int, args: Any,
                 kwargs: Any, about: bytes = b"", is_async: bool = False) -> Any:
    """Of a published class, or of "library\\nClass" in C++. `about` is for whoever finds it by its name."""
    if options.get("get_if_exists") and "name" not in options:
        raise ValueError("get_if_exists=True needs a name")
    if "namespace" in options and "name" not in options:
        raise ValueError("namespace needs a name")
    cpus, gpus, others = resources_of(options, 0)
    replay = options.get("replay", True)
    calls, micros = checkpoint_of(options["checkpoint_every"]) if "checkpoint_every" in options else (0, 0)
    restarts = options.get("max_restarts")
    if is_async and replay:  # in which order its calls act nobody can say, so they are not repeated; but it comes back
        replay, restarts = False, -1 if restarts is None else restarts
    return _core.create_actor(
        cls, class_name, options.get("name", ""), options.get("namespace", ""), cpus, gpus, others,
        options.get("lifetime") == "detached", options.get("get_if_exists", False),
        restarts, options.get("max_task_retries"), replay, calls, micros, concurrency,
        not options.get("allow_out_of_order_execution", False), args, kwargs, _where(options), about)
