"""Schedulers that change the resources of running trials, under Ray's names."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .trial_scheduler import FIFOScheduler, NativeScheduler, TrialScheduler, is_native

__all__ = ["DistributeResources", "DistributeResourcesToTopJob", "ResourceChangingScheduler"]


class DistributeResources:
    """Free CPUs and GPUs are shared evenly among the live trials."""

    top_job = False

    def __init__(self, add_bundles: bool = False, increase_by: dict[str, float] | None = None,
                 increase_by_times: int = -1, reserve_resources: dict[str, float] | None = None) -> None:
        self.options = {"add_bundles": add_bundles, "increase_by": increase_by or {},
                        "increase_by_times": increase_by_times, "reserve_resources": reserve_resources or {}}


class DistributeResourcesToTopJob(DistributeResources):
    """Free CPUs and GPUs go to the trial with the best value."""

    top_job = True

    def __init__(self, add_bundles: bool = False, increase_by: dict[str, float] | None = None,
                 increase_by_times: int = -1, reserve_resources: dict[str, float] | None = None,
                 metric: str | None = None, mode: str | None = None) -> None:
        super().__init__(add_bundles, increase_by, increase_by_times, reserve_resources)
        self.metric, self.mode = metric, mode


class ResourceChangingScheduler(NativeScheduler):
    """Wraps a scheduler. Where it lets a trial go on, the trial may get a larger or smaller placement group."""

    kind, pauses = "resource_changing", True

    def __init__(self, base_scheduler: TrialScheduler | None = None,
                 resources_allocation_function: Any = None) -> None:
        self._base = base_scheduler or FIFOScheduler()
        if not is_native(self._base):
            raise ValueError("ResourceChangingScheduler(base_scheduler=...): a scheduler written in Python cannot be "
                             "wrapped; change the resources in its own on_trial_result")
        self._allocate: Any = resources_allocation_function or DistributeResources()
        if not isinstance(self._allocate, DistributeResources) and not isinstance(self._allocate, Callable):  # type: ignore
            raise ValueError("ResourceChangingScheduler(resources_allocation_function=...): it must be a function, "
                             "DistributeResources or DistributeResourcesToTopJob")
        time_attr = getattr(self._base, "_time_attr", "training_iteration")
        super().__init__(time_attr, self._base.metric, self._base._mode)
        self.trial_of: Callable[[int], tuple[Any, Any, dict[str, Any]]] | None = None  # set by the run

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "trial_of": None}

    def spec(self, mode: str, seed: int | None, space: Any) -> tuple[str, dict[str, Any]]:
        base: Any = ("fifo", {})
        if isinstance(self._base, NativeScheduler):
            base = self._base.spec(mode, seed, space)
        options: dict[str, Any] = {"base": base}
        if isinstance(self._allocate, DistributeResources):
            options.update(self._allocate.options)
            options["top_job"] = self._allocate.top_job
            options["mode"] = getattr(self._allocate, "mode", None) or mode
        else:
            options["allocate"] = self._call
        return self.kind, options

    def _call(self, number: int, bundles: list[dict[str, float]]) -> list[dict[str, float]] | None:
        from .._resources import factory_of

        assert self.trial_of is not None
        controller, trial, result = self.trial_of(number)
        made = self._allocate(controller, trial, result, self)
        return None if made is None else factory_of(made, "resources_allocation_function").bundles
