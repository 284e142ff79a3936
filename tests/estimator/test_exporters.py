"""Exporters: when they export, what they remember, which exports they keep."""

from __future__ import annotations

import functools
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep import summary as event_files
from lockstep.errors import ArgumentError
from lockstep.estimator import summary
from lockstep.estimator._export.exporters import BestExporter, Exporter, FinalExporter, LatestExporter
from lockstep.saved_model import _directories


def receiver_fn() -> None:
    """Stands for a serving_input_receiver_fn."""


class FakeEstimator:
    """Notes what it is asked to export, and makes directories as an Estimator does."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = str(model_dir)
        self.calls: list[tuple[Any, ...]] = []
        self.fails = False

    def export_saved_model(
        self, export_dir_base: str, function: Any, assets_extra: Any, as_text: bool, checkpoint_path: str | None
    ) -> str:
        if self.fails:
            raise OSError("disk full")
        self.calls.append((export_dir_base, function, assets_extra, as_text, checkpoint_path))
        return _directories.create_version(export_dir_base, lambda directory: (directory / "f").touch())


class Run:
    """A process that evaluates: exporters of it begin anew."""

    def __init__(self, model_dir: Path, **arguments: Any) -> None:
        self.estimator = FakeEstimator(model_dir)
        self.path = model_dir / "export" / "best"
        self.exporter = BestExporter("best", receiver_fn, **arguments)
        self.step = len(list(self.path.iterdir())) if self.path.exists() else 0

    def evaluate(self, name: str = "eval", **metrics: Any) -> bool:
        """Evaluates, writes the result as Estimator.evaluate does, and exports; returns whether it was exported."""
        self.step += 10
        result = {**metrics, "global_step": np.int64(self.step)}
        write(Path(self.estimator.model_dir) / name, self.step, metrics)
        return self.export(result)

    def export(self, result: Any) -> bool:
        return self.exporter.export(self.estimator, str(self.path), "ckpt", result, False) is not None


def write(directory: Path, step: int, metrics: dict[str, Any]) -> None:
    """Writes an event file."""
    directory.mkdir(parents=True, exist_ok=True)
    writer = summary.FileWriter(str(directory))
    for tag, value in metrics.items():
        writer.add_summary(event_files.Summary(value=[{"tag": tag, "simple_value": float(value)}]), step)
    writer.close()


@pytest.mark.parametrize("make", [BestExporter, LatestExporter])
@pytest.mark.parametrize("count", [0, -1, 2.5, True])
def test_how_many_to_keep_is_a_positive_number(make: Any, count: Any) -> None:
    with pytest.raises(ArgumentError, match="`exports_to_keep`, if provided, must be a positive number"):
        make("e", receiver_fn, exports_to_keep=count)


@pytest.mark.parametrize("make", [BestExporter, LatestExporter, FinalExporter])
def test_names_and_functions_are_checked(make: Any) -> None:
    assert make("mine", receiver_fn).name == "mine"
    assert isinstance(make("mine", receiver_fn), Exporter)
    for name in ("", None, "a/b"):
        with pytest.raises(ArgumentError, match="named as a directory may be"):
            make(name, receiver_fn)
    with pytest.raises(ArgumentError, match="needs a serving_input_receiver_fn"):
        make("mine", None)


def test_an_exporter_has_a_name_and_exports() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Exporter()  # pyright: ignore[reportAbstractUsage]


@pytest.mark.parametrize("make", [BestExporter, LatestExporter, FinalExporter])
def test_arguments_reach_the_estimator(tmp_path: Path, make: Any) -> None:
    estimator = FakeEstimator(tmp_path)
    exporter = make("e", receiver_fn, assets_extra={"to/path": "from/path"}, as_text=True)
    exported = exporter.export(estimator, str(tmp_path / "x"), "checkpoint_path", {}, True)
    assert estimator.calls == [(str(tmp_path / "x"), receiver_fn, {"to/path": "from/path"}, True, "checkpoint_path")]
    assert Path(exported).parent == tmp_path / "x"


def test_final_exporter_exports_at_the_end_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    estimator = FakeEstimator(tmp_path)
    exporter = FinalExporter("final", receiver_fn)
    with caplog.at_level(logging.INFO, "lockstep"):
        assert exporter.export(estimator, str(tmp_path / "x"), "c", {}, False) is None
        assert (estimator.calls, caplog.messages) == ([], [])
        assert exporter.export(estimator, str(tmp_path / "x"), "c", {}, True)
    assert caplog.messages == ["Performing the final export in the end of training."]


def test_latest_exporter_exports_always_and_keeps_the_newest(tmp_path: Path) -> None:
    base = tmp_path / "x"
    for name in ("1000000000", "1000000001", "999999999", "12345678901", "name"):
        (base / name).mkdir(parents=True)
    (base / "1000000002").touch()
    exporter = LatestExporter("latest", receiver_fn, exports_to_keep=2)
    estimator = FakeEstimator(tmp_path)
    exported = [exporter.export(estimator, str(base), "c", {"loss": i}, False) for i in range(3)]
    assert len(set(exported)) == 3
    kept = {Path(str(path)).name for path in exported[1:]}
    others = {"999999999", "12345678901", "name", "1000000002"}
    assert {path.name for path in base.iterdir()} == kept | others


@pytest.mark.parametrize("make", [BestExporter, LatestExporter])
def test_all_may_be_kept(tmp_path: Path, make: Any) -> None:
    exporter = make("e", receiver_fn, exports_to_keep=None)
    estimator = FakeEstimator(tmp_path)
    for loss in range(9, 0, -1):
        exporter.export(estimator, str(tmp_path / "x"), "c", {"loss": loss}, False)
    assert len(_directories.versions(tmp_path / "x")) == 9


def test_best_exporter_exports_what_is_better(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path, exports_to_keep=2)
    with caplog.at_level(logging.INFO, "lockstep"):
        assert [run.evaluate(loss=loss) for loss in (0.5, 0.6, 0.4, 0.4, 0.3)] == [True, False, True, False, True]
    assert caplog.messages == ["Loading best metric from event files.", *["Performing best model export."] * 3]
    assert len(_directories.versions(run.path)) == 2


def test_the_first_evaluation_is_exported_whatever_it_is(tmp_path: Path) -> None:
    assert Run(tmp_path).export({})
    assert Run(tmp_path / "other").export(None)


def test_evaluations_without_exports_do_not_count(tmp_path: Path) -> None:
    """TensorFlow's own case: a history with better results, but nothing was exported."""
    write(tmp_path / "eval_continuous", 1, {"loss": 50})
    write(tmp_path / "eval_continuous", 2, {"loss": 60})
    run = Run(tmp_path, event_file_pattern="eval_continuous/*.tfevents.*", exports_to_keep=1)
    assert [run.export({"loss": loss}) for loss in (100, 10, 20)] == [True, True, False]


