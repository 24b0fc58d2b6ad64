"""The schedulers of the C++ library that stop or pause trials."""
from __future__ import annotations

from typing import Any

from .trial_scheduler import NativeScheduler

__all__ = ["ASHAScheduler", "AsyncHyperBandScheduler", "HyperBandForBOHB", "HyperBandScheduler", "MedianStoppingRule"]


class AsyncHyperBandScheduler(NativeScheduler):
    """ASHA. `promote` is Manta's own: trials pause at a milestone and go on when they are among the best."""

    kind = "asha"

    def __init__(self, time_attr: str = "training_iteration", metric: str | None = None, mode: str | None = None,
                 max_t: float = 100, grace_period: float = 1, reduction_factor: float = 4, brackets: int = 1,
                 stop_last_trials: bool = True, promote: bool = False) -> None:
        if max_t <= 0:
            raise ValueError(f"ASHAScheduler(max_t={max_t}): it must be above 0")
        if max_t < grace_period:
            raise ValueError(f"ASHAScheduler(grace_period={grace_period}): it must not exceed max_t, {max_t}")
        if reduction_factor <= 1:
            raise ValueError(f"ASHAScheduler(reduction_factor={reduction_factor}): it must be above 1")
        if brackets < 1:
            raise ValueError(f"ASHAScheduler(brackets={brackets}): it must be 1 or more")
        super().__init__(time_attr, metric, mode, max_t=max_t, grace_period=grace_period,
                         reduction_factor=reduction_factor, brackets=brackets, stop_last_trials=stop_last_trials,
                         promote=promote)
        self.pauses = promote

    def spec(self, mode: str, seed: int | None, space: Any) -> tuple[str, dict[str, Any]]:
        kind, options = super().spec(mode, seed, space)
        return kind, {**options, "seed": seed or 0}


ASHAScheduler = AsyncHyperBandScheduler


class HyperBandScheduler(NativeScheduler):
    """Synchronous HyperBand: trials are paused with a checkpoint, and the best ones are resumed."""

    kind, pauses = "hyperband", True

    def __init__(self, time_attr: str = "training_iteration", metric: str | None = None, mode: str | None = None,
                 max_t: int = 81, reduction_factor: float = 3, stop_last_trials: bool = True) -> None:
        if max_t <= 0:
            raise ValueError(f"{type(self).__name__}(max_t={max_t}): it must be above 0")
        super().__init__(time_attr, metric, mode, max_t=max_t, reduction_factor=reduction_factor,
                         stop_last_trials=stop_last_trials)


class HyperBandForBOHB(HyperBandScheduler):
    """The HyperBand that BOHBSearch needs: the largest bracket is filled first."""

    kind = "hyperband_bohb"


class MedianStoppingRule(NativeScheduler):
    """Stops a trial whose best result is worse than the median of the others' means."""

    kind = "median"

    def __init__(self, time_attr: str = "time_total_s", metric: str | None = None, mode: str | None = None,
                 grace_period: float = 60.0, min_samples_required: int = 3, min_time_slice: float = 0,
                 hard_stop: bool = True) -> None:
        super().__init__(time_attr, metric, mode, grace_period=grace_period,
                         min_samples_required=min_samples_required, min_time_slice=min_time_slice, hard_stop=hard_stop)
        self.pauses = not hard_stop
