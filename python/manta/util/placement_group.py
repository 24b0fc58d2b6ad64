"""Placement groups, under Ray's names: resources set aside in bundles, all of them or none."""
from __future__ import annotations

import functools
from typing import Any

from .. import _core, _options
from .._ids import PlacementGroupID
from ..exceptions import InfeasibleError, NotFoundError

__all__ = ["PlacementGroup", "get_current_placement_group", "get_placement_group", "placement_group",
           "placement_group_table", "remove_placement_group"]

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")  # by manta::GroupStrategy


_MOST_REMOVED = 1000
_removed: dict[str, dict[str, Any]] = {}  # rows of groups that this process has removed, by id


class PlacementGroup:
    """Names a group; can be passed to tasks."""

    def __init__(self, id: str, bundles: list[dict[str, float]] | None = None) -> None:
        self.id = PlacementGroupID(id)
        self._bundles = bundles

    @staticmethod
    def empty() -> PlacementGroup:
        """Names no group."""
        return PlacementGroup("", [])

    def ready(self) -> _core.ObjectRef[Any]:
        """Ready when all bundles are set aside. ``get`` gives the group."""
        return _ready().options(scheduling_strategy=_strategy(self)).remote(self)  # type: ignore[no-any-return]

    def wait(self, timeout_seconds: float = 30) -> bool:
        """Is it ready, at the latest after that time?"""
        try:
            return _core.wait_group(self.id, int(timeout_seconds * 1e6))
        except InfeasibleError:  # as it stands; a node that has room may still join
            return False

    @property
    def bundle_specs(self) -> list[dict[str, float]]:
        if self._bundles is None:
            self._bundles = placement_group_table(self).get("bundle_list", [])
        return self._bundles or []

    @property
    def bundle_count(self) -> int:
        return len(self.bundle_specs)

    @property
    def is_empty(self) -> bool:
        return not self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlacementGroup) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"PlacementGroup({self.id[:12]})"

    def __reduce__(self) -> Any:
        return PlacementGroup, (self.id, self._bundles)


def _itself(group: PlacementGroup) -> PlacementGroup:
    return group


@functools.cache
def _ready() -> Any:
    from .._runtime import remote

    return remote(num_cpus=0, name="PlacementGroup.ready")(_itself)


def _strategy(group: PlacementGroup) -> Any:
    from .scheduling_strategies import PlacementGroupSchedulingStrategy

    return PlacementGroupSchedulingStrategy(group)


def placement_group(bundles: list[dict[str, float]], strategy: str = "PACK", name: str = "",
                    lifetime: str | None = None, bundle_label_selector: list[dict[str, str]] | None = None,
                    **others: Any) -> PlacementGroup:
    """Sets resources aside, in the background: wait for ``group.ready()``, or submit into it right away."""
    from .._runtime import auto_init

    if others:
        raise NotImplementedError(f"placement_group({next(iter(others))}=...) is not supported")
    if not isinstance(bundles, list) or not bundles or not all(isinstance(one, dict) and one for one in bundles):
        raise ValueError("bundles must be a list of dictionaries like {'CPU': 1}, each with something in it")
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy={strategy!r}: it must be one of {', '.join(STRATEGIES)}")
    if lifetime not in (None, "detached"):
        raise ValueError(f"lifetime={lifetime!r}: it must be None or 'detached'")
    auto_init()
    amounts = []
    for bundle in bundles:
        for key, amount in bundle.items():
            number = isinstance(amount, (int, float)) and not isinstance(amount, bool)
            if not isinstance(key, str) or not number or amount < 0:
                raise ValueError(f"the bundle {bundle!r} has {key!r}: {amount!r}; amounts are numbers, 0 or more")
        amounts.append({key: float(amount) if key != "memory" else float(-(-int(amount) // _options.MEBIBYTE))
                        for key, amount in bundle.items() if amount > 0})
    rules = _bundle_rules(bundle_label_selector, len(bundles))
    made = _core.create_group(amounts, STRATEGIES.index(strategy), name, "", lifetime == "detached", rules)
    return PlacementGroup(made, [dict(bundle) for bundle in bundles])


def _bundle_rules(selectors: list[dict[str, str]] | None, count: int) -> list[list[tuple[str, int, list[str]]]]:
    from .scheduling_strategies import label_rules

    if not selectors:
        return []
    if not isinstance(selectors, list) or not all(isinstance(one, dict) for one in selectors):
        raise TypeError(f"bundle_label_selector={selectors!r}: it must be a list of dictionaries, one for each bundle")
    if len(selectors) != count:
        raise ValueError(f"bundle_label_selector has {len(selectors)} entries for {count} bundles: give one for each, "
                         "{} where any node will do")
    return [label_rules(one, "bundle_label_selector") for one in selectors]


def get_placement_group(placement_group_name: str) -> PlacementGroup:
    """By name; ValueError if there is none."""
    if not placement_group_name:
        raise ValueError("get_placement_group needs a name")
    return PlacementGroup(_core.find_group(placement_group_name, ""))


def get_current_placement_group() -> PlacementGroup | None:
    """The group in which the calling task or actor runs; None: in none."""
    from .._surroundings import current

    return PlacementGroup(current()) if current() else None


def remove_placement_group(placement_group: PlacementGroup) -> None:
    """Gives the resources back; what runs in the group is killed."""
    row = placement_group_table(placement_group)
    try:
        _core.remove_group(placement_group.id)
    except NotFoundError:
        if placement_group.id not in _removed:
            raise
    if row:
        _removed[placement_group.id] = {**row, "state": "REMOVED"}
        while len(_removed) > _MOST_REMOVED:
            del _removed[next(iter(_removed))]


def placement_group_table(placement_group: PlacementGroup | None = None) -> dict[str, Any]:
    """What is known of the group, or of all groups by id."""
    table: dict[str, Any] = dict(_removed)
    for id, name, space, strategy, detached, ready, bundles, nodes, why in _core.groups():
        listed = [{key: amount * (_options.MEBIBYTE if key == "memory" else 1) for key, amount in bundle.items()}
                  for bundle in bundles]
        table[id] = {
            "placement_group_id": id, "name": name, "namespace": space, "strategy": STRATEGIES[strategy],
            "state": "CREATED" if ready else "PENDING", "is_detached": detached,
            "bundles": dict(enumerate(listed)), "bundle_list": listed,
            "bundles_to_node_id": dict(enumerate(nodes)), "stats": {"scheduling_state": why},
        }
    if placement_group is None:
        return table
    return dict(table.get(placement_group.id, {}))
