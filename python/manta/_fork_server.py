"""``python -m manta._fork_server`` is started by the node's daemon, once for each driver. It loads what workers need and is
forked for each of them, so that a worker costs a fork. It never runs the user's program.
"""
from __future__ import annotations

import importlib
import os
import sys


def main() -> None:
    path = os.environ.pop("MANTA_PYTHON_PATH", None)
    if path is not None:
        sys.path[:] = path.split(os.pathsep)
    # Libraries of linear algebra would start a thread per core in each worker; and with threads no process can be forked.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from manta import _core, _serialize

    _serialize.cloudpickle()
    for name in os.environ.pop("MANTA_PYTHON_PRELOAD", "").split():
        importlib.import_module(name)
    _core.serve_forks()
    sys.exit("manta._fork_server is started by mantad: there is nothing to do here")


if __name__ == "__main__":
    main()
