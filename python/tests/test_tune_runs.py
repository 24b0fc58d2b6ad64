"""Runs of manta.tune, written as users of Ray Tune write them."""
import json
import os
import tempfile

import pytest
from tune_trainables import Counter, square, steps

import manta
from manta import tune
from manta.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler
from manta.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher, TPESearch

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def fit(tmp_path):
    """Runs a Tuner in a folder of its own, silently."""

    def run(trainable, space=None, run=None, **options):
        config = tune.RunConfig(**{"storage_path": str(tmp_path), "name": "run", "verbose": 0, **(run or {})})
        return tune.Tuner(trainable, param_space=space, tune_config=tune.TuneConfig(**options), run_config=config).fit()

    return run


def lines(result):
    with open(os.path.join(result.path, "result.json")) as file:
        return [json.loads(line) for line in file]


def test_a_run_gives_the_best_configuration(fit):
    grid = fit(square, {"x": tune.uniform(0, 10)}, metric="loss", mode="min", num_samples=12, search_alg="tpe", seed=7)
    best = grid.get_best_result()
    assert len(grid) == 12 and grid.num_errors == 0 and grid.num_terminated == 12
    assert best.metrics["loss"] == min(result.metrics["loss"] for result in grid)
    assert best.config["x"] == pytest.approx(3, abs=3)


def test_files_are_written_for_each_trial(fit):
    grid = fit(steps, {"x": 1, "big": [1, 2], "act": tune.grid_search(["relu", "tanh"])})
    assert [result.config["act"] for result in grid] == ["relu", "tanh"]
    for result in grid:
        names = set(os.listdir(result.path))
        assert {"params.json", "params.pkl", "result.json", "progress.csv"} <= names
        assert any(name.startswith("events.out.tfevents") for name in names)
        rows = lines(result)
        assert [row["training_iteration"] for row in rows] == [1, 2, 3, 4, 5]
        assert {"time_this_iter_s", "time_total_s", "timestamp", "date", "pid", "hostname", "node_ip", "trial_id",
                "experiment_tag", "config", "done", "time_since_restore", "iterations_since_restore", "timesteps_total",
                "episodes_total", "checkpoint_dir_name"} <= set(rows[0])
        assert rows[0]["config"] == result.config
        with open(os.path.join(result.path, "progress.csv")) as file:
            assert len(file.readlines()) == 6
        with open(os.path.join(result.path, "params.json")) as file:
            assert json.load(file) == result.config
    names = os.listdir(grid.experiment_path)
    assert {"journal", "tuner.pkl", "trainable.pkl"} <= set(names)
    assert any(name.startswith("experiment_state-") for name in names)


def test_returned_and_yielded_dictionaries_are_reports(fit):
    def returned(config):
        return {"a": config["x"]}

    def yielded(config):
        for number in range(3):
            yield {"a": number}

    assert fit(returned, {"x": 5})[0].metrics["a"] == 5
    assert [row["a"] for row in lines(fit(yielded)[0])] == [0, 1, 2]


def test_nested_metrics_have_paths(fit):
    def train(config):
        tune.report({"eval": {"loss": config["x"]}, "list": [1, 2], "text": "a"})

    grid = fit(train, {"x": tune.grid_search([3, 1, 2])}, metric="eval/loss", mode="min")
    assert grid.get_best_result().config["x"] == 1
    assert lines(grid[0])[0]["list"] == [1, 2]


def test_numbers_and_arrays_of_numpy_are_metrics(fit):
    numpy = pytest.importorskip("numpy")

    def train(config):
        tune.report({"f": numpy.float32(0.5), "i": numpy.int64(config["x"]), "zero": numpy.array(2.0),
                     "arr": numpy.arange(3), "yes": numpy.bool_(True)})

    grid = fit(train, {"x": tune.grid_search([1, 2])}, metric="i", mode="max", scheduler=ASHAScheduler())
    row = lines(grid.get_best_result())[0]
    assert (row["f"], row["i"], row["zero"], row["arr"]) == (0.5, 2, 2.0, [0, 1, 2])


def test_stop_ends_trials_by_number_function_and_stopper(fit):
    endless = {"x": 1, "n": 10**6}
    assert fit(steps, endless, run={"stop": {"training_iteration": 4}})[0].metrics["value"] == 4
    assert fit(steps, endless, run={"stop": lambda trial, result: result["value"] >= 3})[0].metrics["value"] == 3
    assert len(lines(fit(steps, endless, run={"stop": tune.stopper.MaximumIterationStopper(2)})[0])) == 2


