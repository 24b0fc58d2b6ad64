"""The configurations of a run, under Ray's names. Wrong values raise when the object is made."""
from __future__ import annotations

import dataclasses
import datetime
import enum
import os
from collections.abc import Callable
from typing import Any

from .error import suggestion

__all__ = ["CheckpointConfig", "FailureConfig", "ResumeConfig", "RunConfig", "SyncConfig", "TuneConfig"]


class _Checked(type):
    """An unknown option raises an error that suggests the spelling."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        known = [field.name for field in dataclasses.fields(cls)]
        for name in kwargs:
            if name not in known:
                raise TypeError(f"{cls.__name__} has no option {name!r}.{suggestion(name, known)}")
        return super().__call__(*args, **kwargs)


def _mode(mode: Any, where: str) -> None:
    for one in mode if isinstance(mode, (list, tuple)) else [mode]:
        if one not in (None, "min", "max"):
            raise ValueError(f"{where}(mode={mode!r}): the mode must be 'min' or 'max'")


@dataclasses.dataclass
class TuneConfig(metaclass=_Checked):
    """What a run searches for, and how. `seed` is Manta's own: the same seed gives the same configurations."""

    mode: Any = None
    metric: Any = None
    search_alg: Any = None
    scheduler: Any = None
    num_samples: int = 1
    max_concurrent_trials: int | None = None
    time_budget_s: float | datetime.timedelta | None = None
    reuse_actors: bool = False
    trial_name_creator: Callable[..., str] | None = None
    trial_dirname_creator: Callable[..., str] | None = None
    chdir_to_trial_dir: Any = None
    seed: int | None = None

    def __post_init__(self) -> None:
        _mode(self.mode, "TuneConfig")
        if isinstance(self.num_samples, bool) or not isinstance(self.num_samples, int) or (
                self.num_samples < 1 and self.num_samples != -1):
            raise ValueError(f"TuneConfig(num_samples={self.num_samples!r}): it must be 1 or more, or -1 for a run "
                             "without end")
        limit = self.max_concurrent_trials
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise ValueError(f"TuneConfig(max_concurrent_trials={limit!r}): it must be 1 or more, or None for no limit")
        if isinstance(self.time_budget_s, datetime.timedelta):
            self.time_budget_s = self.time_budget_s.total_seconds()
        if self.time_budget_s is not None and self.time_budget_s <= 0:
            raise ValueError(f"TuneConfig(time_budget_s={self.time_budget_s!r}): it must be above 0 seconds")
        if self.chdir_to_trial_dir is not None:
            raise ValueError("TuneConfig(chdir_to_trial_dir=...) was removed by Ray: set the environment variable "
                             "RAY_CHDIR_TO_TRIAL_DIR=0 to keep the working directory")
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0):
            raise ValueError(f"TuneConfig(seed={self.seed!r}): it must be an integer, 0 or more")


@dataclasses.dataclass
class FailureConfig(metaclass=_Checked):
    """How failures of trials are handled.

    `count_lost_nodes` is Manta's own: by default a lost node or a killed worker is no failure of the trial and is not
    counted. `report_timeout_s`, Manta's own, too: a trial that does not report for this long is stopped as failed.
    """

    max_failures: int = 0
    fail_fast: bool | str = False
    count_lost_nodes: bool = False
    report_timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.fail_fast not in (True, False, "raise"):
            raise ValueError(f"FailureConfig(fail_fast={self.fail_fast!r}): it must be True, False or 'raise'")
        if isinstance(self.max_failures, bool) or not isinstance(self.max_failures, int) or self.max_failures < -1:
            raise ValueError(f"FailureConfig(max_failures={self.max_failures!r}): it must be 0 or more, or -1 for no "
                             "limit")
        if self.fail_fast and self.max_failures != 0:
            raise ValueError(f"FailureConfig(max_failures={self.max_failures}, fail_fast={self.fail_fast!r}): "
                             "fail_fast ends the run at the first failure, so max_failures must be 0")
        if self.report_timeout_s is not None and self.report_timeout_s <= 0:
            raise ValueError(f"FailureConfig(report_timeout_s={self.report_timeout_s!r}): it must be above 0 seconds")


@dataclasses.dataclass
class CheckpointConfig(metaclass=_Checked):
    """Which checkpoints of a trial are written and kept."""

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: str = "max"
    checkpoint_frequency: int = 0
    checkpoint_at_end: bool | None = None

    def __post_init__(self) -> None:
        if self.num_to_keep is not None and self.num_to_keep <= 0:
            raise ValueError(f"CheckpointConfig(num_to_keep={self.num_to_keep}): it must be 1 or more, or None to keep "
                             "all")
        if self.checkpoint_score_order not in ("min", "max"):
            raise ValueError(f"CheckpointConfig(checkpoint_score_order={self.checkpoint_score_order!r}): it must be "
                             "'min' or 'max'")
        if self.checkpoint_frequency < 0:
            raise ValueError(f"CheckpointConfig(checkpoint_frequency={self.checkpoint_frequency}): it must be 0 or "
                             "more")

    def check_for_function(self, name: str) -> None:
        """A function decides by itself when it reports a checkpoint."""
        for option in ("checkpoint_at_end", "checkpoint_frequency"):
            if getattr(self, option):
                raise ValueError(f"CheckpointConfig({option}={getattr(self, option)}) is for Trainable classes; the "
                                 f"function {name} saves by itself: tune.report(metrics, checkpoint=...)")


class _ResumeType(enum.StrEnum):
    RESUME = "resume"
    RESTART = "restart"
    SKIP = "skip"


