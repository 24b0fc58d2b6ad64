"""The options of tasks and actors: which there are, what they may be, and which are still missing.

An option is supported, or it raises: none is ignored.
"""
from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

from . import _core

_COMMON = {"num_cpus", "num_gpus", "memory", "resources", "name", "runtime_env", "scheduling_strategy",
           "accelerator_type", "label_selector", "_metadata", "enable_task_events", "fallback_strategy",
           "placement_group", "placement_group_bundle_index", "placement_group_capture_child_tasks"}
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
}
MEBIBYTE = 1 << 20  # the engine counts the resource "memory" in these


def check(given: Mapping[str, Any], known: set[str], what: str) -> dict[str, Any]:
    """The options that were set, checked."""
    if "placement_group" in known and not _IN_GROUP.isdisjoint(given):
        given = _by_strategy(given)
    out: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            import difflib

            close = difflib.get_close_matches(name, sorted(known), 1)
            raise ValueError(f"{what} has no option {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        if value is None or (name == "name" and value == ""):
            continue
        if name == "enable_task_events":  # nothing is recorded in any case
            continue
        if name in _MISSING:
            raise NotImplementedError(f"option {name!r} of {what} is not supported yet: {_MISSING[name]}")
        _check_one(name, value, what)
        out[name] = _UNBOUNDED_ITEMS if name == "_generator_backpressure_num_objects" and value == -1 else value
    return out


_IN_GROUP = {"placement_group", "placement_group_bundle_index", "placement_group_capture_child_tasks"}


def _by_strategy(given: Mapping[str, Any]) -> dict[str, Any]:
    """The older way to name a group, as a scheduling_strategy."""
    from .util.scheduling_strategies import PlacementGroupSchedulingStrategy

    rest = {name: value for name, value in given.items() if name not in _IN_GROUP}
    group = given.get("placement_group")
    if group in (None, "default"):
        return rest
    if rest.get("scheduling_strategy") is not None:
        raise ValueError("placement_group and scheduling_strategy both say where it runs: leave out placement_group")
    index = given.get("placement_group_bundle_index")
    strategy = PlacementGroupSchedulingStrategy(group, -1 if index is None else index,
                                                given.get("placement_group_capture_child_tasks"))
    return {**rest, "scheduling_strategy": strategy}


# The types that a value may have; another type is a TypeError, a wrong value of the right type a ValueError.
_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("num_cpus", "num_gpus", "memory"), (numbers.Real,)),
    **dict.fromkeys(("max_retries", "max_restarts", "max_task_retries", "max_calls", "max_concurrency",
                     "_generator_backpressure_num_objects", "max_pending_calls"), (int,)),
    **dict.fromkeys(("resources", "label_selector", "concurrency_groups", "runtime_env"), (Mapping,)),
    **dict.fromkeys(("name", "namespace", "lifetime", "concurrency_group"), (str,)),
    **dict.fromkeys(("get_if_exists", "allow_out_of_order_execution", "read_only", "replay"), (bool,)),
    "num_returns": (int, str), "retry_exceptions": (bool, list, tuple),
}
_UNBOUNDED_ITEMS = 1000  # that a generator may be ahead, with _generator_backpressure_num_objects=-1
_SMALLEST_SHARE = 0.0001  # of a resource: the engine counts in these


def _fail(name: str, value: Any, wanted: str) -> None:
    right = not isinstance(value, bool) or name in ("retry_exceptions", "get_if_exists")
    error = ValueError if right and isinstance(value, _TYPES.get(name, (object,))) else TypeError
    raise error(f"{name}={value!r}: it must be {wanted}")


def _check_amount(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name}={value!r}: it must be a number, 0 or more")
    if value < 0 or 0 < float(value) < _SMALLEST_SHARE:
        raise ValueError(f"{name}={value!r}: it must be 0, or {_SMALLEST_SHARE} or more")


def _check_one(name: str, value: Any, what: str) -> None:
    if name in ("num_cpus", "num_gpus", "memory"):
        _check_amount(name, value)
    elif name == "resources":
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            _fail(name, value, "a dictionary of names and amounts")
        for key in ("CPU", "GPU"):
            if key in value:
                raise ValueError(f"use num_{key.lower()}s instead of {key!r} in resources")
        for key, amount in value.items():
            _check_amount(f"resources[{key!r}]", amount)
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
    elif name == "_generator_backpressure_num_objects":
        if isinstance(value, bool) or not isinstance(value, int) or (value < 1 and value != -1):
            _fail(name, value, "an int, 1 or more, or -1 for no limit")
    elif name == "max_concurrency":
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
    elif name == "fallback_strategy":
        from .util import scheduling_strategies

        if not isinstance(value, list):
            raise TypeError(f"{name}={value!r}: it must be a list of dictionaries with 'label_selector'")
        for one in value:
            if not isinstance(one, Mapping) or set(one) - {"label_selector"}:
                raise ValueError(f"{name} has {one!r}: it must be a dictionary with 'label_selector' and nothing else")
            scheduling_strategies.label_rules(one.get("label_selector"), name)
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
        raise TypeError(f"runtime_env={value!r}: it must be a dictionary")
    others = [key for key in value if key != "env_vars"]
    if others:
        raise NotImplementedError(f"runtime_env field {others[0]!r} is not supported yet; there is 'env_vars'")
    variables = value.get("env_vars") or {}
    if not isinstance(variables, Mapping) or not all(
        isinstance(key, str) and isinstance(item, str) for key, item in variables.items()
    ):
        raise TypeError("runtime_env['env_vars'] must be a dictionary of strings")
    return dict(variables)


def resources_of(options: Mapping[str, Any], cpus: float) -> tuple[float, float, dict[str, float]]:
    others = {key: float(amount) for key, amount in options.get("resources", {}).items()}
    if options.get("memory"):
        others["memory"] = float(-(-int(options["memory"]) // MEBIBYTE))
    return float(options.get("num_cpus", cpus)), float(options.get("num_gpus", 0)), others


def _where(options: Mapping[str, Any]) -> Any:
    if not any(name in options for name in ("scheduling_strategy", "label_selector", "fallback_strategy")):
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
    # With max_restarts an actor begins anew, as in Ray, unless it asks for its state.
    replay = options.get("replay", "max_restarts" not in options or "checkpoint_every" in options)
    calls, micros = checkpoint_of(options["checkpoint_every"]) if "checkpoint_every" in options else (0, 0)
    restarts = options.get("max_restarts")
    if is_async and replay:  # in which order its calls act nobody can say, so they are not repeated; but it comes back
        replay, restarts = False, -1 if restarts is None else restarts
    return _core.create_actor(
        cls, class_name, options.get("name", ""), options.get("namespace", ""), cpus, gpus, others,
        options.get("lifetime") == "detached", options.get("get_if_exists", False),
        restarts, options.get("max_task_retries"), replay, calls, micros, concurrency,
        not options.get("allow_out_of_order_execution", False), args, kwargs, _where(options), about)
