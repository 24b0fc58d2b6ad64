"""tune.run and run_experiments, under Ray's names."""
from __future__ import annotations

import os
from typing import Any

from . import _restore
from ._config import CheckpointConfig, FailureConfig, ResumeConfig, RunConfig, TuneConfig, results_folder
from ._resources import with_resources
from .analysis import ExperimentAnalysis
from .error import TuneError, suggestion
from .registry import get_trainable_cls
from .tuner import Tuner

__all__ = ["Experiment", "run", "run_experiments"]

_RESUMES = {"AUTO": "skip", "AUTO+ERRORED": "resume", "AUTO+RESTART_ERRORED": "restart", "LOCAL": "skip",
            "LOCAL+ERRORED": "resume", "LOCAL+RESTART_ERRORED": "restart",
            "ERRORED_ONLY": "resume", "AUTO+ERRORED_ONLY": "resume"}
_KNOWN = ("name", "metric", "mode", "stop", "time_budget_s", "config", "resources_per_trial", "num_samples",
          "storage_path", "search_alg", "scheduler", "checkpoint_config", "verbose", "progress_reporter", "log_to_file",
          "trial_name_creator", "trial_dirname_creator", "max_failures", "fail_fast", "restore", "resume",
          "resume_config", "reuse_actors", "raise_on_failed_trial", "callbacks", "max_concurrent_trials", "seed",
          "storage_filesystem", "sync_config")


class Experiment:
    """A run that is described before it is started."""

    def __init__(self, name: str, run: Any, *, stop: Any = None, time_budget_s: Any = None,
                 config: dict[str, Any] | None = None, resources_per_trial: Any = None, num_samples: int = 1,
                 storage_path: str | None = None, checkpoint_config: CheckpointConfig | None = None,
                 max_failures: int = 0, log_to_file: Any = False, trial_name_creator: Any = None,
                 trial_dirname_creator: Any = None, restore: str | None = None, **others: Any) -> None:
        for key in others:
            raise TypeError(f"Experiment has no option {key!r}.{suggestion(key, _KNOWN)}")
        self.name, self.run = name, run
        self.spec = {"stop": stop, "time_budget_s": time_budget_s, "config": config,
                     "resources_per_trial": resources_per_trial, "num_samples": num_samples,
                     "storage_path": storage_path, "checkpoint_config": checkpoint_config,
                     "max_failures": max_failures, "log_to_file": log_to_file,
                     "trial_name_creator": trial_name_creator, "trial_dirname_creator": trial_dirname_creator,
                     "restore": restore}

    @classmethod
    def from_json(cls, name: str, spec: dict[str, Any]) -> Experiment:
        if "run" not in spec:
            raise TuneError(f"experiment {name!r} has no trainable: add \"run\"")
        rest = {key: value for key, value in spec.items() if key != "run"}
        return cls(name, spec["run"], **rest)


