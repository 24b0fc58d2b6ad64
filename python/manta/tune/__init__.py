"""Tuning: searches for the configuration of a training program that gives the best metric. The names are Ray Tune's.

    from manta import tune

    def train(config):
        tune.report({"loss": (config["x"] - 3) ** 2})

    tuner = tune.Tuner(train, param_space={"x": tune.uniform(0, 10)},
                       tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=20))
    print(tuner.fit().get_best_result().config)
"""
from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

# Loaded when a name is first used: a trial's process needs few of them.
_WHERE = {
    "_config": ("CheckpointConfig", "FailureConfig", "ResumeConfig", "RunConfig", "SyncConfig", "TuneConfig"),
    "_checkpoint": ("Checkpoint",),
    "_session": ("TuneContext", "get_checkpoint", "get_context", "report"),
    "_resources": ("PlacementGroupFactory", "with_parameters", "with_resources"),
    "_tune_run": ("Experiment", "run", "run_experiments"),
    "analysis": ("ExperimentAnalysis",),
    "callback": ("Callback",),
    "error": ("TuneError",),
    "progress_reporter": ("CLIReporter", "JupyterNotebookReporter", "ProgressReporter"),
    "registry": ("register_env", "register_trainable"),
    "result_grid": ("Result", "ResultGrid"),
    "sample": ("choice", "grid_search", "lograndint", "loguniform", "qlograndint", "qloguniform", "qrandint", "qrandn",
               "quniform", "randint", "randn", "sample_from", "uniform", "when"),
    "schedulers": ("create_scheduler",),
    "search": ("create_searcher",),
    "stopper": ("Stopper",),
    "trainable": ("Trainable",),
    "tuner": ("Tuner",),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}
_MODULES = ("analysis", "callback", "error", "experiment", "logger", "progress_reporter", "registry", "result_grid",
            "sample", "schedulers", "search", "stopper", "trainable", "tuner")

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> _Any:
    module = _MODULE_OF.get(name)
    if module is not None:
        value = getattr(_importlib.import_module(f"manta.tune.{module}"), name)
        globals()[name] = value
        return value
    if name in _MODULES:
        return _importlib.import_module(f"manta.tune.{name}")
    from .error import suggestion

    raise AttributeError(f"module 'manta.tune' has no attribute {name!r}.{suggestion(name, [*_MODULE_OF, *_MODULES])}")


def __dir__() -> list[str]:
    return sorted([*_MODULE_OF, *_MODULES])
