"""Plan: what a run needs before its first trial: checked configurations, the native controller, its folder."""
from __future__ import annotations

import json
import os
import pickle
import threading
import time
from typing import Any

from .. import _runtime, _tune
from .._serialize import dumps_plain
from ..exceptions import InfeasibleError
from . import _adapters, _config, _resources
from ._loop import trial_folder
from ._session import Order
from ._space import Space
from ._trial import Trial
from .callback import Callback, CallbackList
from .error import TuneError
from .logger import native_kinds
from .schedulers import create_scheduler
from .schedulers.trial_scheduler import FIFOScheduler, NativeScheduler, TrialScheduler
from .search import BasicVariantGenerator, ConcurrencyLimiter, create_searcher
from .search.searcher import NativeSearcher, Searcher
from .stopper import make_stopper

JOURNAL, TUNER, TRAINABLE = "journal", "tuner.pkl", "trainable.pkl"
_LETTERS = "0123456789abcdef"


def name_of(trainable: Any) -> str:
    inner = getattr(trainable, "func", None)  # of functools.partial
    return str(getattr(trainable, "__name__", None) or getattr(inner, "__name__", "trainable"))


class Plan:
    """Made in the order check, folder, native. Nothing is on disk before everything was checked."""

    def __init__(self, trainable: Any, param_space: dict[str, Any] | None, tune_config: _config.TuneConfig,
                 run_config: _config.RunConfig) -> None:
        self.tune_config, self.run_config = tune_config, run_config
        self.trainable = trainable
        self.trainable_name = name_of(trainable)
        self.is_class = isinstance(trainable, type)
        _resources.check_trainable(trainable)
        if not self.is_class:
            assert run_config.checkpoint_config is not None
            run_config.checkpoint_config.check_for_function(self.trainable_name)
        self.param_space = param_space or {}
        self.scheduler = self._scheduler()
        self.space = Space(self.param_space, self._mutated())
        _tune.check_space(self.space.parameters)
        self.searcher, self.limit = self._searcher()
        self.metric, self.mode = self._objective()
        self.thresholds, self.stopper = make_stopper(run_config.stop)
        self.callbacks = CallbackList(self._callbacks())
        self.reuse = bool(tune_config.reuse_actors)
        self.sync = not (type(self.scheduler) is FIFOScheduler and not self.thresholds and self.stopper is None)
        # The state of the run.
        self.folder = self.name = self.run_id = self.date = ""
        self.seed = 0
        self.elapsed = 0.0
        self.extra = 0  # samples that restores have added
        self.restored: tuple[bool, bool, bool, int] | None = None
        self.native: Any = None
        self.trainable_ref: Any = None
        self.reporter: Any = None
        self.trials: list[Trial] = []
        self.capacity: dict[str, float] = {}
        self.flat: dict[int, dict[str, Any]] = {}
        self.opened: set[int] = set()
        self.begun: dict[int, tuple[int, float, float]] = {}
        self.orders: dict[int, Order] = {}
        self.current_result: dict[int, dict[str, Any]] = {}
        self.failing = -1
        self.interrupted = False
        self._done = threading.Event()
        self._syncer: threading.Thread | None = None
        self.pickled = b""

    # ---- checks ----

    def _callbacks(self) -> list[Any]:
        callbacks = list(self.run_config.callbacks or [])
        for one in callbacks:
            if not isinstance(one, Callback):
                raise ValueError(f"RunConfig(callbacks=...): {one!r} is not a tune.Callback")
        return callbacks

    def _scheduler(self) -> Any:
        given = self.tune_config.scheduler
        if given is None:
            return FIFOScheduler()
        if isinstance(given, str):
            return create_scheduler(given)
        if not isinstance(given, TrialScheduler):
            raise ValueError(f"TuneConfig(scheduler={given!r}): it must be a TrialScheduler or the name of one")
        return given

    def _mutated(self) -> tuple[str, ...]:
        keys = getattr(self.scheduler, "sampled_keys", None)
        return tuple(path for path, _ in keys()) if keys is not None else ()

    def _searcher(self) -> tuple[Searcher, int]:
        """The searcher without a limiter that the native controller applies, and that limit."""
        given = self.tune_config.search_alg
        limit = self.tune_config.max_concurrent_trials or 0
        if given is None:
            given = BasicVariantGenerator()
        elif isinstance(given, str):
            given = create_searcher(given)
        elif not isinstance(given, Searcher):
            raise ValueError(f"TuneConfig(search_alg={given!r}): it must be a Searcher or the name of one")
        if isinstance(given, ConcurrencyLimiter) and not given.batch and isinstance(given.searcher, NativeSearcher):
            if limit and limit != given.max_concurrent:
                raise ValueError(f"ConcurrencyLimiter(max_concurrent={given.max_concurrent}) and "
                                 f"TuneConfig(max_concurrent_trials={limit}) differ: leave one of them out")
            limit, given = given.max_concurrent, given.searcher
        if isinstance(given, NativeSearcher) and given.space is not None:
            if self.space.parameters:
                raise ValueError(f"both param_space and {type(given).__name__}(space=...) define a space: leave one "
                                 "out")
            self.space = Space({**self.param_space, **given.space}, self._mutated())
            _tune.check_space(self.space.parameters)
        return given, limit

    def _objective(self) -> tuple[Any, Any]:
        metric, mode = self.tune_config.metric, self.tune_config.mode
        for other, what in ((self.scheduler, "scheduler"), (self.searcher, "search_alg")):
            own, its_mode = getattr(other, "_metric", None), getattr(other, "_mode", None)
            if own and metric and own != metric:
                raise ValueError(f"the {what} has metric={own!r} and TuneConfig has metric={metric!r}: leave one out")
            if its_mode and mode and its_mode != mode:
                raise ValueError(f"the {what} has mode={its_mode!r} and TuneConfig has mode={mode!r}: leave one out")
            metric, mode = metric or own, mode or its_mode
        if metric is not None and mode is None:
            raise ValueError(f"metric={metric!r} is given without a mode: add mode='min' or mode='max'")
        needs = ""
        free = ("pbt_replay", "resource_changing")
        if isinstance(self.scheduler, NativeScheduler) and self.scheduler.kind not in free:
            needs = type(self.scheduler).__name__
        elif isinstance(self.searcher, NativeSearcher) and self.searcher.learns:
            needs = type(self.searcher).__name__
        if needs and metric is None:
            raise ValueError(f"{needs} needs a metric and a mode: TuneConfig(metric=..., mode='min' or 'max')")
        return metric, mode

    def objectives(self) -> list[tuple[str, str]]:
        if self.metric is None:
            return []
        metrics = self.metric if isinstance(self.metric, (list, tuple)) else [self.metric]
        modes = self.mode if isinstance(self.mode, (list, tuple)) else [self.mode]
        if len(metrics) != len(modes):
            raise ValueError(f"metric has {len(metrics)} items and mode has {len(modes)}: each metric needs its mode")
        return list(zip(metrics, modes, strict=True))

    def check_resources(self) -> None:
        """Raises InfeasibleError for resources that the cluster never has."""
        if _resources.varies(self.trainable):
            return
        needed = _resources.resources_of(self.trainable, {}).required_resources
        total = _runtime.cluster_resources()
        for name, amount in needed.items():
            if amount > total.get(name, 0.0) + 1e-9:
                raise InfeasibleError(
                    f"cannot run trials of {self.trainable_name}: each needs {_amounts(needed)}, the cluster has "
                    f"{_amounts(total)}. Lower the resources in tune.with_resources, or add a node")

    # ---- a new run ----

    def create(self) -> None:
        """The folder and its files."""
        self.pickled = self.pickle_trainable()
        root = os.path.abspath(os.path.expanduser(str(self.run_config.storage_path or _config.results_folder())))
        self.date = time.strftime("%Y-%m-%d_%H-%M-%S")
        self.run_id = "".join(_LETTERS[byte & 15] for byte in os.urandom(5))
        given = self.tune_config.seed
        self.seed = given if given is not None else int.from_bytes(os.urandom(4), "little")
        name = self.run_config.name or f"{self.trainable_name}_{self.date}"
        try:
            os.makedirs(root, exist_ok=True)
            self.folder = _new_folder(root, name)
        except OSError as error:
            raise TuneError(f"cannot write to storage_path {root}: {error.strerror}. Choose another folder in "
                            "RunConfig(storage_path=...)") from error
        self.name = os.path.basename(self.folder)
        self.build()
        self.native.create(os.path.join(self.folder, JOURNAL), self.description(), self.disk_full)
        self.store()

    def pickle_trainable(self) -> bytes:
        from .._serialize import cloudpickle, explain

        try:
            return bytes(cloudpickle().dumps(self.trainable, protocol=5))
        except Exception as error:
            raise TypeError(f"trainable {self.trainable_name} cannot be sent to other processes: "
                            f"{explain(self.trainable, error)}") from error

    def store(self) -> None:
        facts = {"version": 1, "run_id": self.run_id, "date": self.date, "seed": self.seed, "extra": self.extra,
                 "name": self.name, "trainable_name": self.trainable_name, "param_space": self.param_space,
                 "tune_config": self.tune_config, "run_config": self.run_config}
        try:
            data = dumps_plain(facts)
        except Exception as error:
            from .._serialize import explain

            raise TypeError("the configuration of the run cannot be stored for a restore: "
                            f"{explain(facts, error)}") from error
        for name, content in ((TUNER, data), (TRAINABLE, self.pickled)):
            partial = os.path.join(self.folder, f"{name}.partial")
            with open(partial, "wb") as file:
                file.write(content)
            os.replace(partial, os.path.join(self.folder, name))

    def build(self) -> None:
        """The native controller."""
        assert self.run_config.failure_config is not None and self.run_config.checkpoint_config is not None
        failure, keep = self.run_config.failure_config, self.run_config.checkpoint_config
        samples = self.tune_config.num_samples
        if samples > 0:
            samples += self.extra
        counts_itself = isinstance(self.searcher, NativeSearcher) and self.searcher.kind == "random"
        resources_of = None
        default = _resources.factory_of(None, "")
        if _resources.varies(self.trainable):
            resources_of = self._resources_of
        else:
            default = _resources.resources_of(self.trainable, {})
        rules = {
            "objectives": self.objectives(), "time_attr": getattr(self.scheduler, "_time_attr", "training_iteration"),
            "num_samples": -1 if counts_itself else samples - (self.extra if samples > 0 else 0),
            "max_concurrent": self.limit, "queue_ahead": int(os.environ.get("TUNE_MAX_PENDING_TRIALS_PG", "1")),
            "time_budget": float(self.tune_config.time_budget_s or 0),  # type: ignore[arg-type]
            "strict_metric": os.environ.get("TUNE_DISABLE_STRICT_METRIC_CHECKING", "0") != "1",
            "can_save": self.is_class, "reuse_actors": self.reuse, "resources": (default.bundles, default.strategy),
            "max_failures": failure.max_failures, "fail_fast": bool(failure.fail_fast),
            "count_lost": failure.count_lost_nodes, "num_to_keep": keep.num_to_keep,
            "score_attribute": keep.checkpoint_score_attribute or "", "score_order": keep.checkpoint_score_order,
            "at_end": bool(keep.checkpoint_at_end),
        }
        self.native = _tune.Run(rules, self._native_searcher(samples), self._native_scheduler(), self.thresholds,
                                resources_of, native_kinds(self.callbacks.callbacks))

    def _native_searcher(self, samples: int) -> Any:
        if isinstance(self.searcher, NativeSearcher):
            return self.searcher.build(self.space, self.metric, self.mode, self.seed, samples)
        self.searcher.set_search_properties(self.metric, self.mode, self.param_space)
        self.adapter = _adapters.SearcherAdapter(self.searcher, _LaterLoop(self), self.folder)
        return self.adapter

    def _native_scheduler(self) -> Any:
        if type(self.scheduler) is FIFOScheduler:
            return ("fifo", {})
        if isinstance(self.scheduler, NativeScheduler):
            mode = self.mode[0] if isinstance(self.mode, (list, tuple)) else self.mode
            if hasattr(self.scheduler, "trial_of"):
                self.scheduler.trial_of = self._allocation
            return self.scheduler.spec(mode or "max", self.seed, self.space)
        self.scheduler.set_search_properties(self.metric, self.mode)
        return _adapters.SchedulerAdapter(self.scheduler, _LaterLoop(self))

    def _allocation(self, number: int) -> tuple[Any, Any, dict[str, Any]]:
        assert self.loop is not None
        return _adapters.ControllerView(self.loop), self.loop.trial_of(number), self.loop.result_of(number)

    def _resources_of(self, flat: dict[str, Any]) -> tuple[list[dict[str, float]], str]:
        factory = _resources.resources_of(self.trainable, self.config_of(flat)[0])
        return factory.bundles, factory.strategy

    def config_of(self, flat: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        if _adapters.PICKLED in flat:
            return self._merged(_adapters.unpack(flat))
        return self.space.decode(flat)

    def _merged(self, suggested: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """A Python searcher's answer over the constants of the space."""
        from ._space import _copy_tree, _set

        config = _copy_tree(self.space.constants)
        varying: dict[str, Any] = {}
        for key, value in suggested.items():
            path = tuple(key.split("/")) if isinstance(key, str) else (key,)
            _set(config, path, value)
            if not isinstance(value, dict):
                varying[str(key)] = value
        return self.space.resolve(config, varying)

    def description(self) -> dict[str, str]:
        """What must be the same when the run is restored."""
        return {"space": repr(self.space.parameters), "searcher": type(self.searcher).__name__,
                "scheduler": type(self.scheduler).__name__, "metric": repr(self.metric), "mode": repr(self.mode),
                "seed": str(self.seed)}

    # ---- what the loop needs ----

    loop: Any = None

    def begin(self, loop: Any) -> None:
        self.loop = loop
        self._syncer = threading.Thread(target=self._sync, daemon=True, name="manta-tune-sync")
        self._syncer.start()

    def _sync(self) -> None:
        """The journal survives the machine, too, half a second later."""
        while not self._done.wait(0.5):
            self.native.sync()

    def finish(self, loop: Any) -> None:
        self._done.set()
        if self._syncer is not None:
            self._syncer.join()
        self.write_state(self.trials)
        self.native.sync()
        self.native.close()
        self.reporter.finish(loop)

    def disk_full(self, text: str) -> None:
        self.reporter.note(f"{text}. The run waits until there is space")

    def id_of(self, number: int) -> str:
        return f"{self.run_id}_{number:05d}"

    def make_trial(self, number: int) -> Trial:
        flat = self.native.trial(number)[1]
        config, varying = self.config_of(flat)
        trial = Trial(number, self.id_of(number), self.trainable_name, config, varying)
        self.flat[number] = flat
        creator = self.tune_config.trial_name_creator
        if creator is not None:
            trial.name = str(creator(trial))
        return trial

    def trial_folder(self, trial: Trial) -> str:
        return trial_folder(self, trial)

    def order_for(self, trial: Trial) -> Order:
        order = Order()
        order.trial_id, order.trial_name, order.trial_dir = trial.trial_id, trial.name, trial.path
        order.experiment_name, order.experiment_dir = self.name, self.folder
        order.config, order.resources = trial.config, trial.placement_group_factory
        order.sync = self.sync
        assert self.run_config.checkpoint_config is not None and self.run_config.failure_config is not None
        order.report_timeout = self.run_config.failure_config.report_timeout_s
        order.frequency = self.run_config.checkpoint_config.checkpoint_frequency
        order.chdir = os.environ.get("RAY_CHDIR_TO_TRIAL_DIR", "1") != "0"
        to_file = self.run_config.log_to_file
        if to_file is True:
            order.log_to_file = ("stdout", "stderr")
        elif isinstance(to_file, str):
            order.log_to_file = (to_file, to_file)
        elif to_file:
            order.log_to_file = (to_file[0], to_file[1])
        return order

    def write_params(self, trial: Trial) -> None:
        with open(os.path.join(trial.path, "params.pkl"), "wb") as file:
            try:
                file.write(pickle.dumps(trial.config, 5))
            except Exception:
                file.write(dumps_plain(trial.config))

    def write_policy(self, trial: Trial, donor: Trial, text: str) -> None:
        """pbt_global.txt, and the history of values of the trial with that of its donor before."""
        mine = os.path.join(self.folder, f"pbt_policy_{trial.trial_id}.txt")
        its = os.path.join(self.folder, f"pbt_policy_{donor.trial_id}.txt")
        row = json.loads(text)
        row[0], row[1] = trial.experiment_tag.split("_")[0], donor.experiment_tag.split("_")[0]
        line = json.dumps(row) + "\n"
        if os.path.exists(its) and its != mine:
            with open(its) as file, open(mine, "w") as copy:
                copy.write(file.read())
        for path in (os.path.join(self.folder, "pbt_global.txt"), mine):
            with open(path, "a") as file:
                file.write(line)

    def write_state(self, trials: list[Trial]) -> None:
        """experiment_state-<date>.json, for people and scripts."""
        from ._json import plain

        rows = [{"trial_id": trial.trial_id, "number": trial.number, "status": trial.status, "config": trial.config,
                 "experiment_tag": trial.experiment_tag, "path": os.path.basename(trial.path),
                 "last_result": {key: value for key, value in (trial._last_result or {}).items() if key != "config"},
                 "error": trial.error_text or None} for trial in trials]
        state = {"name": self.name, "run_id": self.run_id, "date": self.date, "trainable": self.trainable_name,
                 "metric": self.metric, "mode": self.mode, "timestamp": time.time(), "trials": rows}
        path = os.path.join(self.folder, f"experiment_state-{self.date}.json")
        with open(f"{path}.partial", "w") as file:
            json.dump(state, file, default=plain, skipkeys=True)
        os.replace(f"{path}.partial", path)


class _LaterLoop:
    """The loop, which is made after the adapters."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan.loop, name)


def _amounts(amounts: dict[str, float]) -> str:
    """As "2 CPU, 16.5 GiB memory": without the resources that only name a node or its store."""
    parts = []
    for name, value in sorted(amounts.items()):
        if name != "object_store_memory" and not name.startswith("node:"):
            parts.append(f"{value / (1 << 30):.1f} GiB memory" if name == "memory" else f"{value:g} {name}")
    return ", ".join(parts)


def _new_folder(root: str, name: str) -> str:
    """A new folder; a name that is taken gets a number."""
    for number in range(1, 1000000):
        path = os.path.join(root, name if number == 1 else f"{name}_{number}")
        try:
            os.mkdir(path)
            return path
        except FileExistsError:
            continue
    raise TuneError(f"{root} has too many runs with the name {name}")
