"""The command `manta` of a wheel: the engine's own program, which lies inside the package."""
from __future__ import annotations

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "manta")
    os.execv(program, ["manta", *sys.argv[1:]])
