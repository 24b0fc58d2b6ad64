"""init, shutdown, and the calls that are not on the hot path."""
from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, overload

from . import _core, _fork_server, _options, _surroundings
from ._actor import ActorClass, ActorHandle, found
from ._actor import own as own_actor
from ._function import RemoteFunction
from ._ids import PlacementGroupID
from .exceptions import InitializedError, InvalidError, NotFoundError

T = TypeVar("T")
R = TypeVar("R")

_lock = threading.Lock()
_in_worker = False


class ClientContext(dict):  # type: ignore[type-arg]
    """What ``init`` returns: a dictionary, and a context manager that shuts down."""

    @property
    def address_info(self) -> dict[str, Any]:
        return dict(self)

    @property
    def dashboard_url(self) -> str:
        return ""  # there is none

    def __enter__(self) -> ClientContext:
        return self

    def __exit__(self, *_: object) -> None:
        shutdown()

    def disconnect(self) -> None:
        shutdown()


def init(
    address: str | None = None,
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    object_store_memory: int | None = None,
    namespace: str | None = None,
    ignore_reinit_error: bool = False,
    log_to_driver: bool = True,
    runtime_env: dict[str, Any] | None = None,
    labels: dict[str, str] | None = None,
    quota: dict[str, float] | None = None,
    configure_logging: bool = True,
    logging_level: int | str | None = None,
    logging_format: str | None = None,
    job: str | None = None,
    resume: bool = False,
    keep_lineage: bool = False,
    lineage_memory: int | None = None,
    _temp_dir: str | None = None,
    **others: Any,
) -> ClientContext:
    """Joins the cluster that $MANTA_ADDRESS names, else the one that ``manta start`` started on this machine, else
    starts a private one. Who says how large its cluster is to be (num_cpus, num_gpus, resources, labels,
    object_store_memory, lineage_memory, _temp_dir) means a private one, too.

    `address`: "auto" is the one that runs here, and it is an error if there is none; "local" a private one, whatever
    runs here; else a node's, as "@manta-1000-4711", or of the head of a cluster with a node here, as "10.0.0.7:6400".

    `quota` is what this program may have at a time, on all nodes together, as {"CPU": 4}. With a `job`, what the
    program does is kept on disk until it ends well (doc/lineage.md), or for ever with `keep_lineage`; after a crash,
    `resume` takes it up: calls that had ended do not run again.
    Options of Ray's that do nothing here raise, unless they ask for what is so anyway.
    """
    _check_others(others)
    own = {"num_cpus": num_cpus, "num_gpus": num_gpus, "resources": resources, "labels": labels,
           "object_store_memory": object_store_memory, "lineage_memory": lineage_memory, "_temp_dir": _temp_dir}
    joined = address or os.environ.get("MANTA_ADDRESS")
    for name, value in own.items():
        if value is not None and joined not in (None, "", "local", "private"):
            said = "" if address else ", which MANTA_ADDRESS names,"
            raise ValueError(f"init({name}=...) is for a cluster that is started here; the one at {joined!r}{said} is "
                             "what it is: leave it out, or say address=\"local\" for a cluster of your own")
    if num_cpus is not None and num_cpus < 0:
        raise ValueError(f"num_cpus={num_cpus}: it must be 0 or more")
    if num_gpus is not None and num_gpus < 0:
        raise ValueError(f"num_gpus={num_gpus}: it must be 0 or more")
    if object_store_memory is not None and object_store_memory <= 0:
        raise ValueError(f"object_store_memory={object_store_memory}: it must be a number of bytes above 0")
    if lineage_memory is not None and lineage_memory <= 0:
        raise ValueError(f"lineage_memory={lineage_memory}: it must be a number of bytes above 0")
    if labels is not None and not all(isinstance(part, str) for pair in labels.items() for part in pair):
        raise ValueError(f"labels={labels!r}: it must be a dictionary of strings")
    if namespace is not None and (not isinstance(namespace, str) or not namespace):
        error = ValueError if isinstance(namespace, str) else TypeError
        raise error(f"namespace={namespace!r}: it must be a text with something in it")
    if job is not None and not job:
        raise ValueError("job='': a job that is kept on disk needs a name")
    if (resume or keep_lineage) and not job:
        raise ValueError(f"{'resume' if resume else 'keep_lineage'}=True needs job=..., the name that it is kept under")
    if address == "local":
        address = "private"
    if _in_worker:
        return _context()
    with _lock:
        if _core.is_initialized():
            if ignore_reinit_error:
                return _context()
            raise InitializedError(
                "manta.init was called before; call manta.shutdown() first, or ignore_reinit_error=True")
        env = _options.check_runtime_env(runtime_env or {})
        cpus = _NO_CPUS if num_cpus == 0 else float(num_cpus or 0)
        _core.init(_fork_server.command(env, job), cpus, float(num_gpus or 0),
                   _amounts("resources", resources), int(object_store_memory or 0), _temp_dir or "", address or "",
                   namespace or "default", log_to_driver, labels or {}, _amounts("quota", quota), job or "", resume,
                   keep_lineage, int(lineage_memory or 0))
        _core.next_session()
    _set_up_logging(configure_logging, logging_level, logging_format)
    _warm_up()
    return _context()


