"""PB2, where Ray has it."""
from ._population import PB2

__all__ = ["PB2"]
