"""TuneBOHB, where Ray has it: the native BOHBSearch."""
from ._native import BOHBSearch as TuneBOHB

__all__ = ["TuneBOHB"]
