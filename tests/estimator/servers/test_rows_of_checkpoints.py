"""Evaluation, prediction and export from a checkpoint whose tables lie in files by rows: as from whole ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lockstep.compat.tensorflow as tf  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import keras
import numpy as np
import pytest

from lockstep import checkpoint, estimator, saved_model
from lockstep.checkpoint import internal as files
from lockstep.errors import UnsupportedError
from lockstep.estimator import train
from lockstep.estimator._core import restore
from lockstep.estimator._evaluation import by_rows
from lockstep.estimator._servers.saved_tables import SavedTables
from lockstep.estimator._weights import TabledValues
from tests.estimator.servers.tracing import trace_update

ROWS = 20_000
KEY, SLOT = "embedding/embeddings", "embedding/embeddings/Adagrad"
Use = Callable[[Any, Any], Any]


def _rows(table: Any, ids: Any) -> Any:
    return table(ids)


def _twice_and_ids_of_ids(table: Any, ids: Any) -> Any:
    return table(ids) + table((ids * 7) % ROWS)


def _whole_too(table: Any, ids: Any) -> Any:
    return table(ids) + keras.ops.mean(keras.ops.square(table.embeddings))


def _ids_of_rows(table: Any, ids: Any) -> Any:
    return table(keras.ops.cast(keras.ops.abs(table(ids)).sum(axis=2) * 100, "int32"))


def _model(model_dir: Path, use: Use = _rows, initial: float = 0.2) -> Any:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        looked_up = use(keras.layers.Embedding(ROWS, 16), features)
        predicted = keras.layers.Dense(1)(looked_up.mean(axis=1))[:, 0]
        if mode == "infer":
            return estimator.EstimatorSpec(mode, predictions=predicted, export_outputs=None)
        loss = estimator.losses.mean_squared_error(labels, predicted)
        optimizer = train.AdagradOptimizer(0.3, initial_accumulator_value=initial)
        metrics = {"error": keras.metrics.MeanAbsoluteError()} if mode == "eval" else None
        if metrics is not None:
            metrics["error"].update_state(labels, predicted)
        train_op = optimizer.minimize(loss, train.get_global_step())
        return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)

    return estimator.Estimator(model_fn, config=estimator.RunConfig(str(model_dir), tf_random_seed=2))


def _input_fn() -> Any:
    random = np.random.default_rng(5)
    ids = random.integers(0, ROWS, (44, 3))
    labels = (ids.sum(1) % 5).astype(np.float32)
    # The last batch is smaller.
    return tf.data.Dataset.from_tensor_slices((ids, labels)).batch(8)


def _into_files(model_dir: Path) -> None:
    """Has the newest checkpoint's table lie in two files, without the rows that are what they begin with."""
    found = checkpoint.load_newest(model_dir)
    assert found is not None
    arrays = dict(found.arrays)
    held = {key: arrays.pop(key) for key in (KEY, SLOT)}
    directory = Path(files.new_directory(found.prefix))
    directory.mkdir()
    written: list[tuple[str, int]] = []
    for number, ids in enumerate(np.array_split(np.arange(ROWS), 2)):
        path = directory / f"rows_{number}_of_2.npz"
        parts = {files.values_key(key): value[ids] for key, value in held.items()}
        files.write(str(path), found.step, {files.ids_key(KEY): ids, **parts}, {})
        written.append((path.name, path.stat().st_size))
    float32 = np.dtype(np.float32)
    layout = files.ArrayLayout(float32, held[KEY].shape)
    table = files.TableLayout(layout, (KEY, SLOT), (float32, float32), (None, float(np.float32(0.2))))
    record = files.TableRecord(directory.name, tuple(written), {KEY: table})
    extra = {**found.extra, files.TABLES: record.to_json()}
    files.write(files.file_of(found.prefix), found.step, arrays, extra)


class _Reads(estimator.SessionRunHook):
    """Reads the table after a step."""

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.table = run_context.session.run(KEY)


@pytest.mark.slow
@pytest.mark.parametrize("use", [_rows, _twice_and_ids_of_ids, _whole_too, _ids_of_rows])
def test_results_are_those_of_whole_tables(tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _model(tmp_path, use)
    made.train(_input_fn, max_steps=5)
    expected, predicted = made.evaluate(_input_fn), list(made.predict(_input_fn))
    whole = made.get_variable_value(KEY)
    _into_files(tmp_path)
    programs: list[by_rows.RowsProgram] = []
    init = by_rows.RowsProgram.__init__

    def note_program(self: by_rows.RowsProgram, *args: Any) -> None:
        programs.append(self)
        init(self, *args)

    monkeypatch.setattr(by_rows.RowsProgram, "__init__", note_program)
    hook = _Reads()
    assert made.evaluate(_input_fn, hooks=[hook]) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_array_equal(hook.table, whole)
    np.testing.assert_allclose(list(made.predict(_input_fn)), predicted, rtol=1e-6)
    assert [program.tables for program in programs] == [[KEY] if use in (_rows, _twice_and_ids_of_ids) else []] * 2
    assert SLOT in made.get_variable_names()
    # One device trains on, with the whole table.
    made.train(_input_fn, max_steps=6)
    assert int(made.get_variable_value("global_step")) == 6


@pytest.mark.slow
def test_a_model_is_exported_from_it(tmp_path: Path) -> None:
    made = _model(tmp_path / "model")
    made.train(_input_fn, max_steps=2)
    predicted = list(made.predict(_input_fn))[:4]
    _into_files(tmp_path / "model")
    ids = np.concatenate([np.asarray(x) for x, _ in _input_fn().take(1)])[:4].astype(np.int32)

    def receiver() -> Any:
        given = tf.compat.v1.placeholder(tf.int32, (None, 3), name="ids")
        return tf.estimator.export.TensorServingInputReceiver(given, {"ids": given})

    path = os.fsdecode(made.export_saved_model(str(tmp_path / "export"), receiver))
    served = saved_model.load(path).signatures["serving_default"](ids=ids)
    np.testing.assert_allclose(np.ravel(next(iter(served.values()))), predicted, rtol=1e-5)


@pytest.mark.slow
def test_slots_that_begin_with_another_number_are_refused(tmp_path: Path) -> None:
    _model(tmp_path).train(_input_fn, max_steps=1)
    _into_files(tmp_path)

    def tables(initial: float) -> SavedTables:
        made = _model(tmp_path, initial=initial)
        update, variables, _ = trace_update(made, _input_fn)
        path = made._core.latest_checkpoint()
        assert path is not None
        saved = restore(variables, path, by_rows=True)
        assert isinstance(saved, TabledValues)
        return SavedTables(update, variables.entries, {}, saved)

    found = tables(0.2)
    assert found.restored == {KEY}
    assert found.arrays == {KEY: [KEY, SLOT]}
    with pytest.raises(UnsupportedError, match=r"Adagrad.*begins with 0.5; in the checkpoint .*with 0.2"):
        tables(0.5)
