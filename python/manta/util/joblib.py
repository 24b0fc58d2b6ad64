"""A backend of joblib, and so of scikit-learn, whose calls are tasks of the cluster.

    import joblib
    from manta.util.joblib import register_manta

    register_manta()
    with joblib.parallel_backend("manta"):
        joblib.Parallel()(joblib.delayed(pow)(i, 2) for i in range(10))

``register_ray`` registers the same under Ray's name, "ray". Needs the package joblib.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, register_parallel_backend

from .. import _core
from .._runtime import auto_init, cluster_resources, remote

__all__ = ["register_manta", "register_ray"]


def _call(batch: Callable[[], Any]) -> Any:
    return batch()


class _Job:
    """What joblib waits for: a batch of calls that is under way."""

    def __init__(self, ref: Any, callback: Callable[[Any], None] | None) -> None:
        self.ref = ref
        if callback is not None:
            ref.future().add_done_callback(lambda done: None if _failed(done) else callback(done))

    def get(self, timeout: float | None = None) -> Any:
        return _core.get(self.ref, timeout=timeout)


def _failed(done: Any) -> bool:
    return bool(done.cancelled()) or done.exception() is not None


class MantaBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    """Small calls travel in batches, which grow until one takes a fifth of a second."""

    supports_sharedmem = False
    uses_threads = False

    def __init__(self, nesting_level: int | None = None, inner_max_num_threads: int | None = None,
                 ray_remote_args: dict[str, Any] | None = None, **others: Any) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads, **others)
        self._task: Any = remote(**ray_remote_args)(_call) if ray_remote_args else remote(_call)
        self._jobs: list[_Job] = []
        self.parallel: Any = None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """-1, and None, are all CPUs of the cluster."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        auto_init()
        cpus = max(int(cluster_resources().get("CPU", 1)), 1)
        if n_jobs is None:
            return cpus
        return n_jobs if n_jobs > 0 else max(cpus + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, prefer: Any = None, require: Any = None,
                  **_: Any) -> int:
        if require == "sharedmem":
            raise ValueError("tasks do not share memory: use joblib's threading backend")
        self.parallel = parallel
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Callable[[], Any], callback: Callable[[Any], None] | None = None) -> _Job:
        job = _Job(self._task.remote(func), callback)
        self._jobs = [one for one in self._jobs if not one.ref.is_ready()]
        self._jobs.append(job)
        return job

    apply_async = submit  # its name in joblib before 1.5

    def terminate(self) -> None:
        self._jobs.clear()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        for job in self._jobs:
            if not job.ref.is_ready():
                _core.cancel(job.ref, False, True)
        self._jobs.clear()


def register_manta() -> None:
    """From now on joblib knows the backend "manta"."""
    register_parallel_backend("manta", MantaBackend)


def register_ray() -> None:
    """From now on joblib knows the backend "ray", which is this one."""
    register_parallel_backend("ray", MantaBackend)
