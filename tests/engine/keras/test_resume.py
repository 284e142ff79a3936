"""A training that is interrupted and started again equals one that was not, on one layout bit for bit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep.errors import ArgumentError, CheckpointError, Preempted, UnsupportedError
from lockstep.training.callbacks._backup_and_restore import BackupAndRestore
from tests.engine.keras import resuming
from tests.engine.keras.resuming import SOURCES, train
from tests.support.cluster import Cluster, shared
from tests.support.exhaustive import always

_TRAIN = "tests.engine.keras.resuming:train"
# As in test_equivalence, with Adam's first steps: between layouts.
_BETWEEN_LAYOUTS = 2e-4

Results = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def strategies() -> dict[str, Any]:
    return {"1x1": ls.distribute.OneDeviceStrategy("/cpu:0"), "1x4": ls.distribute.MirroredStrategy()}


@pytest.fixture(scope="module")
def undisturbed(strategies: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a training without interruption comes to, by layout and arguments."""
    known: dict[str, Results] = {}

    def of(layout: str, **arguments: Any) -> Results:
        key = f"{layout} {arguments}"
        if key not in known:
            directory = tmp_path_factory.mktemp("undisturbed")
            known[key] = train(strategies[layout], str(directory), **arguments)
        return known[key]

    return of


def check(found: Results, expected: Results, tolerance: float = 0.0) -> None:
    """Compares all that a training has come to, and the batches that were left of it."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if name == "seen":
            tail = value[len(value) - len(found["seen"]) :]
            np.testing.assert_array_equal(found["seen"][:, :2], tail[:, :2], err_msg="batches that callbacks saw")
            np.testing.assert_allclose(found["seen"][:, 2], tail[:, 2], rtol=0, atol=tolerance, err_msg="their logs")
        elif name == "csv" and tolerance:
            assert str(found[name]).count("\n") == str(value).count("\n")
        elif value.dtype.kind == "U":
            assert str(found[name]) == str(value)
        else:
            np.testing.assert_allclose(found[name], value, rtol=0, atol=tolerance, err_msg=name)


def interrupt(strategy: Any, directory: Path, **arguments: Any) -> Results:
    """Trains until interrupted, and goes on to the end; nothing of the backups remains."""
    first = train(strategy, str(directory), **arguments)
    assert "interrupted" in first
    found = train(strategy, str(directory), **{**arguments, "after": None})
    assert not (directory / "backup").exists()
    return found


# The others: on two workers.
@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    always(
        [s for s in SOURCES if s not in ("arrays over epochs", "each worker all")],
        {"arrays", "from_generator"}.__contains__,
    ),
)
def test_in_the_middle_of_an_epoch(source: str, strategies: dict[str, Any], undisturbed: Any, tmp_path: Path) -> None:
    layout = "1x4" if source in ("arrays", "filtered", "dataset over epochs") else "1x1"
    found = interrupt(strategies[layout], tmp_path, source=source, save_freq=4, after=7)
    expected = undisturbed(layout, source=source)
    check(found, expected)
    assert len(found["seen"]) == len(expected["seen"]) - 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "save_freq", "after", "how", "left"),
    [
        ("arrays", "epoch", 8, "error", 6),  # The second epoch comes again.
        ("PyDataset", "epoch", 8, "error", 6),
        ("arrays over epochs", "epoch", 5, "preempted", 5),
        ("dataset", "epoch", 6, "preempted", 6),  # The last step of an epoch; its evaluation is still to come.
        ("dataset", False, 7, "preempted", 7),
        ("arrays", 6, 12, "error", 6),  # A backup of the last step of an epoch.
    ],
)
def test_where_it_goes_on(
    source: str, save_freq: Any, after: int, how: str, left: int, strategies: Any, undisturbed: Any, tmp_path: Path
) -> None:
    found = interrupt(strategies["1x1"], tmp_path, source=source, save_freq=save_freq, after=after, how=how)
    expected = undisturbed("1x1", source=source)
    check(found, expected)
    assert len(found["seen"]) == len(expected["seen"]) - left


@pytest.mark.slow
def test_many_interruptions(strategies: Any, undisturbed: Any, tmp_path: Path) -> None:
    for after in (2, 3, 1, 6):
        train(strategies["1x1"], str(tmp_path), save_freq=1, after=after)
    # The step at whose end it was interrupted was not saved.
    found = train(strategies["1x1"], str(tmp_path), save_freq=1)
    check(found, undisturbed("1x1"))


@pytest.mark.slow
def test_several_steps_told_together(strategies: Any, undisturbed: Any, tmp_path: Path) -> None:
    arguments = {"source": "arrays", "steps_per_execution": 2}
    found = interrupt(strategies["1x1"], tmp_path, save_freq=3, after=5, **arguments)
    check(found, undisturbed("1x1", **arguments))


class InEvaluation(keras.callbacks.Callback):
    """Ends the training in the evaluation after the second epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches += 1
        if self.batches == 9:
            raise Preempted("asked to end")


