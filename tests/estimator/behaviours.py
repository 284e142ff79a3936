"""What an Estimator does on several workers; each function runs on all of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from lockstep import checkpoint, estimator
from lockstep.data import Dataset
from lockstep.errors import MismatchError
from lockstep.estimator import EvalSpec, RunConfig, TrainSpec, train
from tests.estimator import small
from tests.estimator.small import data, line

Results = dict[str, np.ndarray]


def _sharded(rows: int, batch: int, repeat: bool = False) -> Any:
    def input_fn(input_context: Any = None) -> Any:
        dataset = Dataset.from_tensor_slices(data(rows))
        if input_context:
            dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        dataset = dataset.batch(batch)
        return dataset.repeat() if repeat else dataset

    return input_fn


def _me(strategy: Any) -> int:
    return strategy.cluster_resolver.task_id


def evaluates_itself(strategy: Any, model_dir: str) -> Results:
    """A job without an evaluator: all workers evaluate, each its own part of the data."""
    made = line(Path(model_dir), RunConfig(train_distribute=strategy, save_checkpoints_steps=4))
    metrics, exports = estimator.train_and_evaluate(
        made, TrainSpec(_sharded(80, 4), max_steps=9), EvalSpec(_sharded(30, 4), steps=None, throttle_secs=0)
    )
    assert exports == []
    kernel, bias = (made.get_variable_value(f"line/{n}") for n in ("kernel", "bias"))
    expected = (data(30)[0]["x"] @ kernel + bias).mean()
    return {"mean": metrics["mean"], "expected": expected, "loss": metrics["loss"], "step": metrics["global_step"]}


def saves_by_the_clock_of_the_chief(strategy: Any, model_dir: str) -> Results:
    """Checkpoints by seconds, and an evaluation after each: all workers act after the same steps."""
    saved: list[int] = []

    class Noted(estimator.CheckpointSaverListener):
        is_for_all_tasks = True

        def after_save(self, session: Any, global_step_value: int) -> bool | None:
            saved.append(global_step_value)
            return len(saved) >= 3

    config = RunConfig(train_distribute=strategy, save_checkpoints_secs=0.05)
    line(Path(model_dir), config).train(_sharded(400, 1, repeat=True), saving_listeners=[Noted()])
    return {"saved": np.asarray(saved)}


def stops_where_one_worker_asks(strategy: Any, model_dir: str) -> Results:
    """A hook that asks to stop on the last worker only: all stop after the same step."""
    seen: list[int] = []

    class Stop(estimator.SessionRunHook):
        def before_run(self, run_context: Any) -> Any:
            return estimator.SessionRunArgs("global_step")

        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(int(run_values.results) + 1)
            if _me(strategy) == 1 and seen[-1] >= 3:
                run_context.request_stop()

    config = RunConfig(train_distribute=strategy)
    line(Path(model_dir), config).train(_sharded(4000, 1), hooks=[Stop()])
    return {"last": np.asarray(seen[-1])}


def stops_early(strategy: Any, model_dir: str) -> Results:
    """Early stopping, decided by the chief from event files."""
    made = line(Path(model_dir), RunConfig(train_distribute=strategy, save_checkpoints_steps=3))
    hook = estimator.experimental.stop_if_no_decrease_hook(
        made, "loss", max_steps_without_decrease=5, run_every_secs=None, run_every_steps=3
    )
    train_spec = TrainSpec(_sharded(4000, 1), max_steps=1500, hooks=[hook])

    def constant(input_context: Any = None) -> Any:
        return Dataset.from_tensor_slices(({"x": np.zeros((4, 1), np.float32)}, np.zeros((4, 1), np.float32))).batch(2)

    metrics, _ = estimator.train_and_evaluate(made, train_spec, EvalSpec(constant, throttle_secs=0))
    return {"step": np.asarray(metrics["global_step"])}


def exports(strategy: Any, model_dir: str) -> Results:
    """The final export of a job of two workers, and what predict says."""
    receiver = estimator.export.build_raw_serving_input_receiver_fn(
        {"x": estimator.export.placeholder("float32", [None, 1], name="x")}
    )
    made = line(Path(model_dir), RunConfig(train_distribute=strategy, save_checkpoints_steps=5))
    _, exported = estimator.train_and_evaluate(
        made,
        TrainSpec(_sharded(80, 4), max_steps=6),
        EvalSpec(_sharded(16, 4), throttle_secs=0, exporters=estimator.FinalExporter("final", receiver)),
    )
    assert exported is not None
    predicted = [p["y"] for p in made.predict(lambda: Dataset.from_tensor_slices(data(7)).batch(7))]
    return {"path": np.asarray(os.fsdecode(exported[0])), "predicted": np.asarray(predicted)}


def disagree(strategy: Any, model_dir: str) -> Results:
    """Different settings on the two workers are an error on both."""
    made = line(Path(model_dir), RunConfig(train_distribute=strategy))
    try:
        made.train(_sharded(80, 4), max_steps=5 + _me(strategy))
    except MismatchError as error:
        return {"error": np.asarray(str(error))}
    raise AssertionError


def fails_on_one(strategy: Any, model_dir: str) -> Results:
    """An error in one worker's input ends training on both, with the first cause."""

    def input_fn(input_context: Any = None) -> Any:
        def checked(x: Any, y: Any) -> Any:
            if _me(strategy) == 1 and float(x["x"][0]) > 0:
                raise RuntimeError("a broken record")
            return x, y

        return Dataset.from_tensor_slices(data(80)).map(checked).batch(4)

    try:
        line(Path(model_dir), RunConfig(train_distribute=strategy)).train(input_fn)
    except Exception as error:
        return {"error": np.asarray(f"{type(error).__name__} {error}")}
    raise AssertionError


