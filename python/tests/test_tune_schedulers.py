"""Schedulers of manta.tune in runs: pauses, clones, replays and changing resources."""
import glob
import json
import os

import pytest
from tune_trainables import Counter, Growing, steps

import manta
from manta import tune
from manta.tune.schedulers import (
    ASHAScheduler,
    DistributeResources,
    HyperBandScheduler,
    MedianStoppingRule,
    PopulationBasedTraining,
    PopulationBasedTrainingReplay,
    ResourceChangingScheduler,
)

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def fit(tmp_path):
    def run(trainable, space, **options):
        config = tune.RunConfig(storage_path=str(tmp_path), name="run", verbose=0)
        return tune.Tuner(trainable, param_space=space, tune_config=tune.TuneConfig(**options), run_config=config).fit()

    return run


def iterations(grid):
    return [result.metrics["training_iteration"] for result in grid]


def test_hyperband_pauses_and_resumes_from_checkpoints(fit):
    grid = fit(Growing, {"x": tune.grid_search(list(range(9)))}, metric="value", mode="max",
               scheduler=HyperBandScheduler(max_t=9, reduction_factor=3))
    assert grid.num_errors == 0 and max(iterations(grid)) == 9 and min(iterations(grid)) < 9
    best = grid.get_best_result()
    assert best.config["x"] == 8 and best.metrics["value"] == 8 * 9


def test_asha_that_promotes_pauses_trials(fit):
    grid = fit(Growing, {"x": tune.grid_search(list(range(6)))}, metric="value", mode="max",
               scheduler=ASHAScheduler(max_t=4, reduction_factor=2, promote=True))
    assert grid.num_errors == 0 and max(iterations(grid)) == 4 and sum(iterations(grid)) < 6 * 4


def test_the_median_rule_stops_bad_trials(fit):
    grid = fit(steps, {"x": tune.grid_search([5, 4, 3, 2, 1]), "n": 6}, metric="value", mode="max",
               max_concurrent_trials=1,
               scheduler=MedianStoppingRule(time_attr="training_iteration", grace_period=2, min_samples_required=2))
    assert iterations(grid)[0] == 6 and iterations(grid)[-1] < 6


def test_population_based_training_clones_checkpoints_and_writes_its_policy(fit):
    pbt = PopulationBasedTraining(time_attr="training_iteration", perturbation_interval=2, quantile_fraction=0.5,
                                  synch=True,
                                  hyperparam_mutations={"x": [1, 2, 4, 8]})
    grid = fit(Growing, {"x": tune.grid_search([1, 8])}, metric="value", mode="max", scheduler=pbt, seed=1)
    assert grid.num_errors == 0
    worse = grid[0].metrics["value"]
    assert worse > 9 * 1  # more than its own value alone can give in nine steps: it went on from the other trial
    assert os.path.exists(os.path.join(grid.experiment_path, "pbt_global.txt"))
    (policy,) = glob.glob(os.path.join(grid.experiment_path, "pbt_policy_*_00000.txt"))
    row = json.loads(open(policy).readline())
    assert len(row) == 6 and row[:2] == ["0", "1"]
    replayed = fit(Growing, {"x": 1}, scheduler=PopulationBasedTrainingReplay(policy))
    assert replayed.num_errors == 0 and replayed[0].metrics["value"] > 9


def test_a_function_of_the_user_explores(fit):
    seen = []

    def explore(config):
        seen.append(dict(config))
        return {**config, "x": 100}

    pbt = PopulationBasedTraining(time_attr="training_iteration", perturbation_interval=2, quantile_fraction=0.5,
                                  synch=True,
                                  custom_explore_fn=explore, hyperparam_mutations={"x": [1, 2]})
    grid = fit(Growing, {"x": tune.grid_search([1, 2]), "name": "const"}, metric="value", mode="max", scheduler=pbt)
    assert grid.num_errors == 0 and seen and seen[0]["name"] == "const"
    assert max(result.metrics["value"] for result in grid) >= 100


def test_resources_grow_while_a_trial_runs(fit):
    def cpus():
        return manta.get_runtime_context().get_assigned_resources().get("CPU", 0)

    class Reports(Counter):
        def step(self):
            return {**super().step(), "cpus": cpus()}

    scheduler = ResourceChangingScheduler(resources_allocation_function=DistributeResources())
    grid = fit(Reports, {"x": 1}, metric="value", mode="max", scheduler=scheduler)
    assert grid.num_errors == 0 and grid[0].metrics["cpus"] == 4
