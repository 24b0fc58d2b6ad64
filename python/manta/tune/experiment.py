"""Experiment and Trial, where Ray has them."""
from ._trial import Trial
from ._tune_run import Experiment

__all__ = ["Experiment", "Trial"]
