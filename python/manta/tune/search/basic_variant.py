"""BasicVariantGenerator, where Ray has it."""
from ._native import BasicVariantGenerator

__all__ = ["BasicVariantGenerator"]
