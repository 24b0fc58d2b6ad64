"""Cluster, under Ray's name: several nodes on this machine, for tests of programs that use many.

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    cluster.add_node(num_cpus=2, resources={"disk": 1})
    manta.init(address=cluster.address)
    ...
    manta.shutdown()
    cluster.shutdown()

Each node is a daemon of its own, started by the command ``manta start``. The folder of the cluster goes with it.
"""
from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Any

__all__ = ["Cluster", "ClusterNode"]

_STORE_BYTES = 150 << 20  # of a node that says nothing, as in Ray
_PATIENCE = 60  # seconds for a node to start or to end
# Node options of Ray's that say nothing here.
_WITHOUT_MEANING = {"dashboard_port", "include_dashboard", "redis_max_memory", "dashboard_host", "metrics_export_port",
                    "_system_config", "enable_object_reconstruction"}


class ClusterNode:
    """One node of a Cluster."""

    def __init__(self, name: str, pid: int, is_head: bool) -> None:
        self.node_id = self.unique_id = name
        self.pid = pid
        self._is_head = is_head

    def is_head(self) -> bool:
        return self._is_head

    def alive(self) -> bool:
        try:
            with open(f"/proc/{self.pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    def __repr__(self) -> str:
        return f"ClusterNode({self.node_id}, pid={self.pid})"


class Cluster:
    """Nodes that come and go. The first one runs beside the head, and programs of this process join there."""

    def __init__(self, initialize_head: bool = False, connect: bool = False,
                 head_node_args: dict[str, Any] | None = None, shutdown_at_exit: bool = True) -> None:
        if connect and not initialize_head:
            raise RuntimeError("connect=True needs initialize_head=True: there is no node to connect to")
        self.head_node: ClusterNode | None = None
        self.worker_nodes: set[ClusterNode] = set()
        self._folder = ""
        self._address = ""
        self._before: str | None = None
        self._count = 0
        if shutdown_at_exit:
            atexit.register(self.shutdown)
        if initialize_head:
            self.add_node(**(head_node_args or {}))
        if connect:
            self.connect()

    @property
    def address(self) -> str:
        """For ``init(address=...)``."""
        return self._address

    gcs_address = address

    @property
    def list_all_nodes(self) -> list[ClusterNode]:
        return [node for node in (self.head_node, *self.worker_nodes) if node is not None]

    def connect(self, namespace: str | None = None) -> None:
        from ._runtime import init

        init(address=self._address, namespace=namespace, ignore_reinit_error=True)

    def add_node(self, wait: bool = True, **options: Any) -> ClusterNode:
        """Starts a node: num_cpus (1), num_gpus, resources, labels, object_store_memory, memory. It has joined when
        this returns.
        """
        first = self.head_node is None
        self._count += 1
        name = f"n{self._count}"
        if first:
            self._folder = tempfile.mkdtemp(prefix="manta-cluster-")
            self._before = os.environ.get("MANTA_SECRETS")
            os.environ["MANTA_SECRETS"] = self._folder
        how = ["--head", "--listen", "127.0.0.1:0"] if first else ["--join", self._address]
        try:
            self._manta("start", *how, "--name", name, *_words(options))
        except BaseException:
            if first:
                self._forget()
            raise
        node = ClusterNode(name, self._pid_of(name), first)
        if first:
            self.head_node = node
            self._address = self._lines()[0][1]
        else:
            self.worker_nodes.add(node)
        return node

    def remove_node(self, node: ClusterNode, allow_graceful: bool = True) -> None:
        """Ends a node's daemon and all that runs there: at its request or, without `allow_graceful`, by SIGKILL."""
        if node is self.head_node:
            raise ValueError("the head's node ends with the cluster: call shutdown()")
        if node not in self.worker_nodes:
            raise ValueError(f"{node} is no node of this cluster")
        if node.alive():
            os.kill(node.pid, signal.SIGTERM if allow_graceful else signal.SIGKILL)
        _until(lambda: not node.alive(), f"{node} did not end")
        self.worker_nodes.discard(node)
        _until(lambda: node.node_id not in self._live(), f"the head still counts {node}")

    def wait_for_nodes(self, timeout: float = _PATIENCE) -> None:
        """Returns when the head knows all nodes; TimeoutError after that time."""
        wanted = {node.node_id for node in self.list_all_nodes}
        _until(lambda: self._live() == wanted, f"not all of {sorted(wanted)} have joined", timeout)

    def shutdown(self) -> None:
        """Ends all nodes and removes their folder."""
        atexit.unregister(self.shutdown)
        if self.head_node is None:
            return
        try:
            self._manta("stop")
        finally:
            self._forget()

    # ---- what is below ----

    def _manta(self, *words: str) -> str:
        command = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "manta")
        done = subprocess.run([command, "--secrets", self._folder, *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"`manta {words[0]}` failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _lines(self) -> list[list[str]]:
        with open(os.path.join(self._folder, "cluster")) as file:
            return [line.split() for line in file]

    def _pid_of(self, name: str) -> int:
        return next(int(line[1]) for line in self._lines() if line[0] == "node" and line[-1] == name)

    def _live(self) -> set[str]:
        rows = [line.split() for line in self._manta("nodes").splitlines()]
        return {row[1] for row in rows if len(row) > 2 and row[0].isdigit()}

    def _forget(self) -> None:
        if self._before is None:
            os.environ.pop("MANTA_SECRETS", None)
        else:
            os.environ["MANTA_SECRETS"] = self._before
        shutil.rmtree(self._folder, ignore_errors=True)
        self.head_node = None
        self.worker_nodes.clear()


def _words(options: dict[str, Any]) -> list[str]:
    """Of `manta start`."""
    given = {name: value for name, value in options.items() if value is not None and name not in _WITHOUT_MEANING}
    words = ["--cpus", f"{given.pop('num_cpus', 1):g}", "--store-bytes",
             str(int(given.pop("object_store_memory", _STORE_BYTES)))]
    if "num_gpus" in given:
        words += ["--gpus", str(int(given.pop("num_gpus")))]
    resources = dict(given.pop("resources", {}))
    if "memory" in given:
        resources["memory"] = -(-int(given.pop("memory")) // (1 << 20))
    for name, amount in resources.items():
        words += ["--resource", f"{name}={amount:g}"]
    for name, value in given.pop("labels", {}).items():
        words += ["--label", f"{name}={value}"]
    if given:
        raise NotImplementedError(f"add_node({next(iter(given))}=...) is not supported")
    return words


def _until(condition: Any, problem: str, seconds: float = _PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{problem} within {seconds:g} s")
        time.sleep(0.01)