@dataclasses.dataclass
class ResumeConfig(metaclass=_Checked):
    """What happens to the trials of a run that is restored, by their state."""

    finished: str = "skip"
    unfinished: str = "resume"
    errored: str = "skip"

    def __post_init__(self) -> None:
        for name in ("finished", "unfinished", "errored"):
            value = getattr(self, name)
            try:
                setattr(self, name, _ResumeType(value))
            except ValueError:
                raise ValueError(f"ResumeConfig({name}={value!r}): it must be 'resume', 'restart' or 'skip'") from None


ResumeConfig.ResumeType = _ResumeType  # type: ignore[attr-defined]


@dataclasses.dataclass
class SyncConfig(metaclass=_Checked):
    """How files reach storage. Trials of Manta write to storage_path at once, so the periods do nothing."""

    sync_period: int = 300
    sync_timeout: int = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True


@dataclasses.dataclass
class RunConfig(metaclass=_Checked):
    """Where a run is stored, when it stops, and what it prints."""

    name: str | None = None
    storage_path: str | os.PathLike[str] | None = None
    storage_filesystem: Any = None
    failure_config: FailureConfig | None = None
    checkpoint_config: CheckpointConfig | None = None
    sync_config: SyncConfig | None = None
    verbose: int | None = None
    stop: Any = None
    callbacks: list[Any] | None = None
    progress_reporter: Any = None
    log_to_file: Any = False

    def __post_init__(self) -> None:
        self.failure_config = _typed("failure_config", self.failure_config, FailureConfig)
        self.checkpoint_config = _typed("checkpoint_config", self.checkpoint_config, CheckpointConfig)
        self.sync_config = _typed("sync_config", self.sync_config, SyncConfig)
        if self.storage_filesystem is not None:
            raise NotImplementedError("RunConfig(storage_filesystem=...) is not supported yet: mount the storage, and "
                                      "name its folder in storage_path")
        if self.storage_path is not None:
            self.storage_path = os.fspath(self.storage_path)
            if "://" in self.storage_path and not self.storage_path.startswith("file://"):
                raise NotImplementedError(f"RunConfig(storage_path={self.storage_path!r}): remote storage is not "
                                          "supported yet: mount it, and name its folder")
            self.storage_path = self.storage_path.removeprefix("file://")
        if self.name is not None and (not self.name or "/" in self.name):
            raise ValueError(f"RunConfig(name={self.name!r}): the name is that of a folder: it must not be empty and "
                             "must not contain '/'")
        if self.verbose not in (None, 0, 1, 2, 3):
            raise ValueError(f"RunConfig(verbose={self.verbose!r}): it must be 0, 1 or 2")
        if self.callbacks is not None and not isinstance(self.callbacks, (list, tuple)):
            raise ValueError(f"RunConfig(callbacks={self.callbacks!r}): it must be a list")


def _typed(name: str, value: Any, kind: Any) -> Any:
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise ValueError(f"RunConfig({name}={value!r}): it must be a {kind.__name__}")
    return value


def results_folder() -> str:
    """Where runs are stored when storage_path is not given."""
    return os.path.expanduser(os.environ.get("TUNE_RESULT_DIR") or os.environ.get("RAY_AIR_LOCAL_CACHE_DIR")
                              or "~/manta_results")


_READ = {"TUNE_RESULT_DIR", "TUNE_MAX_PENDING_TRIALS_PG", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS",
         "TUNE_DISABLE_STRICT_METRIC_CHECKING", "TUNE_MAX_LEN_IDENTIFIER", "TUNE_PRINT_ALL_TRIAL_ERRORS",
         "TUNE_WARN_THRESHOLD_S"}
_NOT_NEEDED = {"TUNE_DISABLE_AUTO_CALLBACK_SYNCER", "TUNE_DISABLE_AUTO_INIT", "TUNE_DISABLE_DATED_SUBDIR",
               "TUNE_DISABLE_SIGINT_HANDLER", "TUNE_FORCE_TRIAL_CLEANUP_S", "TUNE_FUNCTION_THREAD_TIMEOUT_S",
               "TUNE_GET_EXECUTOR_EVENT_WAIT_S", "TUNE_GLOBAL_CHECKPOINT_S", "TUNE_STATE_REFRESH_PERIOD",
               "TUNE_PLACEMENT_GROUP_PREFIX", "TUNE_PLACEMENT_GROUP_RECON_INTERVAL", "TUNE_RESTORE_RETRY_NUM",
               "TUNE_RESULT_BUFFER_LENGTH", "TUNE_RESULT_BUFFER_MIN_TIME_S", "TUNE_RESULT_BUFFER_MAX_TIME_S",
               "TUNE_RESULT_DELIM", "TUNE_SYNCER_VERBOSITY", "TUNE_TRIAL_RESULT_WAIT_TIME_S",
               "TUNE_TRIAL_STARTUP_GRACE_PERIOD", "TUNE_WARN_INSUFFICENT_RESOURCE_THRESHOLD_S",
               "TUNE_WARN_SLOW_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "TUNE_ONLY_STORE_CHECKPOINT_SCORE_ATTRIBUTE",
               "TUNE_CHECKPOINT_CLOUD_RETRY_NUM", "TUNE_CHECKPOINT_CLOUD_RETRY_WAIT_TIME_S",
               "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "TUNE_MAX_PENDING_TRIALS"}
_named: set[str] = set()


def check_environment() -> list[str]:
    """Lines about variables of Ray's that do nothing here, each once in a process."""
    lines = []
    for name in sorted(os.environ):
        if name.startswith("TUNE_") and name not in _READ and name in _NOT_NEEDED and name not in _named:
            _named.add(name)
            lines.append(f"{name} is set: Manta does not need it and does not read it")
    return lines
