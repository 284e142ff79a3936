"""train_and_evaluate in one process, and what it refuses."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from lockstep import estimator, summary
from lockstep.errors import ArgumentError
from lockstep.estimator import EvalSpec, RunConfig, TrainSpec
from tests.estimator.small import input_fn, line


class Exports(estimator.Exporter):
    """Notes what it is told."""

    def __init__(self, name: str = "notes", only_final: bool = False) -> None:
        self._name = name
        self._only_final = only_final
        self.told: list[tuple[int, bool]] = []

    @property
    def name(self) -> str:
        return self._name

    def export(
        self, estimator: Any, export_path: Any, checkpoint_path: Any, eval_result: Any, is_the_final_export: bool
    ) -> Any:
        assert Path(export_path).name == self._name
        if self._only_final and not is_the_final_export:
            return None
        self.told.append((eval_result["global_step"], is_the_final_export))
        return f"{export_path}/{eval_result['global_step']}".encode()


def run(tmp_path: Path, max_steps: int | None, every: int = 10, throttle: float = 0, **eval_spec: Any) -> Any:
    made = line(tmp_path, RunConfig(save_checkpoints_steps=every))
    spec = EvalSpec(input_fn(8), steps=None, throttle_secs=throttle, start_delay_secs=1e6, **eval_spec)
    return estimator.train_and_evaluate(made, TrainSpec(input_fn(120), max_steps=max_steps), spec)


def test_local_as_tensorflow_pins_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    exports, final = Exports(), Exports("final", only_final=True)
    with caplog.at_level(logging.INFO, "lockstep"):
        metrics, exported = run(tmp_path, 22, exporters=[exports, final])
    assert exports.told == [(10, False), (20, False), (22, True)]
    assert final.told == [(22, True)]
    assert metrics["global_step"] == 22
    assert exported == [str(tmp_path / "export" / n / "22").encode() for n in ("notes", "final")]
    assert sorted(summary.scalars(str(tmp_path / "eval"))) == [10, 20, 22]
    assert caplog.messages.count("Running training and evaluation locally (non-distributed).") == 1
    # One train call, and what is compiled for the first evaluation serves the others.
    assert caplog.messages.count("Calling model_fn.") == 2


def test_a_checkpoint_at_max_steps_is_evaluated_once(tmp_path: Path) -> None:
    exports = Exports()
    run(tmp_path, 20, exporters=exports)
    assert exports.told == [(10, False), (20, True)]


def test_without_max_steps_the_end_of_the_data_is_the_end(tmp_path: Path) -> None:
    exports, final = Exports(), Exports("final", only_final=True)
    metrics, exported = run(tmp_path, None, exporters=[exports, final])
    assert [step for step, _ in exports.told] == [10, 20, 30]
    # An exporter is called once for an evaluation; that this is the last one is known to a FinalExporter alone.
    assert final.told == []
    assert metrics["global_step"] == 30
    assert exported == [str(tmp_path / "export" / "notes" / "30").encode(), None]


def test_throttle(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    exports = Exports()
    with caplog.at_level(logging.INFO, "lockstep"):
        run(tmp_path, 25, every=5, throttle=1000, exporters=exports)
    assert [step for step, _ in exports.told] == [5, 25]
    assert caplog.messages.count("Skip the current checkpoint eval due to throttle secs (1000 secs).") == 4


def test_max_steps_that_were_reached(tmp_path: Path) -> None:
    run(tmp_path, 5)
    assert run(tmp_path, 5) == (None, None)


def test_evaluations_have_names(tmp_path: Path) -> None:
    run(tmp_path, 5, name="mine")
    assert 5 in summary.scalars(str(tmp_path / "eval_mine"))


def test_listeners_of_the_user_come_first(tmp_path: Path) -> None:
    told: list[str] = []

    class Listener(estimator.CheckpointSaverListener):
        def after_save(self, session: Any, global_step_value: int) -> None:
            told.append(f"saved {global_step_value}")

    class Noted(Exports):
        def export(self, *args: Any, **kwargs: Any) -> Any:
            told.append("exported")
            return super().export(*args, **kwargs)

    made = line(tmp_path, RunConfig(save_checkpoints_steps=3))
    spec = TrainSpec(input_fn(), max_steps=4, saving_listeners=[Listener()])
    estimator.train_and_evaluate(made, spec, EvalSpec(input_fn(8), throttle_secs=0, exporters=Noted()))
    assert told == ["saved 0", "saved 3", "exported", "saved 4", "exported"]


def test_checkpoints_are_needed(tmp_path: Path) -> None:
    made = line(tmp_path, RunConfig(save_checkpoints_steps=None, save_checkpoints_secs=None))
    with pytest.raises(ArgumentError, match="There should be a CheckpointSaverHook"):
        estimator.train_and_evaluate(made, TrainSpec(input_fn()), EvalSpec(input_fn()))


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_wrong_types_fail_before_training(tmp_path: Path, wrong: int) -> None:
    given: list[Any] = [line(tmp_path), TrainSpec(input_fn()), EvalSpec(input_fn())]
    given[wrong] = "something else"
    with pytest.raises(ArgumentError, match="must have type"):
        estimator.train_and_evaluate(*given)
    assert not (tmp_path / "checkpoint").exists()


def _config(monkeypatch: pytest.MonkeyPatch, task: tuple[str, int], **jobs: list[str]) -> None:
    value = {"cluster": jobs, "task": {"type": task[0], "index": task[1]}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(value))


def test_several_workers_need_a_strategy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _config(monkeypatch, ("worker", 0), chief=["h:1"], worker=["h:2"])
    with pytest.raises(ArgumentError, match="need a strategy"):
        estimator.train_and_evaluate(line(tmp_path), TrainSpec(input_fn()), EvalSpec(input_fn()))


def test_there_is_one_evaluator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _config(monkeypatch, ("evaluator", 1), chief=["h:1"])
    with pytest.raises(ArgumentError, match="there can only be one `evaluator` task"):
        estimator.train_and_evaluate(line(tmp_path), TrainSpec(input_fn()), EvalSpec(input_fn()))


@pytest.mark.parametrize("task", [("evaluator", 0), ("ps", 0)])
def test_train_is_for_tasks_that_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: tuple[str, int]) -> None:
    _config(monkeypatch, task, chief=["h:1"], ps=["h:2"])
    with pytest.raises(ArgumentError, match="Train has been called wrong configuration"):
        line(tmp_path).train(input_fn())
