"""The placement group that a task or actor runs in, and whether it hands it on to what it starts
(``placement_group_capture_child_tasks``).
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import _core

_group = ("", False)  # of what runs here: its id, and is it handed on?
_numbers: dict[str, int] = {}  # of groups that are: calls are prepared for one of them


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
    _core.surround(_numbers.setdefault(group[0], len(_numbers) + 1) if group[1] else 0)
    return before


def current() -> str:
    """The id of the group; empty: none."""
    return _group[0]
