"""Manta: remote functions, actors and shared-memory objects, under the names that Ray's users know.

    import manta

    @manta.remote
    def square(x):
        return x * x

    print(manta.get([square.remote(i) for i in range(4)]))
"""
from __future__ import annotations

import importlib as _importlib
import pickle as _pickle
from typing import Any as _Any

from . import _absent as _absent_module
from . import _core, actor, exceptions, remote_function, runtime_context
from . import _errors as _errors_module
from . import _serialize as _serialize_module
from ._actor import ActorClass, ActorHandle, exit_actor, method
from ._aio import await_ref as _await_ref
from ._core import ObjectRef, get
from ._function import RemoteFunction
from ._ids import (
    ActorClassID,
    ActorID,
    ClassID,
    FunctionID,
    JobID,
    NodeID,
    PlacementGroupID,
    TaskID,
    UniqueID,
    WorkerID,
)
from ._progress import show as _show_progress
from ._runtime import (
    available_resources,
    cancel,
    cluster_resources,
    commit,
    get_actor,
    get_gpu_ids,
    get_runtime_context,
    init,
    is_initialized,
    kill,
    nodes,
    put,
    remote,
    shutdown,
    timeline,
    wait,
)
from ._stream import DynamicObjectRefGenerator, ObjectRefGenerator
from ._values import import_arrow as _import_arrow
from ._values import make_actor as _make_actor
from ._values import make_array as _make_array
from ._worker import begin_async as _begin_async
from ._worker import farewell as _farewell
from ._worker import leaving as _leaving
from ._worker import load_actor as _load_actor
from ._worker import load_function as _load_function
from ._worker import load_named as _load_named
from ._worker import save_actor as _save_actor
from ._worker import special as _special
from ._worker import step_async as _step_async

__version__ = "0.1.0"

_core.setup(dumps=_serialize_module.dumps, loads=_pickle.loads, load_function=_load_function,
            begin_async=_begin_async, step_async=_step_async, special=_special, save_actor=_save_actor,
            load_actor=_load_actor, describe=_errors_module.describe, rebuild=_errors_module.rebuild,
            errors=exceptions.BY_CODE, await_ref=_await_ref, progress=_show_progress, load_named=_load_named,
            make_array=_make_array, make_actor=_make_actor, import_arrow=_import_arrow, leaving=_leaving,
            farewell=_farewell)

ObjectID = ObjectRef
LOCAL_MODE, SCRIPT_MODE, WORKER_MODE = "local", "driver", "worker"  # worker_mode of a RuntimeContext
_LATER = ("cross_language", "runtime_env", "tune", "util")  # loaded when they are first used: most programs need none
_absent_module.install()


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        return _importlib.import_module(f"manta.{name}")
    if name in _absent_module.ABSENT:
        raise AttributeError(_absent_module.text_of(name))
    raise AttributeError(f"module 'manta' has no attribute {name!r}")


__all__ = [
    "ActorClass", "ActorClassID", "ActorHandle", "ActorID", "ClassID", "DynamicObjectRefGenerator", "FunctionID",
    "JobID", "NodeID", "ObjectID",
    "ObjectRef", "ObjectRefGenerator", "PlacementGroupID", "RemoteFunction", "TaskID", "UniqueID", "WorkerID",
    "actor", "available_resources", "cancel", "cluster_resources", "commit", "exceptions", "exit_actor", "get",
    "get_actor", "get_gpu_ids", "get_runtime_context", "init", "is_initialized", "kill", "method", "nodes", "put",
    "remote", "remote_function", "runtime_context", "shutdown", "timeline", "wait",
]
