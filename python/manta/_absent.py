"""Modules of Ray's that Manta does not have: an import of one says so, and what to do instead."""
from __future__ import annotations

import sys
from typing import Any

_USE_TASKS = "build it from tasks, actors and manta.util, or run the library on its own"
ABSENT = {
    **dict.fromkeys(("data", "train", "serve", "rllib", "air", "llm", "workflow"), _USE_TASKS),
    "dag": "call remote, and pass the ObjectRefs on",
    "job_submission": "start the program itself: it joins the cluster with manta.init(address=...)",
    "autoscaler": "start nodes with `manta start`",
    "dashboard": "use `manta status` and `manta top`",
    "client": "start a node on this machine with `manta start --join`",
    "experimental": _USE_TASKS,
    "internal": _USE_TASKS,
    "util.state": "use `manta status`, manta.nodes() and manta.util.list_named_actors()",
    "util.metrics": "write your own metrics from the tasks",
    "util.collective": "use torch.distributed or mpi4py inside actors",
    "util.dask": _USE_TASKS,
    "util.spark": _USE_TASKS,
    "util.iter": "use generators: tasks that yield",
    "util.tracing": "use manta.timeline()",
}


def text_of(name: str) -> str:
    return f"Manta has no module manta.{name}, which Ray has: {ABSENT[name]}"


class _Finder:
    """Asked after all others: it costs nothing unless a module was not found."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        short = name.removeprefix("manta.")
        if short != name and short in ABSENT:
            # No ModuleNotFoundError: `from manta import data` would replace its text.
            raise ImportError(text_of(short), name=name)


def install() -> None:
    if not any(type(finder) is _Finder for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