def fit(strategy: Any, *callbacks: Any, epochs: int = 3, **more: Any) -> tuple[Any, list[np.ndarray]]:
    """Trains a small model on arrays; returns its history and its weights."""
    model, (x, y) = resuming.model_of(strategy, **more.pop("model", {})), resuming.data()
    history = model.fit(x, y, 10, epochs, 0, list(callbacks), validation_data=(x, y), **more)
    return history.history, model.get_weights()


def assert_equal(found: tuple[Any, list[np.ndarray]], expected: tuple[Any, list[np.ndarray]]) -> None:
    assert found[0] == expected[0]
    for mine, theirs in zip(found[1], expected[1], strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.fixture(scope="module")
def one(strategies: dict[str, Any]) -> Any:
    return strategies["1x1"]


@pytest.fixture(scope="module")
def whole(one: Any) -> tuple[Any, list[np.ndarray]]:
    return fit(one)


@pytest.mark.slow
def test_an_evaluation_is_interrupted(one: Any, whole: Any, tmp_path: Path) -> None:
    """What the evaluation changes, metrics above all, is saved as it was before it."""
    with pytest.raises(SystemExit) as left:
        fit(one, BackupAndRestore(tmp_path, "epoch"), InEvaluation())
    assert left.value.code == 143
    seen = resuming.Interrupts(None)
    assert_equal(fit(one, BackupAndRestore(tmp_path, "epoch"), seen), whole)
    assert [(epoch, batch) for epoch, batch, _ in seen.seen] == [(2, batch) for batch in range(6)]


@pytest.mark.slow
def test_what_has_ended_is_not_trained_again(one: Any, whole: Any, tmp_path: Path) -> None:
    for _ in range(2):
        assert_equal(fit(one, BackupAndRestore(tmp_path, delete_checkpoint=False)), whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["backup-12.npz", "backup-18.npz", "checkpoint"]
    # More epochs go on from there.
    longer = fit(one, BackupAndRestore(tmp_path, delete_checkpoint=False), epochs=4)
    assert_equal(longer, fit(one, epochs=4))


@pytest.mark.slow
def test_a_training_that_was_stopped_stays_stopped(one: Any, tmp_path: Path) -> None:
    def stops() -> Any:
        return keras.callbacks.EarlyStopping("loss", patience=0, min_delta=10.0, restore_best_weights=True)

    expected = fit(one, stops(), epochs=9)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(resuming.Interrupted):
        patch.setattr(keras.callbacks.EarlyStopping, "on_train_end", _interrupts)
        fit(one, BackupAndRestore(tmp_path), stops(), epochs=9)
    assert_equal(fit(one, BackupAndRestore(tmp_path), stops(), epochs=9), expected)


def _interrupts(self: Any, logs: Any = None) -> None:
    raise resuming.Interrupted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": {"units": 9}},
            r"Variable 0 of trainable_variables is .*kernel \(float32\[6, 8\]\) in the backup",
        ),
        ({"batch": 9}, "global batch that it began with: 10 examples. Received: batches of 9"),
        ({"rows": 50}, "the number of examples was 53. Received: 50"),
        ({"dataset": True}, "what is read was 'arrays'. Received: 'dataset'"),
    ],
)
def test_another_model_or_other_data(changes: dict[str, Any], message: str, one: Any, tmp_path: Path) -> None:
    with pytest.raises(resuming.Interrupted):
        fit(one, BackupAndRestore(tmp_path, 2), resuming.Interrupts(4))
    model, (x, y) = resuming.model_of(one, **changes.get("model", {})), resuming.data(changes.get("rows", 53))
    given = {"x": x, "y": y, "batch_size": changes.get("batch", 10)}
    if "dataset" in changes:
        given = {"x": ls.data.Dataset.from_tensor_slices((x, y)).batch(10)}
    with pytest.raises(CheckpointError, match=message):
        model.fit(**given, epochs=3, verbose=0, callbacks=[BackupAndRestore(tmp_path, 2)])