def test_the_best_is_remembered_across_restarts(tmp_path: Path) -> None:
    assert [Run(tmp_path).evaluate(loss=loss) for loss in (0.5, 0.6, 0.4, 0.45, 0.3)] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_the_best_is_remembered_without_event_files(tmp_path: Path) -> None:
    run = [Run(tmp_path, event_file_pattern=None).export({"loss": loss}) for loss in (0.5, 0.6, 0.4)]
    assert run == [True, False, True]


@pytest.mark.parametrize("name", ["eval", "eval_mine"])
def test_event_files_stand_in_for_a_lost_record(tmp_path: Path, name: str) -> None:
    """Exports that something else made, such as an older version: the same evaluation's files tell."""
    (tmp_path / "export" / "best" / "1000000000").mkdir(parents=True)
    write(tmp_path / name, 1, {"loss": 0.5})
    write(tmp_path / "eval_other", 1, {"loss": 0.01})
    run = Run(tmp_path)
    assert [run.evaluate(name, loss=0.6), run.evaluate(name, loss=0.4)] == [False, True]


def test_an_evaluation_is_not_compared_with_itself(tmp_path: Path) -> None:
    (tmp_path / "export" / "best" / "1000000000").mkdir(parents=True)
    assert Run(tmp_path).evaluate(loss=0.1)


def test_a_damaged_record_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path)
    assert run.evaluate(loss=0.5)
    record = run.path / "best_eval_result.json"
    for content in ("", "[]", '{"best": 1, "before": null, "newer_than": 0}', "\0"):
        record.write_text(content)
        again = Run(tmp_path)
        again.step = run.step
        assert not again.evaluate(loss=0.6), "the event files know better"
        run = again
    assert "is not understood, and left out" in caplog.text


def test_an_export_that_fails_is_not_the_best(tmp_path: Path) -> None:
    first = Run(tmp_path)
    assert first.evaluate(loss=0.5)
    first.estimator.fails = True
    with pytest.raises(OSError, match="disk full"):
        first.evaluate(loss=0.1)
    first.estimator.fails = False
    assert first.export({"loss": 0.4}), "in the same process"
    first.estimator.fails = True
    with pytest.raises(OSError, match="disk full"):
        first.export({"loss": 0.1})
    restarted = Run(tmp_path)
    assert not restarted.export({"loss": 0.45})
    assert restarted.export({"loss": 0.3}), "after a restart"