_NO_CPUS = -1.0  # for _core.init, in which 0 means all there are
# Of Ray's init: what may be said because it is so, and why it cannot be otherwise.
_OTHERS: dict[str, tuple[tuple[Any, ...], str]] = {
    "include_dashboard": ((None, False), "there is no dashboard yet"),
    "dashboard_host": ((None,), "there is no dashboard yet"),
    "dashboard_port": ((None,), "there is no dashboard yet"),
    "local_mode": ((None, False), "start with num_cpus=1 to run one task at a time"),
    "job_config": ((None,), "use namespace= and runtime_env="),
    "logging_config": ((None,), "use logging_level="),
    "enable_resource_isolation": ((None, False), "there is none"),
    "_system_config": ((None,), "the engine has no knobs"),
    "_node_ip_address": ((None,), "start nodes with `manta start`"),
    "_redis_password": ((None,), "clusters are joined with a token: see `manta start`"),
    "_memory": ((None,), "use resources={'memory': ...}"),
}


def _amounts(option: str, given: dict[str, float] | None) -> dict[str, float]:
    try:
        return {key: float(value) for key, value in (given or {}).items()}
    except (TypeError, ValueError, AttributeError):
        raise InvalidError(f"manta.init({option}={given!r}): give a dict of amounts, as {{'CPU': 4}}") from None