def test_another_pipeline(one: Any, tmp_path: Path) -> None:
    def train_on(size: int, *more: Any) -> None:
        data = ls.data.Dataset.from_tensor_slices(resuming.data()).batch(size)
        resuming.model_of(one).fit(data, verbose=0, callbacks=[BackupAndRestore(tmp_path, 1), *more])

    with pytest.raises(resuming.Interrupted):
        train_on(10, resuming.Interrupts(3))
    with pytest.raises(CheckpointError, match=r"Batch\(9, False\) instead of Batch\(10, False\)"):
        train_on(9)


@pytest.mark.slow
def test_callbacks_that_come_and_go(one: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(resuming.Interrupted):
        fit(one, BackupAndRestore(tmp_path, 1), keras.callbacks.EarlyStopping("loss"), resuming.Interrupts(3))
    fit(one, BackupAndRestore(tmp_path, 1), resuming.Counts())
    assert "Counts was not there when the backup was made" in caplog.text
    assert "holds the state of EarlyStopping, which" in caplog.text


def test_a_state_that_cannot_be_kept(one: Any, tmp_path: Path) -> None:
    class Odd(keras.callbacks.Callback):
        def get_state(self) -> Any:
            return {"opened": [{1, 2}]}

    with pytest.raises(ArgumentError, match=r"Received: \{1, 2\} of type set in callbacks/Odd/opened/0"):
        fit(one, BackupAndRestore(tmp_path), Odd())


def test_a_model_of_no_strategy_is_refused(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(UnsupportedError, match=r"MirroredStrategy\(\).scope\(\)"):
        model.fit(np.ones((4, 6)), np.ones(4), verbose=0, callbacks=[BackupAndRestore(tmp_path)])


def test_two_that_keep_backups(one: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="Received: 2 of them"):
        fit(one, BackupAndRestore(tmp_path / "a"), BackupAndRestore(tmp_path / "b"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"backup_dir": ""},
        {"save_freq": 0},
        {"save_freq": True},
        {"save_freq": "batch"},
        {"keep": 0},
        {"keep": 1, "double_checkpoint": True},
        {"on_save_error": "ignore"},
    ],
    ids=str,
)
def test_arguments(arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        BackupAndRestore(**{"backup_dir": "somewhere", **arguments})


@pytest.mark.slow
def test_nothing_is_saved_of_a_training_that_ends_for_a_nan(one: Any, tmp_path: Path) -> None:
    """Steps after it were undone: a backup would pass over their batches."""
    from lockstep.training.callbacks._non_finite import NonFinite

    x, y = resuming.data()
    bad = x.copy()
    bad[25] = np.nan

    def train_on(x: np.ndarray, *more: Any) -> Any:
        model = resuming.model_of(one)
        model.fit(x, y, 10, 3, 0, [BackupAndRestore(tmp_path, 1), *more], shuffle=False)
        return model.get_weights()

    with pytest.raises(ArithmeticError):
        train_on(bad, NonFinite())
    found = train_on(x)
    for mine, theirs in zip(found, train_on(x), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.slow
def test_several_steps_run_at_once_between_backups(one: Any, tmp_path: Path) -> None:
    """Backups cut dispatches where they are made, and nowhere else."""
    from lockstep._engine.loop import loop

    sizes: list[int] = []
    add = loop._InFlight.add
    x, y = np.ones((640, 6), "float32"), np.zeros(640, "int32")
    for save_freq in ("epoch", 24):
        sizes.clear()
        with pytest.MonkeyPatch.context() as patch:
            # Steps are short, however busy the machine is.
            patch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: 0.0))
            patch.setattr(loop._InFlight, "add", lambda self, *a: (sizes.append(a[-1].steps), add(self, *a))[1])
            model = resuming.model_of(one)
            model.fit(x, y, 10, 3, 0, [BackupAndRestore(tmp_path, save_freq)])
        assert sum(sizes) == 192
        assert len(sizes) < 60, sizes
        ends = np.cumsum(sizes)
        assert save_freq == "epoch" or set(range(24, 193, 24)) <= set(ends.tolist())


# Several workers, and another number of them.


pair = shared(2)
three = shared(3)


@pytest.mark.parametrize(
    ("source", "save_freq", "how"),
    always(
        [
            ("arrays", 4, "error"),
            ("dataset over epochs", 4, "error"),
            ("each worker all", 4, "error"),
            ("generator", "epoch", "preempted"),
        ],
        lambda case: case[0] in ("each worker all", "generator"),
    ),
)
def test_two_workers(pair: Cluster, source: str, save_freq: Any, how: str, tmp_path: Path) -> None:
    expected = pair.run(_TRAIN, directory=str(tmp_path / "whole"), source=source)
    directory = str(tmp_path / "parts")
    pair.run(_TRAIN, directory=directory, source=source, save_freq=save_freq, after=7, how=how)
    found = pair.run(_TRAIN, directory=directory, source=source, save_freq=save_freq)
    for mine, theirs in zip(found, expected, strict=True):
        check(mine, theirs)
    assert not (tmp_path / "parts" / "backup").exists()


def test_row_22_another_number_of_workers(
    pair: Cluster, three: Cluster, strategies: Any, undisturbed: Any, tmp_path: Path
) -> None:
    """Four replicas, then two workers, then three: the trajectory of one."""
    arguments: dict[str, Any] = {"directory": str(tmp_path), "source": "arrays", "save_freq": 2}
    train(strategies["1x4"], after=5, **arguments)
    pair.run(_TRAIN, after=3, **arguments)
    for found in three.run(_TRAIN, **arguments):
        check(found, undisturbed("1x1", source="arrays"), _BETWEEN_LAYOUTS)


@pytest.mark.exhaustive
def test_row_22_a_dataset_on_another_number_of_workers(
    pair: Cluster, strategies: Any, undisturbed: Any, tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {"directory": str(tmp_path), "source": "dataset over epochs", "save_freq": 2}
    pair.run(_TRAIN, after=5, **arguments)
    found = train(strategies["1x4"], **arguments)
    check(found, undisturbed("1x4", source="dataset over epochs"), _BETWEEN_LAYOUTS)


def test_a_backup_that_cannot_be_written_is_told_to_all(pair: Cluster, tmp_path: Path) -> None:
    for found in pair.run("tests.engine.keras.resuming:full_disk", directory=str(tmp_path)):
        assert str(found["type"]) == "CheckpointError"
        assert "backup-2.npz could not be written: [Errno 28] No space left on device" in str(found["text"])
        assert int(found["steps"]) < 20


def test_all_workers_keep_backups_or_none(pair: Cluster, tmp_path: Path) -> None:
    for found in pair.run("tests.engine.keras.resuming:chief_alone", directory=str(tmp_path)):
        assert str(found["type"]) == "MismatchError"
        assert "backups" in str(found["text"])