def test_who_is_killed_between_export_and_return_knows_it_later(tmp_path: Path) -> None:
    """The record is written ahead, and counts once the export is there."""
    run = Run(tmp_path)
    theirs = run.estimator.export_saved_model

    def killed(*args: Any, **kwargs: Any) -> str:
        theirs(*args, **kwargs)
        raise KeyboardInterrupt

    run.estimator.export_saved_model = killed  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(KeyboardInterrupt):
        run.evaluate(loss=0.5)
    assert not Run(tmp_path).export({"loss": 0.6})
    assert Run(tmp_path).export({"loss": 0.4})


def test_another_model_begins_anew(tmp_path: Path) -> None:
    run = Run(tmp_path / "a")
    assert run.evaluate(loss=0.1)
    run.estimator, run.path = FakeEstimator(tmp_path / "b"), tmp_path / "b" / "export" / "best"
    assert run.evaluate(loss=0.5)
    assert not run.evaluate(loss=0.6)


def test_nan_is_no_best_for_ever(tmp_path: Path) -> None:
    run = Run(tmp_path)
    losses = (float("nan"), float("nan"), 0.5, float("nan"), 0.6)
    assert [run.evaluate(loss=loss) for loss in losses] == [True, False, True, False, False]
    assert not Run(tmp_path).export({"loss": float("nan")})


def test_metrics_of_all_kinds_are_remembered(tmp_path: Path) -> None:
    def more(best_eval_result: Any, current_eval_result: Any) -> bool:
        return bool(best_eval_result["matrix"][0, 0] < current_eval_result["matrix"][0, 0])

    result = {"matrix": np.eye(2) * 3, "acc": np.float32(0.1), "text": b"x", "n": np.int64(3)}
    assert Run(tmp_path, compare_fn=more).export(result)
    record = json.loads((tmp_path / "export/best/best_eval_result.json").read_text())
    assert record["best"] == {"matrix": [[3, 0], [0, 3]], "acc": float(np.float32(0.1)), "n": 3}
    assert not Run(tmp_path, compare_fn=more).export({"matrix": np.eye(2)})
    assert Run(tmp_path, compare_fn=more).export({"matrix": np.eye(2) * 4})


def test_results_without_a_loss_need_a_compare_fn(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.export({"accuracy": 1})
    with pytest.raises(ArgumentError, match="best_eval_result cannot be empty or no loss is found in it"):
        run.export({"loss": 1})
    with pytest.raises(ArgumentError, match="current_eval_result cannot be empty or no loss is found in it"):
        other = Run(tmp_path / "other")
        other.export({"loss": 1})
        other.export({})


def _with_margin(best_eval_result: Any, current_eval_result: Any, margin: float) -> bool:
    return current_eval_result["loss"] < best_eval_result["loss"] - margin


class _Callable:
    def __call__(self, best_eval_result: Any, current_eval_result: Any) -> bool:
        return True


@pytest.mark.parametrize(
    ("compare", "message"),
    [
        (None, "`compare_fn` must be a function"),
        (lambda best_eval_result: True, "must include current_eval_result argument"),
        (lambda current_eval_result: True, "must include best_eval_result argument"),
        (lambda a, b: True, "must include best_eval_result argument"),
        (_with_margin, r"has following not expected args: \['margin'\]"),
    ],
)
def test_what_is_no_compare_fn(compare: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        BestExporter("b", receiver_fn, compare_fn=compare)


@pytest.mark.parametrize("compare", [functools.partial(_with_margin, margin=0.2), _Callable()])
def test_partial_functions_and_objects_compare(tmp_path: Path, compare: Any) -> None:
    run = Run(tmp_path, compare_fn=compare)
    expected = [True, isinstance(compare, _Callable), True]
    assert [run.export({"loss": loss}) for loss in (1.0, 0.9, 0.5)] == expected


def test_a_vanished_export_is_only_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "x" / "1000000000").mkdir(parents=True)

    def gone(directory: Path) -> None:
        raise FileNotFoundError(directory)

    monkeypatch.setattr(_directories, "remove", gone)
    LatestExporter("l", receiver_fn, exports_to_keep=1).export(
        FakeEstimator(tmp_path), str(tmp_path / "x"), "", {}, False
    )
    assert "Can not delete" in caplog.text