def _check_others(others: dict[str, Any]) -> None:
    for name, value in others.items():
        if name not in _OTHERS:
            import difflib
            import inspect

            known = [*inspect.signature(init).parameters, *_OTHERS]
            close = difflib.get_close_matches(name, known, 1)
            raise ValueError(f"init has no option {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        allowed, why = _OTHERS[name]
        if value not in allowed:
            raise NotImplementedError(f"init({name}={value!r}) is not supported: {why}")


def _set_up_logging(configure: bool, level: int | str | None, text: str | None) -> None:
    """The logger "manta" says what is started. The module is loaded only for who asks: it takes 10 ms."""
    import sys

    if level is None and text is None and "logging" not in sys.modules:
        return
    import logging

    logger = logging.getLogger("manta")
    if level is not None:
        logger.setLevel(level.upper() if isinstance(level, str) else level)
    if configure and (level is not None or text is not None) and not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(text or "%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
    logger.info("in a cluster with %s", ", ".join(f"{name} {amount:g}" for name, amount in cluster_resources().items()))


def _nothing() -> None:
    pass


def _warm_up() -> None:
    """The interpreter that workers are forked from has started when this returns; the first task then takes
    milliseconds. A cluster that is busy or has no CPU free is not waited for.
    """
    ref = _make_remote(_nothing, {"num_cpus": 0}).remote()
    _core.wait([ref], 1, 5, False)


def _context() -> ClientContext:
    return ClientContext(node_id=_core.context()[2], namespace=_core.context()[5])


def auto_init() -> None:
    """As Ray: the first use of a program that called no init does it."""
    if not _in_worker and not _core.is_initialized():
        init(ignore_reinit_error=True)


def shutdown() -> None:
    """Ends all tasks and actors of this program, shows their last output, and leaves. Called at exit, too."""
    if _in_worker:
        return
    with _lock:
        if _core.is_initialized():
            _core.shutdown()
            _core.next_session()


atexit.register(shutdown)


def commit() -> None:
    """Returns when all that this program has seen is on disk: before output leaves that must not be contradicted later.
    For programs with ``init(job=...)``.
    """
    auto_init()
    _core.commit()


def is_initialized() -> bool:
    return _core.is_initialized()


@overload
def remote(thing: type[T], /) -> ActorClass[T]: ...  # type: ignore[misc]
@overload
def remote(thing: Callable[..., R], /) -> RemoteFunction[R]: ...
@overload
def remote(**options: Any) -> _Decorator: ...
def remote(*args: Any, **options: Any) -> Any:
    """Makes a function or a class remote: ``@manta.remote``, or ``@manta.remote(num_cpus=2)``."""
    if len(args) == 1 and not options and callable(args[0]):
        return _make_remote(args[0], {})
    if args or not options:
        raise TypeError("use @manta.remote, or @manta.remote(num_cpus=..., ...) with named options")

    def decorate(thing: Any) -> Any:
        return _make_remote(thing, options)

    return decorate


class _Decorator(Protocol):
    @overload
    def __call__(self, thing: type[T], /) -> ActorClass[T]: ...  # type: ignore[misc]
    @overload
    def __call__(self, thing: Callable[..., R], /) -> RemoteFunction[R]: ...
    def __call__(self, thing: Any, /) -> Any: ...


def _make_remote(thing: Any, options: dict[str, Any]) -> Any:
    if isinstance(thing, (RemoteFunction, ActorClass)):
        raise TypeError(f"{thing!r} is remote already")
    if isinstance(thing, type):
        return ActorClass(thing, _options.check(options, _options.ACTOR, f"actor class {thing.__qualname__}"))
    name = getattr(thing, "__qualname__", repr(thing))
    return RemoteFunction(thing, _options.check(options, _options.TASK, f"remote function {name}"))


def put(value: R, *, durable: bool = False) -> _core.ObjectRef[R]:
    """Stores a value where every task can read it. With `durable` it returns when the value is on disk, and the value
    survives the process and the node that have put it: it is in the cluster's control store or, on a private node, in
    the folder of the job, which must have a name (``init(job=...)``). It must have no ObjectRefs in it: see
    doc/lineage.md.
    """
    if type(value) is _core.ObjectRef:
        raise TypeError("put of an ObjectRef is not allowed: it names a stored value already")
    if not _core.is_initialized():
        auto_init()
    return _core.put_durable(value) if durable else _core.put(value)


@overload
def wait(object_refs: Sequence[_core.ObjectRef[R]], *, num_returns: int = ..., timeout: float | None = ...,
         fetch_local: bool = ...) -> tuple[list[_core.ObjectRef[R]], list[_core.ObjectRef[R]]]: ...
@overload
def wait(object_refs: Sequence[Any], *, num_returns: int = ..., timeout: float | None = ...,
         fetch_local: bool = ...) -> tuple[list[Any], list[Any]]: ...
def wait(object_refs: Sequence[Any], *, num_returns: int = 1, timeout: float | None = None,
         fetch_local: bool = True) -> tuple[list[Any], list[Any]]:
    """(ready, rest), both in the order given; `ready` never has more than `num_returns`. With `fetch_local`, a value
    that another node's store has is brought here, and ready when it has come. A generator is ready when ``next`` of it
    would not wait.
    """
    if isinstance(object_refs, _core.ObjectRef):
        raise TypeError("wait takes a list of ObjectRefs, not one")
    refs = object_refs if type(object_refs) is list else list(object_refs)
    if not refs:
        return [], []
    if num_returns < 1 or num_returns > len(refs):
        raise ValueError(f"wait: num_returns={num_returns} of {len(refs)} values; it must be 1 to their number")
    if _core.all_refs(refs):
        return _core.wait(refs, num_returns, timeout, fetch_local)
    if len(set(refs)) != len(refs):
        raise ValueError("wait: the list has an ObjectRef twice")
    return _wait_for_generators(list(refs), num_returns, timeout, fetch_local)


def _wait_for_generators(given: list[Any], count: int, timeout: float | None,
                         fetch_local: bool) -> tuple[list[Any], list[Any]]:
    from ._stream import ObjectRefGenerator

    refs = [one.pending() if isinstance(one, ObjectRefGenerator) else one for one in given]
    open_refs = [ref for ref in refs if ref is not None]
    missing = count - (len(refs) - len(open_refs))  # those that have ended are ready
    ready = set(_core.wait(open_refs, missing, timeout, fetch_local)[0]) if missing > 0 else set()
    first = [one for one, ref in zip(given, refs, strict=True) if ref is None or ref in ready][:count]
    return first, [one for one in given if not any(one is taken for taken in first)]


def cancel(object_ref: Any, *, force: bool = False, recursive: bool = True) -> None:
    """A queued task is dropped; a running one gets KeyboardInterrupt, or with `force` its process is killed. With
    `recursive`, what a task that stops has started and not awaited is cancelled, too.
    """
    from ._stream import ObjectRefGenerator

    if isinstance(object_ref, ObjectRefGenerator):
        object_ref.close()
        return
    _core.cancel(object_ref, force, recursive)


def kill(actor: ActorHandle[Any], *, no_restart: bool = True) -> None:
    """Ends an actor at once, whatever it does."""
    if not isinstance(actor, ActorHandle):
        raise ValueError(f"kill takes an actor's handle, not {type(actor).__qualname__}; for a task use cancel")
    _core.kill_actor(actor._actor, not no_restart)


def get_actor(name: str, namespace: str | None = None) -> ActorHandle[Any]:
    """The live actor of that name; ValueError if there is none."""
    if not name:
        raise ValueError("get_actor needs a name")
    auto_init()
    try:
        actor = _core.find_actor(name, namespace or "")
    except NotFoundError as problem:
        raise ValueError(f"there is no actor named {name!r}: {problem}") from None
    return found(actor, name)


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """The names of the live named actors of this program's namespace, or ``{"namespace": ..., "name": ...}`` of all."""
    auto_init()
    rows = _core.list_names("" if all_namespaces else _core.context()[5])
    return [{"namespace": space, "name": name} for space, name in rows] if all_namespaces else [row[1] for row in rows]


def _in_bytes(amounts: dict[str, float]) -> dict[str, float]:
    return {name: amount * (_options.MEBIBYTE if name == "memory" else 1) for name, amount in amounts.items()}


def cluster_resources() -> dict[str, float]:
    """What all live nodes have together."""
    auto_init()
    return _with_stores(_core.cluster_resources())


def available_resources() -> dict[str, float]:
    """The free resources. object_store_memory is the size of the stores: they evict values when they need room."""
    auto_init()
    return _with_stores(_core.available_resources())


def _with_stores(amounts: dict[str, float]) -> dict[str, float]:
    size = sum(row[10] for row in _core.nodes() if row[7])
    return {**_in_bytes(amounts), "object_store_memory": float(size)}


def nodes() -> list[dict[str, Any]]:
    """All nodes that the cluster's head has seen since it started, also dead ones (``Alive`` is False)."""
    auto_init()
    # A node that is started again under the name of a dead one has a higher number, and stands for both.
    return [_node_of(*row) for row in {row[1]: row for row in _core.nodes()}.values()]


def _node_of(number: int, name: str, draining: bool, here: bool, labels: dict[str, str], resources: dict[str, float],
             available: dict[str, float], alive: bool, address: str, why: str, store: int) -> dict[str, Any]:
    import socket

    host, _, port = address.rpartition(":")
    stored = {"object_store_memory": float(store)}
    return {"NodeID": name, "Alive": alive, "alive": alive, "Draining": draining, "NodeName": host or "127.0.0.1",
            "NodeManagerAddress": host.strip("[]") or "127.0.0.1", "NodeManagerPort": int(port or 0),
            "NodeManagerHostname": socket.gethostname() if here else name, "Labels": labels, "DeathReasonMessage": why,
            "Resources": {**_in_bytes(resources), **stored} if alive else {},
            "AvailableResources": {**_in_bytes(available), **stored} if alive else {}}


def get_node_ip_address() -> str:
    """Where other nodes reach this process's node."""
    own = get_runtime_context().get_node_id()
    return next((str(node["NodeManagerAddress"]) for node in nodes() if node["NodeID"] == own), "127.0.0.1")


def timeline(filename: str | None = None) -> list[dict[str, Any]] | None:
    """When the tasks and methods of this program ran on each node, the last 65,536 of each: as events for
    chrome://tracing or Perfetto, a process in them being a node. Returned, or written to the file.
    """
    from .util.scheduling_strategies import NodeAffinitySchedulingStrategy

    auto_init()
    read = _make_remote(_read_timeline, {"num_cpus": 0, "name": "timeline"})
    names = [node["NodeID"] for node in nodes() if node["Alive"]]
    there = [NodeAffinitySchedulingStrategy(name, soft=True) for name in names]  # soft: it may die meanwhile
    rows = [read.options(scheduling_strategy=strategy).remote() for strategy in there]
    events: list[dict[str, Any]] = []
    seen: set[str] = set()
    for node, calls in _core.get(rows):
        if node not in seen:
            events += _events_of(node, len(seen) + 1, calls)
            seen.add(node)
    if filename is None:
        return events
    import json

    with open(filename, "w") as file:
        json.dump(events, file)
    return None


def _events_of(node: str, number: int, calls: list[Any]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"node {node}"}}]
    workers: set[int] = set()
    for label, pid, thread, begin, end, failed in sorted(calls, key=lambda row: int(row[3])):
        if thread not in workers:
            workers.add(thread)
            events.append({"ph": "M", "name": "thread_name", "pid": number, "tid": thread,
                           "args": {"name": f"worker:{pid}" + (f" thread:{thread}" if thread != pid else "")}})
        events.append({"ph": "X", "cat": "task", "name": label, "pid": number, "tid": thread, "ts": begin,
                       "dur": end - begin, "args": {"worker": pid, "node": node, "failed": failed}})
    return events


