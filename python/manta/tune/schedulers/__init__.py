"""Schedulers, under Ray's names. They are native; a user's subclass of TrialScheduler runs in Python."""
from __future__ import annotations

from typing import Any

from ..error import suggestion
from ._native import (
    ASHAScheduler,
    AsyncHyperBandScheduler,
    HyperBandForBOHB,
    HyperBandScheduler,
    MedianStoppingRule,
)
from ._population import PB2, PopulationBasedTraining, PopulationBasedTrainingReplay
from ._resources import DistributeResources, DistributeResourcesToTopJob, ResourceChangingScheduler
from .trial_scheduler import FIFOScheduler, TrialScheduler

__all__ = ["ASHAScheduler", "AsyncHyperBandScheduler", "DistributeResources", "DistributeResourcesToTopJob",
           "FIFOScheduler", "HyperBandForBOHB", "HyperBandScheduler", "MedianStoppingRule", "PB2",
           "PopulationBasedTraining", "PopulationBasedTrainingReplay", "ResourceChangingScheduler",
           "SCHEDULER_IMPORT", "TrialScheduler", "create_scheduler"]

SCHEDULER_IMPORT: dict[str, type[Any]] = {
    "fifo": FIFOScheduler, "async_hyperband": AsyncHyperBandScheduler, "asynchyperband": AsyncHyperBandScheduler,
    "asha": AsyncHyperBandScheduler, "median_stopping_rule": MedianStoppingRule, "medianstopping": MedianStoppingRule,
    "hyperband": HyperBandScheduler, "hb_bohb": HyperBandForBOHB, "pbt": PopulationBasedTraining,
    "pbt_replay": PopulationBasedTrainingReplay, "pb2": PB2, "resource_changing": ResourceChangingScheduler,
}


def create_scheduler(scheduler: str, **kwargs: Any) -> Any:
    """A scheduler by its name."""
    name = scheduler.lower()
    if name not in SCHEDULER_IMPORT:
        raise ValueError(f"scheduler={scheduler!r} is not the name of a scheduler.{suggestion(name, SCHEDULER_IMPORT)}")
    return SCHEDULER_IMPORT[name](**kwargs)