def test_a_stopped_function_cleans_up(fit, tmp_path):
    marks = str(tmp_path / "marks")
    os.mkdir(marks)

    def train(config):
        with tempfile.TemporaryDirectory(dir=marks):
            while True:
                tune.report({"a": 1})

    fit(train, run={"stop": {"training_iteration": 3}})
    assert os.listdir(marks) == []


def test_asha_stops_bad_trials_early(fit):
    def train(config):
        for number in range(16):
            tune.report({"accuracy": config["x"] * (number + 1)})

    grid = fit(train, {"x": tune.grid_search([8, 7, 6, 5, 4, 3, 2, 1])}, metric="accuracy", mode="max",
               scheduler=ASHAScheduler(max_t=16, reduction_factor=2), max_concurrent_trials=1)
    iterations = [result.metrics["training_iteration"] for result in grid]
    assert iterations[0] == 16 and iterations[-1] < 16 and sum(iterations) < 8 * 16


def test_checkpoints_are_kept_by_score_and_restored_from(fit):
    def train(config):
        for number in range(5):
            with tempfile.TemporaryDirectory() as folder:
                with open(os.path.join(folder, "n"), "w") as file:
                    file.write(str(number))
                tune.report({"score": [1, 5, 2, 4, 3][number]}, checkpoint=tune.Checkpoint.from_directory(folder))

    keep = tune.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
    result = fit(train, run={"checkpoint_config": keep})[0]
    left = sorted(name for name in os.listdir(result.path) if name.startswith("checkpoint_"))
    assert "checkpoint_000001" in left and "checkpoint_000000" not in left and len(left) <= 3
    best = result.get_best_checkpoint("score", "max")
    with best.as_directory() as folder:
        assert open(os.path.join(folder, "n")).read() == "1"
    assert result.checkpoint.path.endswith("checkpoint_000004")


def test_a_class_takes_steps_saves_and_is_reused(fit):
    keep = tune.CheckpointConfig(checkpoint_frequency=2, checkpoint_at_end=True)
    grid = fit(Counter, {"x": tune.grid_search([1, 2, 3, 4, 5, 6])}, run={"checkpoint_config": keep}, metric="value",
               mode="max", reuse_actors=True)
    assert [result.metrics["value"] for result in grid] == [4, 8, 12, 16, 20, 24]
    assert len({result.metrics["pid_of_step"] for result in grid}) < 6
    assert all(result.checkpoint is not None for result in grid)
    fresh = fit(Counter, {"x": tune.grid_search([1, 2, 3])}, metric="value", mode="max")
    assert len({result.metrics["pid_of_step"] for result in fresh}) == 3


def test_the_context_knows_the_trial(fit):
    def train(config):
        context = tune.get_context()
        tune.report({"id": context.get_trial_id(), "name": context.get_trial_name(), "dir": context.get_trial_dir(),
                     "experiment": context.get_experiment_name(), "cwd": os.getcwd()})

    result = fit(train)[0]
    assert result.metrics["id"] == result.metrics["trial_id"]
    assert result.metrics["dir"] == result.path == result.metrics["cwd"]
    assert result.metrics["experiment"] == "run" and result.metrics["name"].startswith("train_")


def test_big_parameters_are_put_once(fit):
    def train(config, data):
        return {"size": len(data)}

    assert fit(tune.with_parameters(train, data=list(range(1000))))[0].metrics["size"] == 1000


def test_resources_are_dictionaries_groups_and_functions(fit):
    def cpus(config):
        return {"cpus": manta.get_runtime_context().get_assigned_resources().get("CPU", 0)}

    assert fit(tune.with_resources(cpus, {"cpu": 2}))[0].metrics["cpus"] == 2
    grid = fit(tune.with_resources(cpus, lambda config: {"cpu": config["n"]}), {"n": tune.grid_search([1, 3])})
    assert [result.metrics["cpus"] for result in grid] == [1, 3]
    group = tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])
    assert fit(tune.with_resources(square, group), {"x": 1}).num_errors == 0


