"""The interpreter that workers are forks of. The node's daemon starts it, once for each driver, with the command that
`command` makes; it loads what workers need, and serves. It never runs the user's program.
"""
from __future__ import annotations

import os
import sys

# Modules that a driver has loaded and its workers will want, too: loaded once here, they are shared.
PRELOAD = ("numpy", "asyncio", "torch")

# Sets have the same order in all workers of a job, whatever node they are on: what an actor or a task does a second
# time, in another process, it does the same way. That is decided when an interpreter starts, so it starts once more.
_START = """import json, os, sys
order = json.loads(sys.argv[1])
if os.environ.get("PYTHONHASHSEED") != order["hash_seed"]:
    os.environ["PYTHONHASHSEED"] = order["hash_seed"]
    os.execv(sys.executable, sys.orig_argv)
sys.path[:] = order["path"]
from manta._fork_server import main
main(order)
"""


def command(variables: dict[str, str], job: str | None = None) -> list[str]:
    """The words that start it, as this process sees modules now. In words, not in the environment: the daemon of a
    cluster that ran before knows only the environment that this process was started with.
    """
    import json
    import subprocess
    import zlib

    # -E, -O, -X … as here, since they decide what the same source means; but not -i, which waits for a terminal.
    flags = [word for word in subprocess._args_from_interpreter_flags() if word != "-i"]  # type: ignore[attr-defined]
    order = {
        "path": [entry or os.getcwd() for entry in sys.path],
        "preload": [*(name for name in PRELOAD if name in sys.modules),
                    *(["manta.tune._process"] if "manta.tune" in sys.modules else [])],  # a trial's part of it
        "variables": variables,
        "hash_seed": _hash_seed(zlib.crc32(job.encode()) if job else int.from_bytes(os.urandom(4), "little")),
    }
    return [sys.executable or "python3", *flags, "-c", _START, json.dumps(order)]


def _hash_seed(chosen: int) -> str:
    given = os.environ.get("PYTHONHASHSEED", "random")
    return given if given != "random" else str(chosen)


def main(order: dict[str, object]) -> None:
    import gc
    import importlib

    os.environ.update(order["variables"])  # type: ignore[call-overload]
    # Libraries of linear algebra would start a thread per core in each worker; and a server with threads cannot fork.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.argv = [""]
    from manta import _core, _serialize

    if "MANTA_REPLAY" in os.environ:  # serve_forks runs a recorded task here and then ends the process at once
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[attr-defined]
    _serialize.cloudpickle()
    for name in order["preload"]:  # type: ignore[attr-defined]
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a worker must not touch, and so copy, what all of them share
    _core.serve_forks()
    sys.exit("manta._fork_server is started by mantad: there is nothing to do here")
