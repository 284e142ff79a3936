"""A program for every task of a cluster: python -m tests.estimator.program MODEL_DIR OPTIONS."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import lockstep as ls
from lockstep import estimator
from lockstep.data import Dataset
from lockstep.estimator import EvalSpec, RunConfig, TrainSpec
from tests.estimator.small import data, model_fn

options = json.loads(sys.argv[2])
is_evaluator = json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "evaluator"


if is_evaluator and options.get("clock"):
    _time = time.time
    time.time = lambda: _time() + options["clock"]


class Reacts(estimator.SessionRunHook):
    """Does at a step what the options say."""

    def before_run(self, run_context: Any) -> Any:
        return estimator.SessionRunArgs("global_step")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step = int(run_values.results) + 1
        print("STEP", step, flush=True)
        if step == options.get("crash"):
            raise RuntimeError("on purpose")
        if step == options.get("stop"):
            run_context.request_stop()
        if step == options.get("hold"):
            wait_for_evaluator()
        if options.get("slow"):
            time.sleep(options["slow"])


def wait_for_evaluator() -> None:
    """Waits for its sign of life."""
    deadline = time.monotonic() + 60
    while not Path(sys.argv[1], ".lockstep", "evaluator.json").exists():
        assert time.monotonic() < deadline, "no evaluator has come"
        time.sleep(0.02)


def input_fn(input_context: Any = None) -> Any:
    dataset = Dataset.from_tensor_slices(data(options.get("rows", 240)))
    if input_context:
        dataset = dataset.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
    return dataset.batch(4)


def plain(value: Any) -> Any:
    """For JSON."""
    return os.fsdecode(value) if isinstance(value, bytes) else value


strategy = ls.distribute.MultiWorkerMirroredStrategy()
config = RunConfig(train_distribute=strategy, save_checkpoints_steps=options.get("every", 10), tf_random_seed=1)
made = estimator.Estimator(model_fn, sys.argv[1], config, params={})
receiver = estimator.export.build_raw_serving_input_receiver_fn({"x": np.zeros((1, 1), np.float32)})


def receiver_of(name: str) -> Any:
    """Returns what an exporter calls; in the exporter that the options name, the first process ends instead."""
    mark = Path(sys.argv[1] + "-ended")
    ends = is_evaluator and options.get("end_in") == name and not mark.exists()

    def receiver_fn() -> Any:
        if not ends:
            return receiver()
        mark.touch()
        if options["end_by"] != "error":
            os.kill(os.getpid(), signal.Signals[options["end_by"]])
        raise RuntimeError("no export, on purpose")

    return receiver_fn


def is_larger(best_eval_result: Any, current_eval_result: Any) -> bool:
    """The loss gets smaller in training, so the first evaluation is the best."""
    return current_eval_result["loss"] > best_eval_result["loss"]


def end_in_the_last_evaluation() -> None:
    """Has the evaluator's first process asked to end in an evaluation, when the training has ended."""
    mark, status = Path(sys.argv[1] + "-ended"), Path(sys.argv[1], ".lockstep", "trainer.json")
    if not is_evaluator or options.get("end_in") != "evaluation" or mark.exists():
        return
    deadline = time.monotonic() + 60
    while json.loads(status.read_text())["state"] != "ended":
        assert time.monotonic() < deadline, "the training has not ended"
        time.sleep(0.02)
    mark.touch()
    os.kill(os.getpid(), signal.Signals[options["end_by"]])


def eval_input_fn() -> Any:
    end_in_the_last_evaluation()
    if options.get("eval_fails"):
        raise RuntimeError("no data to evaluate")
    return Dataset.from_tensor_slices(data(16)).batch(4)


spec = EvalSpec(
    eval_input_fn,
    throttle_secs=0,
    start_delay_secs=0,
    exporters=[
        estimator.FinalExporter("final", receiver_of("final")),
        *([estimator.BestExporter("best", receiver_of("best"), compare_fn=is_larger)] if options.get("best") else ()),
        *([estimator.LatestExporter("latest", receiver_of("latest"))] if options.get("latest") else ()),
    ],
)
metrics, exports = estimator.train_and_evaluate(
    made, TrainSpec(input_fn, max_steps=options.get("max_steps"), hooks=[Reacts()]), spec
)
print("RESULT", json.dumps([metrics, [plain(e) for e in exports or ()]]), flush=True)
