"""Runs trials as actors: one process each, or with reuse_actors one process for several trials after each other."""
from __future__ import annotations

import time
from typing import Any

from .. import _runtime
from .._actor import ActorClass
from ._process import Process
from ._resources import PlacementGroupFactory

_ONCE = {"max_restarts": 0, "max_task_retries": 0}  # the controller decides about retries


class Slot:
    """The process of a trial, and the call that it answers now."""

    __slots__ = ("actor", "group", "key", "call", "number", "since")

    def __init__(self, number: int, actor: Any, group: Any, key: Any) -> None:
        self.number, self.actor, self.group, self.key = number, actor, group, key
        self.call = ""  # "start", "go_on", "save", "clone", "stop", "finish"
        self.since = 0.0  # when it was made


class Executor:
    """Only the thread of the run calls it."""

    def __init__(self, trainable_ref: Any, is_class: bool) -> None:
        self._trainable = trainable_ref
        self.is_class = is_class
        self._kinds: dict[Any, Any] = {}  # actor classes by resources
        self._idle: dict[Any, list[Slot]] = {}
        self.calls: dict[Any, Slot] = {}  # by the reference of the answer

    # ---- trials ----

    def start(self, number: int, factory: PlacementGroupFactory, order: Any, reuse: bool) -> Slot:
        key = repr(factory)
        idle = self._idle.get(key)
        if reuse and idle:
            slot = idle.pop()
            slot.number = number
        else:
            slot = self._create(number, factory, key)
        self._call(slot, "start", slot.actor.start.remote(self._trainable, order))
        return slot

    def go_on(self, slot: Slot) -> None:
        self._call(slot, "go_on", slot.actor.go_on.remote())

    def save(self, slot: Slot) -> None:
        self._call(slot, "save", slot.actor.save.remote())

    def clone(self, slot: Slot, order: Any) -> None:
        self._call(slot, "clone", slot.actor.clone.remote(self._trainable, order))

    def stop(self, slot: Slot, keep: bool, running: bool) -> None:
        """Ends the trial of a process. `running`: its function has not returned. `keep`: another trial may use it."""
        if keep and not running:
            slot.actor.leave.remote()  # in order: a start that follows comes after it
            self._idle.setdefault(slot.key, []).append(slot)
        elif running or self.is_class:
            self._call(slot, "stop", slot.actor.stop.remote(keep))
        else:
            self.end(slot)

    def stopped(self, slot: Slot, reusable: bool) -> None:
        """The answer to `stop`."""
        if reusable:
            self._idle.setdefault(slot.key, []).append(slot)
        else:
            self.end(slot)

    def end(self, slot: Slot) -> None:
        _runtime.kill(slot.actor)
        if slot.group is not None:
            from ..util.placement_group import remove_placement_group

            remove_placement_group(slot.group)
            slot.group = None

    def end_idle(self) -> None:
        for slots in self._idle.values():
            for slot in slots:
                if self.is_class:
                    self._call(slot, "finish", slot.actor.finish.remote())
                else:
                    self.end(slot)
        self._idle = {}

    def end_all(self) -> None:
        """At once, whatever they do."""
        for slot in [*self.calls.values(), *(slot for slots in self._idle.values() for slot in slots)]:
            try:
                self.end(slot)
            except Exception:  # the cluster may be gone
                continue
        self.calls, self._idle = {}, {}

    # ---- processes ----

    def _call(self, slot: Slot, name: str, ref: Any) -> None:
        slot.call, slot.since = name, time.monotonic()
        self.calls[ref] = slot

    def _create(self, number: int, factory: PlacementGroupFactory, key: Any) -> Slot:
        if len(factory.bundles) > 1:
            return self._create_in_group(number, factory, key)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = ActorClass(Process, {}).options(**_ONCE, **options_of(factory.bundles[0]))
        return Slot(number, kind.remote(), None, key)

    def _create_in_group(self, number: int, factory: PlacementGroupFactory, key: Any) -> Slot:
        from ..util.scheduling_strategies import PlacementGroupSchedulingStrategy

        group = factory()
        head = {} if factory.head_bundle_is_empty else options_of(factory.bundles[0])
        strategy = PlacementGroupSchedulingStrategy(group, -1 if factory.head_bundle_is_empty else 0,
                                                    placement_group_capture_child_tasks=True)
        kind = ActorClass(Process, {}).options(**{"num_cpus": 0, **_ONCE, **head, "scheduling_strategy": strategy})
        return Slot(number, kind.remote(), group, key)


def options_of(bundle: dict[str, float]) -> dict[str, Any]:
    """A bundle as options of an actor."""
    others = {key: value for key, value in bundle.items() if key not in ("CPU", "GPU", "memory")}
    options: dict[str, Any] = {"num_cpus": bundle.get("CPU", 0)}
    if bundle.get("GPU"):
        options["num_gpus"] = bundle["GPU"]
    if bundle.get("memory"):
        options["memory"] = bundle["memory"]
    if others:
        options["resources"] = others
    return options
