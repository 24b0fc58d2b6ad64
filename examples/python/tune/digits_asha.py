"""ASHA stops bad trials early: a small network learns the digits of a made-up data set, in plain NumPy."""
import tempfile

from manta import tune
from manta.tune.schedulers import ASHAScheduler

try:
    import numpy as np
except ImportError:
    raise SystemExit(print("this example needs numpy: pip install numpy")) from None


def digits(seed=0, samples=600):
    """Ten blurred 8x8 patterns with noise, as a data set of handwritten digits has them."""
    random = np.random.default_rng(seed)
    patterns = random.normal(size=(10, 64))
    labels = random.integers(0, 10, samples)
    return (patterns[labels] + random.normal(scale=2.0, size=(samples, 64))).astype("f4"), labels


def train(config, data):
    images, labels = data
    random = np.random.default_rng(1)
    first = random.normal(scale=0.1, size=(64, config["hidden"]))
    second = random.normal(scale=0.1, size=(config["hidden"], 10))
    for _epoch in range(27):
        for start in range(0, 500, 50):
            x, y = images[start:start + 50], labels[start:start + 50]
            hidden = np.tanh(x @ first)
            scores = np.exp(hidden @ second)
            error = scores / scores.sum(1, keepdims=True) - np.eye(10)[y]
            back = error @ second.T * (1 - hidden ** 2)
            second -= config["lr"] * hidden.T @ error / 50
            first -= config["lr"] * x.T @ back / 50
        guess = (np.tanh(images[500:] @ first) @ second).argmax(1)
        tune.report({"accuracy": float((guess == labels[500:]).mean())})


with tempfile.TemporaryDirectory() as folder:
    space = {"lr": tune.loguniform(1e-4, 1), "hidden": tune.lograndint(4, 65)}
    tuner = tune.Tuner(tune.with_parameters(train, data=digits()), param_space=space,
                       tune_config=tune.TuneConfig(metric="accuracy", mode="max", num_samples=12, seed=3,
                                                   scheduler=ASHAScheduler(max_t=27, reduction_factor=3)),
                       run_config=tune.RunConfig(storage_path=folder, verbose=0))
    grid = tuner.fit()
    epochs = sum(result.metrics["training_iteration"] for result in grid)
    best = grid.get_best_result()
    found = best.config
    print(f"accuracy {best.metrics['accuracy']:.2f} with lr = {found['lr']:.3f}, hidden = {found['hidden']}")
    print(f"{epochs} epochs instead of {12 * 27}")