def run(run_or_experiment: Any, *, name: str | None = None, metric: Any = None, mode: Any = None, stop: Any = None,
        time_budget_s: Any = None, config: dict[str, Any] | None = None, resources_per_trial: Any = None,
        num_samples: int = 1, storage_path: str | None = None, storage_filesystem: Any = None, search_alg: Any = None,
        scheduler: Any = None, checkpoint_config: CheckpointConfig | None = None, verbose: int | None = None,
        progress_reporter: Any = None, log_to_file: Any = False, trial_name_creator: Any = None,
        trial_dirname_creator: Any = None, max_failures: int = 0, fail_fast: bool | str = False,
        restore: str | None = None, resume: bool | str | None = None, resume_config: ResumeConfig | None = None,
        reuse_actors: bool = False, raise_on_failed_trial: bool = True, callbacks: list[Any] | None = None,
        max_concurrent_trials: int | None = None, sync_config: Any = None, seed: int | None = None,
        **others: Any) -> ExperimentAnalysis:
    """Runs trials and returns their analysis. Raises TuneError if a trial failed and raise_on_failed_trial is True."""
    for key in others:
        raise TypeError(f"tune.run has no option {key!r}.{suggestion(key, _KNOWN)}")
    if restore is not None:
        raise NotImplementedError("tune.run(restore=...) starts a trial from a checkpoint of another run: pass its "
                                  "path in config, and read it in the trainable")
    trainable = run_or_experiment
    if isinstance(trainable, Experiment):
        return _run_experiment(trainable, metric=metric, mode=mode, search_alg=search_alg, scheduler=scheduler,
                               verbose=verbose, progress_reporter=progress_reporter, fail_fast=fail_fast, resume=resume,
                               resume_config=resume_config, reuse_actors=reuse_actors,
                               raise_on_failed_trial=raise_on_failed_trial, callbacks=callbacks,
                               max_concurrent_trials=max_concurrent_trials, seed=seed)
    if isinstance(trainable, str):
        trainable = get_trainable_cls(trainable)
    if resources_per_trial is not None:
        trainable = with_resources(trainable, resources_per_trial)
    tuner = _resumed(trainable, name, storage_path, resume, resume_config, config)
    if tuner is None:
        tuner = Tuner(
            trainable, param_space=config,
            tune_config=TuneConfig(metric=metric, mode=mode, search_alg=search_alg, scheduler=scheduler,
                                   num_samples=num_samples, max_concurrent_trials=max_concurrent_trials,
                                   time_budget_s=time_budget_s, reuse_actors=reuse_actors,
                                   trial_name_creator=trial_name_creator, trial_dirname_creator=trial_dirname_creator,
                                   seed=seed),
            run_config=RunConfig(name=name, storage_path=storage_path, storage_filesystem=storage_filesystem,
                                 failure_config=FailureConfig(max_failures=max_failures, fail_fast=fail_fast),
                                 checkpoint_config=checkpoint_config, stop=stop, callbacks=callbacks, verbose=verbose,
                                 progress_reporter=progress_reporter, log_to_file=log_to_file, sync_config=sync_config))
    grid = tuner.fit()
    trials = grid._trials
    failed = [trial for trial in trials if trial.status == "ERROR"]
    if failed and raise_on_failed_trial:
        raise TuneError(f"{len(failed)} of {len(trials)} trials failed: {', '.join(trial.name for trial in failed[:5])}"
                        f"{', …' if len(failed) > 5 else ''}. The first error: {failed[0].error_text} "
                        f"({failed[0].error_file})")
    single = metric if isinstance(metric, str) or metric is None else metric[0]
    return ExperimentAnalysis(grid.experiment_path, trials=trials, default_metric=single or grid._metric,
                              default_mode=(mode if isinstance(mode, str) or mode is None else mode[0]) or grid._mode)


def _resumed(trainable: Any, name: str | None, storage_path: str | None, resume: bool | str | None,
             resume_config: ResumeConfig | None, config: Any) -> Tuner | None:
    """The Tuner that continues the run `name`; None: a new one."""
    if not resume and resume_config is None:
        return None
    if resume == "PROMPT":
        raise ValueError("tune.run(resume='PROMPT') waits for an answer on the terminal and is not supported: say "
                         "True, 'AUTO', 'AUTO+ERRORED' or False")
    mode = "AUTO" if resume in (True, None) else str(resume)
    if mode not in _RESUMES:
        raise ValueError(f"tune.run(resume={resume!r}) is not known.{suggestion(mode, _RESUMES)}")
    if name is None:
        raise ValueError("tune.run(resume=...) needs the name of the run: name=...")
    folder = os.path.join(os.path.expanduser(storage_path or results_folder()), name)
    if not _restore.can_restore(folder):
        if mode.startswith("AUTO"):
            return None
        raise ValueError(f"tune.run(resume={resume!r}): {folder} is not the folder of a run")
    chosen = resume_config or ResumeConfig(errored=_RESUMES[mode])
    return Tuner.restore(folder, trainable, param_space=config, _resume_config=chosen)


def _run_experiment(experiment: Experiment, **options: Any) -> ExperimentAnalysis:
    spec = {key: value for key, value in experiment.spec.items() if value is not None}
    return run(experiment.run, name=experiment.name, **spec, **options)


def run_experiments(experiments: Any, scheduler: Any = None, verbose: int | None = None, progress_reporter: Any = None,
                    resume: bool | str | None = None, resume_config: ResumeConfig | None = None,
                    reuse_actors: bool = False, raise_on_failed_trial: bool = True, concurrent: bool = False,
                    callbacks: list[Any] | None = None) -> list[Any]:
    """Runs experiments one after the other; returns the trials of all of them."""
    if isinstance(experiments, dict):
        experiments = [Experiment.from_json(name, spec) for name, spec in experiments.items()]
    elif isinstance(experiments, Experiment):
        experiments = [experiments]
    trials: list[Any] = []
    for one in experiments:
        trials += _run_experiment(one, scheduler=scheduler, verbose=verbose, progress_reporter=progress_reporter,
                                  resume=resume, resume_config=resume_config, reuse_actors=reuse_actors,
                                  raise_on_failed_trial=raise_on_failed_trial, callbacks=callbacks).trials
    return trials
