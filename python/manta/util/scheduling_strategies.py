"""Where tasks and actors run, under Ray's names: ``f.options(scheduling_strategy=...)`` takes one of these, "DEFAULT"
or "SPREAD".
"""
from __future__ import annotations

from typing import Any

__all__ = ["DoesNotExist", "Exists", "In", "NodeAffinitySchedulingStrategy", "NodeLabelSchedulingStrategy", "NotIn",
           "PlacementGroupSchedulingStrategy"]

_IN, _NOT_IN, _PRESENT, _ABSENT = range(4)  # manta::LabelRule::Is
Where = tuple[str, bool, bool, list[Any], list[Any], str, int]  # as python/src/groups.h says


class In:
    """The node's label is one of these."""

    _kind = _IN

    def __init__(self, *values: str) -> None:
        if not values or not all(isinstance(value, str) for value in values):
            raise ValueError(f"{type(self).__name__} needs values, each a string")
        self.values = list(values)


class NotIn(In):
    """The node's label is none of these, or it has none."""

    _kind = _NOT_IN


class Exists:
    """The node has the label."""

    _kind = _PRESENT
    values: list[str] = []


class DoesNotExist:
    """The node has no such label."""

    _kind = _ABSENT
    values: list[str] = []


_WORD = "[a-zA-Z0-9](?:[-_.a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"


def _check_text(name: str, key: str, rule: str) -> None:
    import re

    if not re.fullmatch(rf"(?:[-.a-zA-Z0-9]+/)?{_WORD}", key):
        raise ValueError(f"{name}: {key!r} is no label's name: letters and digits, with -, _ and . between them, "
                         "63 characters at most")
    if not re.fullmatch(rf"(?:!?(?:{_WORD}|in\({_WORD}(?:, *{_WORD})*\)))?", rule):
        raise ValueError(f"{name}[{key!r}]={rule!r}: it must be 'value', '!value', 'in(a, b)' or '!in(a, b)', each "
                         "value of letters and digits, with -, _ and . between them, 63 characters at most")


def _matches(labels: dict[str, str], rules: list[tuple[str, int, list[str]]]) -> bool:
    for key, kind, values in rules:
        here = labels.get(key)
        fits = {_IN: here in values, _NOT_IN: here not in values, _PRESENT: here is not None, _ABSENT: here is None}
        if not fits[kind]:
            return False
    return True


def _selected(options: Any) -> list[tuple[str, int, list[str]]]:
    """The rules of label_selector or, when no live node fits them, the first of fallback_strategy that one does."""
    first = label_rules(options.get("label_selector"), "label_selector")
    others = options.get("fallback_strategy") or []
    if not others:
        return first
    from .. import _core

    nodes = [row[4] for row in _core.nodes() if row[7]]
    for rules in (first, *(label_rules(one.get("label_selector"), "fallback_strategy") for one in others)):
        if any(_matches(labels, rules) for labels in nodes):
            return rules
    return first


def label_rules(labels: dict[str, Any] | None, name: str) -> list[tuple[str, int, list[str]]]:
    """Of ``{"zone": In("a", "b")}``, and of label_selector's ``{"zone": "in(a, b)"}``, ``"!a"``, ``"!in(a, b)"``."""
    rules = []
    for key, rule in (labels or {}).items():
        if not isinstance(key, str) or not key:
            raise ValueError(f"{name}: a label's name must be a string, not {key!r}")
        if isinstance(rule, str):
            _check_text(name, key, rule)
            negated = rule.startswith("!")
            text = rule.removeprefix("!")
            values = [text]
            if text.startswith("in(") and text.endswith(")"):
                values = [part.strip() for part in text[3:-1].split(",")]
            rule = NotIn(*values) if negated else In(*values)
        if not isinstance(rule, (In, Exists, DoesNotExist)):
            raise ValueError(f"{name}[{key!r}]={rule!r}: it must be In, NotIn, Exists or DoesNotExist")
        rules.append((key, rule._kind, list(rule.values)))
    return rules


class NodeAffinitySchedulingStrategy:
    """On one node, by the id that ``nodes()`` and ``get_runtime_context().get_node_id()`` give; `soft`: on another when
    that one is gone or cannot hold it.
    """

    def __init__(self, node_id: str, soft: bool) -> None:
        if not isinstance(node_id, str) or not node_id:
            raise ValueError(f"node_id={node_id!r}: it must be the id of a node, a string")
        self.node_id = node_id
        self.soft = soft

    def _where(self) -> Where:
        return self.node_id, bool(self.soft), False, [], [], "", -1


class NodeLabelSchedulingStrategy:
    """Where the labels `hard` match; among those, where `soft` match, too, if there is such a node."""

    def __init__(self, hard: dict[str, Any], *, soft: dict[str, Any] | None = None) -> None:
        self.hard = hard
        self.soft = soft
        self._rules = label_rules(hard, "hard"), label_rules(soft, "soft")
        if not self._rules[0] and not self._rules[1]:
            raise ValueError("NodeLabelSchedulingStrategy needs a label in hard or soft")

    def _where(self) -> Where:
        return "", False, False, self._rules[0], self._rules[1], "", -1


class PlacementGroupSchedulingStrategy:
    """With the resources of a placement group's bundle; -1: of any. With `placement_group_capture_child_tasks`, tasks
    and actors that are started by what runs there, and do not say where they run, run in the group, too.
    """

    def __init__(self, placement_group: Any, placement_group_bundle_index: int = -1,
                 placement_group_capture_child_tasks: bool | None = None) -> None:
        if placement_group_capture_child_tasks not in (None, True, False):
            raise ValueError(f"placement_group_capture_child_tasks={placement_group_capture_child_tasks!r}: it must be "
                             "True or False")
        count = placement_group.bundle_count if placement_group_bundle_index >= 0 else 0
        if placement_group_bundle_index < -1 or (count and placement_group_bundle_index >= count):
            raise ValueError(f"placement_group_bundle_index={placement_group_bundle_index}: the group has {count} "
                             "bundles")
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks

    def _where(self) -> Where:
        return "", False, False, [], [], self.placement_group.id, self.placement_group_bundle_index


def where(options: Any) -> Where | None:
    """What the engine needs to know of ``scheduling_strategy`` and ``label_selector``; None: nothing."""
    strategy = options.get("scheduling_strategy", "DEFAULT")
    found: Where | None = None
    if strategy == "SPREAD":
        found = "", False, True, [], [], "", -1
    elif strategy != "DEFAULT":
        found = strategy._where()
    selector = _selected(options)
    if not selector:
        return found
    base = found or ("", False, False, [], [], "", -1)
    return (*base[:3], base[3] + selector, *base[4:])


def check(strategy: Any) -> None:
    """ValueError unless it is one."""
    if strategy in ("DEFAULT", "SPREAD") or hasattr(type(strategy), "_where"):
        return
    error = ValueError if isinstance(strategy, str) else TypeError
    raise error(f"scheduling_strategy={strategy!r}: it must be 'DEFAULT', 'SPREAD' or a strategy of "
                     "manta.util.scheduling_strategies")
