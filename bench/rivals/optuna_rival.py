"""Optuna on the problems of bench/tune_quality.cc: prints the same table, and the time of one ask and tell.

    python optuna_rival.py [SEEDS] [SAMPLER...]      samplers: random tpe cmaes gp (gp needs torch)
    python optuna_rival.py speed [SAMPLER...]

With --runs FILE the best value of every seed is appended to FILE as JSON lines, for a rank test.
"""
import json
import math
import statistics
import sys
import time
import warnings

import optuna

HARTMANN_A = [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
HARTMANN_P = [
    [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
    [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
    [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
    [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
]


def branin(trial):
    x, y = trial.suggest_float("x0", -5, 10), trial.suggest_float("x1", 0, 15)
    a = y - 5.1 / (4 * math.pi**2) * x * x + 5 / math.pi * x - 6
    return a * a + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann6(trial):
    x = [trial.suggest_float(f"x{i}", 0, 1) for i in range(6)]
    total = 0.0
    for weight, row_a, row_p in zip([1.0, 1.2, 3.0, 3.2], HARTMANN_A, HARTMANN_P):
        total -= weight * math.exp(-sum(a * (v - p) ** 2 for a, p, v in zip(row_a, row_p, x)))
    return total


def rosenbrock4(trial):
    x = [trial.suggest_float(f"x{i}", -5, 10) for i in range(4)]
    return sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in zip(x, x[1:]))


def mixed(trial):
    loss = abs(math.log(trial.suggest_int("width", 4, 1024, log=True) / 96))
    loss += 0 if trial.suggest_categorical("act", ["tanh", "relu", "gelu"]) == "relu" else 0.3
    if trial.suggest_categorical("optimizer", ["sgd", "adam"]) == "sgd":
        loss += math.log10(trial.suggest_float("sgd/lr", 1e-5, 1, log=True) / 0.05) ** 2
        return loss + 2 * abs(trial.suggest_float("sgd/momentum", 0, 0.99) - 0.9)
    return loss + 0.2 + math.log10(trial.suggest_float("adam/lr", 1e-5, 1, log=True) / 0.002) ** 2


PROBLEMS = [
    ("Branin", branin, [30, 50, 100, 200]),
    ("Hartmann6", hartmann6, [50, 60, 100, 200]),
    ("Rosenbrock4", rosenbrock4, [50, 100, 200]),
    ("Mixed", mixed, [50, 100]),
]
SAMPLERS = {
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
}


def best_so_far(function, sampler, trials):
    study = optuna.create_study(sampler=sampler)
    study.optimize(function, n_trials=trials)
    best, result = math.inf, []
    for trial in study.trials:
        best = min(best, trial.value)
        result.append(best)
    return result


def quality(names, seeds, runs_file):
    for name in names:
        for problem, function, counts in PROBLEMS:
            counts = [count for count in counts if name != "gp" or count <= 100]
            runs = [best_so_far(function, SAMPLERS[name](seed), max(counts)) for seed in range(1, seeds + 1)]
            cells = []
            for count in counts:
                values = [run[count - 1] for run in runs]
                cells.append(f"@{count} {statistics.mean(values):.5g} ({statistics.median(values):.5g})")
                if runs_file:
                    with open(runs_file, "a", encoding="utf-8") as out:
                        out.write(json.dumps([name, problem, count, values]) + "\n")
            print(f"{name:8} {problem:20}  {'  '.join(cells)}", flush=True)


def speed(names):
    for name in names:
        study = optuna.create_study(sampler=SAMPLERS[name](1))
        total = 0.0
        for index in range(1020):
            begin = time.perf_counter()
            trial = study.ask()
            x = [trial.suggest_float(f"x{i}", 0, 1) for i in range(8)]
            study.tell(trial, sum((v - 0.3) ** 2 for v in x))
            if index >= 1000:
                total += time.perf_counter() - begin
        print(f"{name:8} 8-D n=1000: {total / 20 * 1e6:.0f} us", flush=True)


def main():
    arguments = sys.argv[1:]
    runs_file = None
    if "--runs" in arguments:
        at = arguments.index("--runs")
        runs_file = arguments[at + 1]
        del arguments[at : at + 2]
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    names = arguments[1:] or ["random", "tpe", "cmaes"]
    if arguments[:1] == ["speed"]:
        speed(names)
    else:
        quality(names, int(arguments[0]) if arguments else 30, runs_file)


if __name__ == "__main__":
    main()
