"""HyperBandForBOHB, where Ray has it."""
from ._native import HyperBandForBOHB

__all__ = ["HyperBandForBOHB"]
