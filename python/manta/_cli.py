"""The command `manta` of a wheel: the engine's own program, which lies inside the package."""
from __future__ import annotations

import os
import sys


def main() -> None:
    if sys.argv[1:2] == ["tune"]:  # written in Python, and run by this interpreter
        from manta.tune._command import main as tune

        sys.exit(tune(sys.argv[2:]))
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "manta")
    os.execv(program, ["manta", *sys.argv[1:]])