def test_resources_that_the_cluster_never_has_are_refused(fit, tmp_path):
    with pytest.raises(manta.exceptions.InfeasibleError, match="each needs 99 CPU.*the cluster has.*4 CPU"):
        fit(tune.with_resources(square, {"cpu": 99}), {"x": 1})
    assert os.listdir(tmp_path) == []


def test_at_most_so_many_trials_run_at_a_time(fit, tmp_path):
    log = str(tmp_path / "log")

    def train(config):
        with open(log, "a") as file:
            file.write("+")
        tune.report({"a": 1})
        with open(log, "a") as file:
            file.write("-")

    fit(train, num_samples=4, max_concurrent_trials=1)
    assert open(log).read() == "+-+-+-+-"


def test_callbacks_see_what_happens_and_one_that_raises_ends_the_run(fit):
    seen = []

    class Watch(tune.Callback):
        def setup(self, **info):
            seen.append("setup")

        def on_trial_start(self, iteration, trials, trial, **info):
            seen.append(("start", trial.config["x"]))

        def on_trial_result(self, iteration, trials, trial, result, **info):
            seen.append(("result", result["value"]))

        def on_trial_complete(self, iteration, trials, trial, **info):
            seen.append("complete")

        def on_experiment_end(self, trials, **info):
            seen.append("end")

    fit(steps, {"x": 1, "n": 2}, run={"callbacks": [Watch()]})
    assert seen == ["setup", ("start", 1), ("result", 1), ("result", 2), "complete", "end"]

    class Broken(tune.Callback):
        def on_trial_result(self, iteration, trials, trial, result, **info):
            raise KeyError("no")

    with pytest.raises(tune.TuneError, match="callback Broken.on_trial_result raised KeyError"):
        fit(steps, {"x": 1}, run={"callbacks": [Broken()]})


def test_a_searcher_of_the_user_is_asked_and_told(fit):
    class Mine(Searcher):
        def __init__(self):
            super().__init__()
            self.told = []

        def suggest(self, trial_id):
            return {"x": len(self.told)} if len(self.told) < 3 else Searcher.FINISHED

        def on_trial_complete(self, trial_id, result=None, error=False):
            self.told.append(result["loss"])

    mine = Mine()
    grid = fit(square, {"const": 1}, metric="loss", mode="min", num_samples=10, search_alg=mine,
               max_concurrent_trials=1)
    assert [result.config for result in grid] == [{"const": 1, "x": 0}, {"const": 1, "x": 1}, {"const": 1, "x": 2}]
    assert mine.told == [9, 4, 1]


def test_a_limiter_and_a_repeater_wrap_searchers(fit):
    inner = TPESearch({"x": tune.uniform(0, 10)}, metric="loss", mode="min", seed=1)
    grid = fit(square, metric="loss", mode="min", num_samples=6, search_alg=Repeater(inner, repeat=2))
    values = [result.config["x"] for result in grid]
    assert values[0] == values[1] and values[2] == values[3] and values[0] != values[2]
    limited = ConcurrencyLimiter(BasicVariantGenerator(random_state=1), max_concurrent=1)
    assert len(fit(square, {"x": tune.uniform(0, 1)}, num_samples=3, search_alg=limited)) == 3


def test_a_scheduler_of_the_user_decides(fit):
    class Mine(FIFOScheduler):
        def on_trial_result(self, controller, trial, result):
            if result["training_iteration"] >= trial.config["x"]:
                assert trial in controller.get_trials()
                return TrialScheduler.STOP
            return TrialScheduler.CONTINUE

    grid = fit(steps, {"x": tune.grid_search([1, 3])}, scheduler=Mine())
    assert [result.metrics["training_iteration"] for result in grid] == [1, 3]


def test_several_objectives_have_a_pareto_front(fit):
    def train(config):
        return {"a": config["x"], "b": (config["x"] - 2) ** 2}

    grid = fit(train, {"x": tune.grid_search([0, 1, 2, 3])}, metric=["a", "b"], mode=["min", "min"])
    assert sorted(result.config["x"] for result in grid.get_pareto()) == [0, 1, 2]


def test_tune_run_returns_an_analysis(tmp_path):
    analysis = tune.run(steps, config={"x": tune.grid_search([1, 2])}, metric="value", mode="max", name="old",
                        storage_path=str(tmp_path), verbose=0)
    assert analysis.best_config["x"] == 2 and analysis.best_result["value"] == 10
    assert len(analysis.trials) == 2 and len(analysis.get_all_configs()) == 2
    again = tune.ExperimentAnalysis(str(tmp_path / "old"))
    assert again.get_best_trial("value", "max").config["x"] == 2
    assert again.get_best_config("value", "max", scope="avg")["x"] == 2


