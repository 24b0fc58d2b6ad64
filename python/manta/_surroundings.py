"""What a task or actor hands on to the calls that it makes: its placement group, if it says so
(``placement_group_capture_child_tasks``), and the env_vars of its runtime_env.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _core, _options

_group = ("", False)  # of what runs here: its id, and is it handed on?
_env: dict[str, str] = {}  # the env_vars of what runs here, its own and the inherited ones
# Calls are prepared for one of these: what is handed on.
_numbers: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {("", ()): 0}


def of_options(options: Mapping[str, Any]) -> tuple[str, bool] | None:
    """What the worker has to know of something that is started with these; None: nothing."""
    strategy: Any = options.get("scheduling_strategy")
    group = getattr(strategy, "placement_group", None)
    if group is not None:
        return group.id, bool(strategy.placement_group_capture_child_tasks)
    # A child may run in the process of its parent, which waits for it.
    return ("", False) if _group[1] else None


def inherited(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of something that is started here, with the group that it inherits unless they say where."""
    if not _group[1] or "scheduling_strategy" in options:
        return options
    from .util.placement_group import PlacementGroup
    from .util.scheduling_strategies import PlacementGroupSchedulingStrategy

    return {**options, "scheduling_strategy": PlacementGroupSchedulingStrategy(PlacementGroup(_group[0]), -1, True)}


def enter(group: tuple[str, bool]) -> tuple[str, bool]:
    """From now on. Gives what was before, for the same."""
    global _group
    before, _group = _group, group
    _surround()
    return before


def enter_env(env: dict[str, str]) -> dict[str, str]:
    """As `enter`, for the env_vars."""
    global _env
    before, _env = _env, env
    _surround()
    return before


def environment(options: Mapping[str, Any]) -> dict[str, str]:
    """The env_vars of something that is started here with these options: its own go before the inherited ones."""
    return {**_env, **_options.check_runtime_env(options.get("runtime_env") or {})}


def _surround() -> None:
    handed_on = _group[0] if _group[1] else "", tuple(sorted(_env.items()))
    _core.surround(_numbers.setdefault(handed_on, len(_numbers)))


def current() -> str:
    """The id of the group; empty: none."""
    return _group[0]


def hands_on() -> bool:
    """Do calls that are made here run in the same group?"""
    return _group[1]
