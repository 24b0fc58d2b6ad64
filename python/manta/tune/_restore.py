"""Reads the folder of a run: for a restore, and for tools that only look."""
from __future__ import annotations

import json
import os
import pickle
from typing import Any

from ._trial import Trial
from .error import TuneError


def run_folder(path: str | os.PathLike[str]) -> str:
    """The folder of a run: as it is given, or a name in the default results folder."""
    from ._config import results_folder

    text = os.path.expanduser(os.fspath(path)).removeprefix("file://")
    if os.path.isdir(text):
        return os.path.abspath(text)
    named = os.path.join(results_folder(), text)
    return named if os.path.isdir(named) else os.path.abspath(text)


def can_restore(path: str | os.PathLike[str]) -> bool:
    folder = run_folder(path)
    return all(os.path.exists(os.path.join(folder, name)) for name in ("journal", "tuner.pkl"))


def load_facts(folder: str) -> dict[str, Any]:
    """tuner.pkl"""
    try:
        with open(os.path.join(folder, "tuner.pkl"), "rb") as file:
            return dict(pickle.load(file))
    except FileNotFoundError:
        raise TuneError(f"{folder} is not the folder of a run: it has no tuner.pkl. `manta tune ls` lists the "
                        "runs") from None


def load_state(folder: str) -> dict[str, Any]:
    """The newest experiment_state file."""
    names = sorted(name for name in os.listdir(folder)
                   if name.startswith("experiment_state-") and name.endswith(".json"))
    if not names:
        raise TuneError(f"{folder} has no experiment_state file: the run ended before it wrote one")
    with open(os.path.join(folder, names[-1])) as file:
        return dict(json.load(file))


def load_trials(folder: str) -> tuple[list[Trial], Any, Any]:
    """(trials, metric, mode) as the files say."""
    folder = run_folder(folder)
    state = load_state(folder)
    trials = []
    for row in state["trials"]:
        path = os.path.join(folder, row["path"]) if row["path"] else ""
        config = row["config"]
        try:
            with open(os.path.join(path, "params.pkl"), "rb") as file:
                config = pickle.load(file)
        except Exception:  # its classes may not be here
            pass
        trial = Trial(row["number"], row["trial_id"], state["trainable"], config, {})
        trial.experiment_tag, trial.status, trial.path = row["experiment_tag"], row["status"], path
        trial.error_text = row["error"] or ""
        attach_checkpoints(trial)
        trials.append(trial)
    return trials, state["metric"], state["mode"]


def attach_checkpoints(trial: Trial) -> None:
    """The checkpoints that lie in the trial's folder, each with the result that names it."""
    from ._trial import read_results

    if not trial.path or not os.path.isdir(trial.path):
        return
    found = {name for name in os.listdir(trial.path) if name.startswith("checkpoint_") and "." not in name}
    if not found:
        return
    rows = {row.get("checkpoint_dir_name"): row for row in read_results(trial.path)}
    trial.checkpoints = [(os.path.join(trial.path, name), rows.get(name, {})) for name in sorted(found)]


def rebuild_trials(plan: Any) -> None:
    """The objects of trials after the journal was replayed."""
    for number in range(plan.native.size()):
        status, _, _, _, _, checkpoints, error, failures = plan.native.trial(number)
        trial = plan.make_trial(number)
        trial.status = status
        trial.error_text, trial.num_failures = error, failures
        trial.path = plan.trial_folder(trial)
        if checkpoints:
            attach_checkpoints(trial)
            kept = {os.path.join(plan.folder, path) for path, *_ in checkpoints}
            own = [pair for pair in trial.checkpoints if pair[0] in kept]
            trial.checkpoints = own
        plan.trials.append(trial)


def repair(plan: Any) -> None:
    """Adds results to the files that a killed driver had in the journal, but not yet in the files."""
    behind: dict[int, int] = {}
    for trial in plan.trials:
        iteration = plan.native.trial(trial.number)[2]
        if not iteration:
            continue
        _cut(os.path.join(trial.path, "progress.csv"))
        seen = _cut(os.path.join(trial.path, "result.json"))
        if seen < iteration:
            behind[trial.number] = seen
    if not behind:
        return
    for number, rows in plan.native.results_after(os.path.join(plan.folder, "journal"), behind).items():
        trial = plan.trials[number]
        os.makedirs(trial.path, exist_ok=True)
        plan.write_params(trial)
        facts = {"trial_id": trial.trial_id, "experiment_tag": trial.experiment_tag}
        plan.native.open_trial(number, trial.path, trial.config, facts)
        results = []
        for metrics, iteration, time_total, checkpoint in rows:
            name = os.path.basename(checkpoint[0]) if checkpoint is not None else None
            results.append({**nested(metrics), "training_iteration": iteration, "time_total_s": time_total,
                            "done": False, "checkpoint_dir_name": name, "config": trial.config, **facts})
        plan.native.log(number, results)
        plan.native.close_trial(number)


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for path, value in flat.items():
        node = out
        *parents, last = path.split("/")
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = value
    return out


def _cut(path: str) -> int:
    """Cuts a line that a crash left incomplete; the training_iteration of the last line of result.json."""
    try:
        with open(path, "rb+") as file:
            size = file.seek(0, os.SEEK_END)
            start = max(0, size - 65536)
            file.seek(start)
            tail = file.read()
            end = tail.rfind(b"\n") + 1
            if end < len(tail):
                file.truncate(start + end)
            last = tail[:end].rstrip(b"\n").rpartition(b"\n")[2]
            if not path.endswith(".json") or not last:
                return 0
            return int(json.loads(last).get("training_iteration", 0))
    except (FileNotFoundError, ValueError):
        return 0