def test_scopes_compare_whole_trials(fit):
    def train(config):
        for value in config["values"]:
            tune.report({"m": value})

    grid = fit(train, {"values": tune.grid_search([[9, 1], [5, 2], [float("nan")]])}, metric="m", mode="max")
    assert grid.get_best_result().config["values"] == [5, 2]
    assert grid.get_best_result(scope="all").config["values"] == [9, 1]
    assert grid.get_best_result(scope="avg").config["values"] == [9, 1]
    with pytest.raises(RuntimeError, match="Did you mean m"):
        grid.get_best_result("mm", "max")


def test_a_second_run_of_a_name_has_a_folder_of_its_own(fit):
    first, second = fit(square, {"x": 1}), fit(square, {"x": 1})
    assert first.experiment_path != second.experiment_path
    assert os.path.basename(second.experiment_path) == "run_2"


def test_output_goes_to_files_on_request(fit):
    def train(config):
        print("hello")
        return {"a": 1}

    result = fit(train, run={"log_to_file": True})[0]
    assert open(os.path.join(result.path, "stdout")).read() == "hello\n"


def test_one_line_per_trial_in_a_pipe_and_none_when_silent(tmp_path, capfd):
    tune.Tuner(square, param_space={"x": 1}, run_config=tune.RunConfig(storage_path=str(tmp_path))).fit()
    assert capfd.readouterr().out.count("TERMINATED") == 1
    tune.Tuner(square, param_space={"x": 1}, run_config=tune.RunConfig(storage_path=str(tmp_path), verbose=0)).fit()
    assert capfd.readouterr().out == ""


def test_names_of_trials_and_folders_can_be_chosen(fit):
    grid = fit(square, {"x": 1}, trial_name_creator=lambda trial: f"my_{trial.trial_id}",
               trial_dirname_creator=lambda trial: "folder")
    assert os.path.basename(grid[0].path) == "folder"


def test_result_from_path_reads_a_trial(fit):
    result = fit(square, {"x": 1})[0]
    again = tune.Result.from_path(result.path)
    assert again.metrics["loss"] == 4 and again.config == {"x": 1}


def test_a_time_budget_ends_the_run(fit):
    def train(config):
        import time

        while True:
            time.sleep(0.01)
            tune.report({"a": 1})

    grid = fit(train, num_samples=-1, time_budget_s=0.5)
    assert len(grid) >= 1 and grid.num_errors == 0


def test_the_environment_chooses_folders_and_loggers(fit, tmp_path, monkeypatch):
    monkeypatch.setenv("TUNE_RESULT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    monkeypatch.setenv("TUNE_MAX_LEN_IDENTIFIER", "10")
    grid = tune.Tuner(square, param_space={"x": 1}, run_config=tune.RunConfig(
        verbose=0, callbacks=[tune.logger.JsonLoggerCallback()])).fit()
    assert grid.experiment_path.startswith(str(tmp_path / "elsewhere"))
    assert set(os.listdir(grid[0].path)) == {"params.json", "params.pkl", "result.json"}
    assert os.path.basename(grid[0].path).startswith("square_") and len(os.path.basename(grid[0].path)) == 30


def test_registered_names_and_experiments_run(tmp_path):
    tune.register_trainable("by_name", square)
    trials = tune.run_experiments({"exp": {"run": "by_name", "config": {"x": 2}, "storage_path": str(tmp_path)}},
                                  verbose=0)
    assert trials[0].last_result["loss"] == 1 and os.path.isdir(tmp_path / "exp")
    again = tune.run("by_name", name="exp", config={"x": 2}, storage_path=str(tmp_path), resume=True, verbose=0)
    assert len(again.trials) == 1 and again.experiment_path == str(tmp_path / "exp")


def test_a_reporter_of_the_user_prints_its_columns(fit, capsys):
    reporter = tune.CLIReporter(metric_columns=["loss"], parameter_columns=["x"], max_report_frequency=0)
    fit(square, {"x": tune.grid_search([1, 2])}, run={"progress_reporter": reporter, "verbose": 1})
    out = capsys.readouterr().out
    assert "Trial name" in out and "2 TERMINATED" in out and "loss" in out