def _read_timeline() -> tuple[str, list[tuple[str, int, int, int, int, bool]]]:
    return _core.context()[2], _core.timeline()


def _own_call() -> tuple[str, str]:
    """The name and the id of the running task or call."""
    import sys

    loop = sys.modules.get("manta._async_actor")  # of an actor with coroutines, whose calls take turns on one thread
    found = loop.own_call() if loop is not None else None
    return found or _core.context()[:2]


class RuntimeContext:
    """Where this code runs."""

    def get_task_id(self) -> str | None:
        return _own_call()[1] or None

    def get_task_name(self) -> str | None:
        return _own_call()[0] or None

    def get_task_function_name(self) -> str | None:
        """The module and the name of the function or method that runs, whatever the task's name is."""
        import sys

        if not _in_worker:
            return None
        frames: list[Any] = [sys._getframe(1)]
        while frames[-1].f_back is not None:
            frames.append(frames[-1].f_back)
        for frame in reversed(frames):  # the engine calls from C++; loops and wrappers may stand in between
            module = str(frame.f_globals.get("__name__", ""))
            if frame.f_code.co_name == "<module>":  # of the server that this process is a fork of
                continue
            if module.partition(".")[0] not in ("manta", "asyncio", "concurrent", "threading"):
                return f"{module}.{frame.f_code.co_qualname}".replace("<locals>.", "")
        return None

    def is_canceled(self) -> bool:
        """Inside a task: has cancel been called for it?"""
        import sys

        if not _in_worker:
            raise RuntimeError("is_canceled is for tasks and the methods of actors")
        if "asyncio" in sys.modules and sys.modules["asyncio"]._get_running_loop() is not None:
            raise RuntimeError("is_canceled is not for coroutines: they get asyncio.CancelledError")
        return _core.is_own_cancelled()

    def get_node_labels(self) -> dict[str, str]:
        """Of the node where this runs."""
        own = self.get_node_id()
        return next((dict(node["Labels"]) for node in nodes() if node["NodeID"] == own), {})

    def get_resource_ids(self) -> dict[str, list[str]]:
        return self.get_accelerator_ids()

    @property
    def current_placement_group_id(self) -> PlacementGroupID:
        return PlacementGroupID(_surroundings.current())

    @property
    def should_capture_child_tasks_in_placement_group(self) -> bool:
        return _surroundings.hands_on()

    def get_node_id(self) -> str:
        return str(_core.context()[2])

    def get_actor_id(self) -> str | None:
        return _core.own_actor() or None

    @property
    def current_actor(self) -> ActorHandle[Any]:
        """Inside an actor: a handle of it, to be given to others."""
        handle = _core.own_handle()
        if handle is None:
            raise RuntimeError("current_actor is for the methods of an actor")
        return own_actor(handle)

    def get_worker_id(self) -> str:
        """The number of its process, with its node's name: pids are unique on a machine only."""
        return f"{_core.context()[2]}:{os.getpid()}"

    def get_job_id(self) -> str:
        return _core.job()

    def get_actor_name(self) -> str | None:
        """Of a named actor, inside it."""
        return _core.own_actor_name() or None

    def get_assigned_resources(self) -> dict[str, float]:
        """What the running task or actor holds, as {"CPU": 1.0}; empty in the driver."""
        return _in_bytes(_core.assigned_resources())

    @property
    def was_current_actor_reconstructed(self) -> bool:
        """Inside an actor: has it come back after its process or machine died?"""
        if not _core.own_actor():
            raise RuntimeError("was_current_actor_reconstructed is for the methods of an actor")
        return _core.was_restarted()

    @property
    def gcs_address(self) -> str:
        raise NotImplementedError("there is no gcs_address: programs join with manta.init(address=...), see "
                                  "doc/clusters.md")

    @property
    def runtime_env(self) -> dict[str, Any]:
        raise NotImplementedError("the runtime_env is not kept; its env_vars are in os.environ")

    @property
    def job_id(self) -> str:
        return self.get_job_id()

    @property
    def node_id(self) -> str:
        return self.get_node_id()

    @property
    def task_id(self) -> str | None:
        return self.get_task_id()

    @property
    def actor_id(self) -> str | None:
        return self.get_actor_id()

    @property
    def worker_id(self) -> str:
        return self.get_worker_id()

    def get(self) -> dict[str, Any]:
        """All of it at once."""
        out: dict[str, Any] = {"job_id": self.get_job_id(), "node_id": self.get_node_id(),
                               "worker_id": self.get_worker_id(), "namespace": self.namespace}
        if _in_worker:
            out["task_id"] = self.get_task_id()
            if self.get_actor_id():
                out["actor_id"] = self.get_actor_id()
        return out

    @property
    def namespace(self) -> str:
        """Of the job: what ``init`` was told, also in its tasks and actors."""
        return _core.context()[5]

    def get_placement_group_id(self) -> str | None:
        return _surroundings.current() or None

    def get_accelerator_ids(self) -> dict[str, list[str]]:
        return {"GPU": [str(gpu) for gpu in get_gpu_ids()]}

    @property
    def worker_mode(self) -> str:
        return "worker" if _in_worker else "driver"


def get_runtime_context() -> RuntimeContext:
    auto_init()
    return RuntimeContext()


def get_gpu_ids() -> list[int]:
    """The GPUs of the running task or actor, as in CUDA_VISIBLE_DEVICES."""
    return list(_core.context()[4])
