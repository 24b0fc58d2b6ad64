"""ResourceChangingScheduler, where Ray has it."""
from ._resources import DistributeResources, DistributeResourcesToTopJob, ResourceChangingScheduler

__all__ = ["DistributeResources", "DistributeResourcesToTopJob", "ResourceChangingScheduler"]