def restores_from_the_chief(strategy: Any, model_dir: str) -> Results:
    """Only the chief's model_dir counts: workers may see other directories."""
    own = Path(model_dir) / str(_me(strategy))
    made = line(own, RunConfig(train_distribute=strategy))
    made.train(_sharded(80, 4), steps=3)
    made.train(_sharded(80, 4), steps=3)
    steps = [checkpoint.step_of(p) for p in checkpoint.all_checkpoints(str(own))]
    return {"steps": np.asarray(steps)}


def odd_model_fn(strategy: Any, model_dir: str, what: str) -> Results:
    """The model_fn of the last worker has the same variables, and another step."""
    odd = _me(strategy) == 1
    config = RunConfig(train_distribute=strategy, eval_distribute=strategy)
    params = {"rate": 0.2 if odd and what == "params" else 0.1}
    made = estimator.Estimator(
        _odd_model_fn if odd and what in ("train", "eval") else small.model_fn, model_dir, config, params
    )
    try:
        if what == "eval":
            made.evaluate(_sharded(30, 4))
        else:
            made.train(_sharded(30, 4))
    except MismatchError as error:
        return {"text": np.array(str(error))}
    return {"text": np.array("")}


def _odd_model_fn(features: Any, labels: Any, mode: str, params: Any) -> estimator.EstimatorSpec:
    return small.model_fn(features, labels + 0.5, mode, params)


def chief_looks_at_a_value(strategy: Any, model_dir: str) -> Results:
    """A hook of the chief alone asks for a value that nobody else wants."""
    seen: list[Any] = []

    class Look(estimator.SessionRunHook):
        def __init__(self) -> None:
            self.wanted = "predicted"

        def before_run(self, run_context: Any) -> Any:
            return estimator.SessionRunArgs(self.wanted)

        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(run_values.results)

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> estimator.EstimatorSpec:
        train.record("predicted", features["x"] * 2)
        return small.model_fn(features, labels, mode, params)

    hooks = [Look()] if _me(strategy) == 0 else []
    made = estimator.Estimator(model_fn, model_dir, RunConfig(train_distribute=strategy), {})
    made.train(_sharded(24, 4), hooks=hooks)
    return {"steps": np.array(made.get_variable_value("global_step")), "seen": np.array(len(seen))}
