"""The command `manta tune`: looks at runs, stops them and continues them."""
from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import sys
import time
from typing import Any

from . import _restore
from ._config import results_folder
from ._trial import read_results
from .error import TuneError, suggestion
from .progress_reporter import table, text_of
from .stopper import lookup

STOP_FILE = "stop"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="manta tune", description="Looks at tuning runs, stops and continues them.")
    parser.add_argument("--storage", default=None, metavar="FOLDER",
                        help="where the runs are (default $TUNE_RESULT_DIR, else ~/manta_results)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("ls", help="lists the runs")
    for name, about in (("show", "shows a run"), ("best", "shows the best trial of a run"),
                        ("rm", "deletes the files of a run"), ("resume", "continues a run")):
        commands.add_parser(name, help=about).add_argument("name")
    trials = commands.add_parser("trials", help="lists the trials of a run")
    trials.add_argument("name")
    trials.add_argument("--sort", metavar="METRIC", help="by this metric, the best first")
    trials.add_argument("--columns", metavar="KEY,…", help="keys of results or configurations (config/lr)")
    logs = commands.add_parser("logs", help="prints what a trial printed (log_to_file) and its errors")
    logs.add_argument("name")
    logs.add_argument("trial", type=int)
    logs.add_argument("-f", "--follow", action="store_true", help="waits for more")
    stop = commands.add_parser("stop", help="stops a run, or one trial of it")
    stop.add_argument("name")
    stop.add_argument("trial", type=int, nargs="?")
    export = commands.add_parser("export", help="writes all results of a run")
    export.add_argument("name")
    export.add_argument("--csv", action="store_true", help="as CSV, which is the default")
    export.add_argument("--json", action="store_true", help="as lines of JSON")
    given = parser.parse_args(words)
    try:
        return int(globals()[f"_{given.command}"](given) or 0)
    except (TuneError, ValueError, OSError) as error:
        print(f"manta tune: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0


def _root(given: Any) -> str:
    return str(os.path.abspath(os.path.expanduser(given.storage or results_folder())))


def _folder(given: Any) -> str:
    """The folder of the run that was named, or whose path was given."""
    root = _root(given)
    for path in (os.path.expanduser(given.name), os.path.join(root, given.name)):
        if _restore.can_restore(path):
            return str(os.path.abspath(path))
    known = [name for name in os.listdir(root) if _restore.can_restore(os.path.join(root, name))] if os.path.isdir(
        root) else []
    raise TuneError(f"there is no run {given.name!r} in {root}.{suggestion(given.name, known)}")


def _ls(given: Any) -> None:
    root = _root(given)
    rows = [["run", "trials", "running", "done", "failed", "best", "started"]]
    for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
        folder = os.path.join(root, name)
        if not _restore.can_restore(folder):
            continue
        try:
            state = _restore.load_state(folder)
        except TuneError:
            rows.append([name, "–", "–", "–", "–", "–", "–"])
            continue
        counts = [trial["status"] for trial in state["trials"]]
        best = _best_of(state)
        shown = "–" if best is None else f"{_metric(state)} {text_of(lookup(best['last_result'], str(_metric(state))))}"
        rows.append([name, str(len(counts)), str(counts.count("RUNNING")), str(counts.count("TERMINATED")),
                     str(counts.count("ERROR")), shown, state["date"]])
    if len(rows) == 1:
        print(f"there are no runs in {root}")
    else:
        print("\n".join(table(rows)))


def _metric(state: dict[str, Any]) -> str | None:
    metric = state["metric"]
    first = metric[0] if isinstance(metric, list) else metric
    return None if first is None else str(first)


def _value(trial: dict[str, Any], metric: str) -> float | None:
    import math

    value = lookup(trial["last_result"], metric)
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _best_of(state: dict[str, Any]) -> dict[str, Any] | None:
    metric = _metric(state)
    if metric is None:
        return None
    mode = state["mode"][0] if isinstance(state["mode"], list) else state["mode"]
    known = [(value, trial) for trial in state["trials"] if (value := _value(trial, metric)) is not None]
    if not known:
        return None
    return dict((min if mode == "min" else max)(known, key=lambda pair: pair[0])[1])


def _show(given: Any) -> None:
    folder = _folder(given)
    state = _restore.load_state(folder)
    statuses = [trial["status"] for trial in state["trials"]]
    counts = ", ".join(f"{statuses.count(one)} {one}" for one in sorted(set(statuses)))
    print(f"{state['name']}  {state['trainable']}  {len(statuses)} trials: {counts}\n{folder}")
    best = _best_of(state)
    if best is not None:
        metric = str(_metric(state))
        print(f"best {metric} {text_of(_value(best, metric))}  trial {best['number']}  {_shown(best['config'])}")
    for trial in state["trials"]:
        if trial["error"]:
            place = os.path.join(folder, trial["path"], "error.txt")
            print(f"trial {trial['number']} failed: {trial['error']}  → {place}")


def _shown(config: dict[str, Any]) -> str:
    return " ".join(f"{key}={text_of(value)}" for key, value in config.items())


def _best(given: Any) -> int:
    folder = _folder(given)
    state = _restore.load_state(folder)
    best = _best_of(state)
    if best is None:
        raise TuneError(f"run {state['name']} has no best trial: its metric is {state['metric']!r}, and no trial has a "
                        "finite value of it")
    metric = str(_metric(state))
    print(json.dumps({"trial": best["number"], metric: _value(best, metric), "config": best["config"],
                      "path": os.path.join(folder, best["path"])}, indent=2))
    return 0


def _trials(given: Any) -> None:
    state = _restore.load_state(_folder(given))
    trials = state["trials"]
    metric = given.sort or _metric(state)
    if given.sort:
        sign = 1.0 if state["mode"] == "min" else -1.0
        trials = sorted(trials, key=lambda trial: (_value(trial, given.sort) is None,
                                                   sign * (_value(trial, given.sort) or 0.0)))
    if given.columns:
        columns = given.columns.split(",")
    else:
        keys = list(trials[0]["config"]) if trials else []
        columns = [*(["training_iteration", metric] if metric else ["training_iteration"]),
                   *(f"config/{key}" for key in keys)]
    rows = [["trial", "state", *columns]]
    for trial in trials:
        values = {**trial["last_result"], "config": trial["config"]}
        rows.append([str(trial["number"]), trial["status"], *(text_of(lookup(values, key)) for key in columns)])
    print("\n".join(table(rows)))


def _logs(given: Any) -> None:
    folder = _folder(given)
    trials = _restore.load_state(folder)["trials"]
    if not 0 <= given.trial < len(trials):
        raise TuneError(f"run {given.name} has no trial {given.trial}: it has {len(trials)}")
    path = os.path.join(folder, trials[given.trial]["path"])
    files = [os.path.join(path, name) for name in ("stdout", "stderr", "error.txt")]
    if not any(os.path.exists(one) for one in files) and not given.follow:
        raise TuneError(f"trial {given.trial} has no logs: RunConfig(log_to_file=True) writes what it prints to {path}")
    read = dict.fromkeys(files, 0)
    while True:
        for one in files:
            if os.path.exists(one):
                with open(one) as file:
                    file.seek(read[one])
                    sys.stdout.write(file.read())
                    read[one] = file.tell()
        sys.stdout.flush()
        if not given.follow:
            return
        time.sleep(0.2)


def _stop(given: Any) -> None:
    folder = _folder(given)
    with open(os.path.join(folder, STOP_FILE), "a") as file:
        file.write(f"{-1 if given.trial is None else given.trial}\n")
    what = "the run" if given.trial is None else f"trial {given.trial}"
    print(f"asked {what} to stop; the driver of the run looks every half second")


def _resume(given: Any) -> int:
    from .tuner import Tuner

    grid = Tuner.restore(_folder(given)).fit()
    return 1 if grid.num_errors else 0


def _rm(given: Any) -> None:
    folder = _folder(given)
    shutil.rmtree(folder)
    print(f"deleted {folder}")


def _export(given: Any) -> None:
    folder = _folder(given)
    rows = []
    for trial in _restore.load_state(folder)["trials"]:
        for row in read_results(os.path.join(folder, trial["path"])) if trial["path"] else []:
            rows.append({"trial": trial["number"], **row})
    if given.json:
        for row in rows:
            print(json.dumps(row))
        return
    flat = [_flat(row, "") for row in rows]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    writer = csv.DictWriter(sys.stdout, columns, restval="")
    writer.writeheader()
    writer.writerows(flat)


def _flat(node: dict[str, Any], prefix: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, dict):
            out.update(_flat(value, f"{prefix}{key}/"))
        else:
            out[f"{prefix}{key}"] = value
    return out
