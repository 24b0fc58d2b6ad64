"""A searcher of one's own: halves the interval around the best value so far."""
import tempfile

from manta import tune
from manta.tune.search import Searcher


class Halving(Searcher):
    def __init__(self, low, high, points):
        super().__init__(metric="loss", mode="min")
        self.low, self.high, self.points = low, high, points
        self.waiting = self._grid()
        self.values = {}
        self.best = (float("inf"), 0.0)

    def _grid(self):
        step = (self.high - self.low) / (self.points - 1)
        return [self.low + step * number for number in range(self.points)]

    def suggest(self, trial_id):
        if not self.waiting:
            if self.values:
                return None  # results are missing: ask later
            quarter = (self.high - self.low) / 4
            self.low, self.high = self.best[1] - quarter, self.best[1] + quarter
            self.waiting = self._grid()
        self.values[trial_id] = self.waiting.pop(0)
        return {"x": self.values[trial_id]}

    def on_trial_complete(self, trial_id, result=None, error=False):
        x = self.values.pop(trial_id)
        if not error:
            self.best = min(self.best, (result["loss"], x))


def train(config):
    return {"loss": (config["x"] - 3.3) ** 2}


with tempfile.TemporaryDirectory() as folder:
    tuner = tune.Tuner(train, tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=20,
                                                          search_alg=Halving(0, 10, 5)),
                       run_config=tune.RunConfig(storage_path=folder, verbose=0))
    print(f"best x = {tuner.fit().get_best_result().config['x']:.3f}")
