"""Searches for the x that makes a function smallest. `from ray import tune` would do the same."""
import tempfile

from manta import tune


def train(config):
    for step in range(1, 6):
        tune.report({"loss": (config["x"] - 3) ** 2 + 1 / step})


with tempfile.TemporaryDirectory() as folder:
    tuner = tune.Tuner(train, param_space={"x": tune.uniform(0, 10)},
                       tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=16, search_alg="tpe", seed=7),
                       run_config=tune.RunConfig(storage_path=folder, verbose=0))
    best = tuner.fit().get_best_result()
    print(f"best loss {best.metrics['loss']:.3f} at x = {best.config['x']:.2f}")
