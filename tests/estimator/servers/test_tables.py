"""Large tables of Estimators lie in ranges of rows on servers, and training comes to the numbers of one device."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lockstep.compat.tensorflow as tf  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import keras
import numpy as np
import pytest

from lockstep import estimator
from lockstep.errors import UnsupportedError
from lockstep.estimator import train
from lockstep.estimator._servers.tables import constant_of, row_initializer
from lockstep.estimator._servers.update import ServedUpdate
from tests.estimator.servers.table_cases import CASES, METRICS, TABLES, input_fn, last_values, train_case
from tests.estimator.servers.tracing import trace_update
from tests.support.cluster import ROOT, environment

# Workers besides the chief, servers, the mode, and the shards of the partitioner.
_JOBS = {"few": (1, 1, "sync", 0), "many": (2, 2, "sync", 3), "one after another": (1, 2, "async", 0)}
_MIB = 700.0


def _run(module: str, workers: int, servers: int, *arguments: str, evaluator: bool = False) -> None:
    command = [sys.executable, "-m", "lockstep._launch", "run", "--chief", f"--workers={workers}", f"--ps={servers}"]
    command += ["--evaluator"] if evaluator else []
    done = subprocess.run(
        [*command, "-m", module, *arguments], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.cluster
def test_checkpoints_are_those_of_one_device(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    # The asynchronous job is another system's mode, in which updates of one worker come one after another, too.
    is_exhaustive = request.config.getoption("--exhaustive")
    names = list(_JOBS) if is_exhaustive else ["few", "many"]
    cases = list(CASES) if is_exhaustive else ["clipped", "wide and deep"]
    for name in names:
        workers, servers, mode, shards = _JOBS[name]
        options = (str(tmp_path / name), mode, str(shards), ",".join(cases))
        _run("tests.estimator.servers.table_cases", workers, servers, *options)
    for case in cases:
        alone = train_case(case, tmp_path / "alone" / case)
        few, many = (last_values(tmp_path / job / case) for job in ("few", "many"))
        others = {"few": few}
        if case != "replicas" and "one after another" in names:
            others["one after another"] = last_values(tmp_path / "one after another" / case)
        assert alone.keys() == few.keys() == many.keys()
        assert alone["global_step"] == few["global_step"] == 14
        for key, value in alone.items():
            np.testing.assert_array_equal(many[key], few[key], err_msg=f"{case}: {key}")
            for job, values in others.items():
                np.testing.assert_allclose(values[key], value, rtol=2e-5, atol=2e-6, err_msg=f"{case}, {job}: {key}")
        metrics = {job: _metrics(tmp_path / job / case) for job in ("alone", "few", "many")}
        assert metrics["few"] == metrics["many"]
        assert metrics["few"] == pytest.approx(metrics["alone"], rel=1e-4), case


def _metrics(model_dir: Path) -> dict[str, float]:
    return json.loads((model_dir / METRICS).read_text())


@pytest.mark.cluster
def test_checkpoints_fit_any_number_of_servers_and_none(tmp_path: Path) -> None:
    case = "Adam"
    alone, servers, others, last = (tmp_path / name for name in ("alone", "servers", "others", "last"))
    train_case(case, alone / case, steps=[8])
    # Whole tables, as one device writes them and as servers' chiefs have written them.
    shutil.copytree(alone, servers)
    _run("tests.estimator.servers.table_cases", 1, 2, str(servers), "sync", "0", case, "14")
    for folder in (others, last):
        shutil.copytree(servers, folder)
    _run("tests.estimator.servers.table_cases", 1, 3, str(others), "sync", "0", case, "20")
    expected = train_case(case, alone / case, steps=[14, 20])
    for values in (train_case(case, last / case, steps=[20]), last_values(others / case)):
        assert values.keys() == expected.keys()
        for key, value in expected.items():
            np.testing.assert_allclose(values[key], value, rtol=2e-5, atol=2e-6, err_msg=key)


@pytest.mark.cluster
def test_a_table_of_50_million_rows_takes_the_memory_of_those_in_use(tmp_path: Path) -> None:
    _run("tests.estimator.servers.large_table", 1, 2, str(tmp_path), evaluator=True)
    tasks = ("chief 0", "worker 0", "ps 0", "ps 1", "evaluator 0")
    found = {task: json.loads((tmp_path / task).read_text()) for task in tasks}
    peaks = {task: each["peak"] for task, each in found.items()}
    assert max(peaks.values()) < _MIB, peaks
    chief = found["chief 0"]
    first, *_, last = chief["losses"]
    assert last < 0.1 * first
    assert chief["metrics"]["global_step"] == 40
    assert chief["metrics"] == chief["own metrics"] == found["evaluator 0"]["metrics"]
    np.testing.assert_allclose(chief["predicted"], 1, atol=0.5)
    assert sum(file.stat().st_size for file in (tmp_path / "model").rglob("*.npz")) < 10 << 20


def _update_of(made: Any, read: Callable[[], Any], lazy: bool = False) -> tuple[ServedUpdate, Any]:
    update, variables, _ = trace_update(made, read, lazy)
    return update, variables.entries


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES))
def test_tables_are_held_by_rows_with_their_slots(case: str) -> None:
    update, entries = _update_of(CASES[case](estimator.RunConfig(tf_random_seed=3)), input_fn)
    assert set(update.tables) == TABLES[case]
    for key in update.tables:
        assert update.rule.program(key).form == "rows"
        assert update.rule.program(key).slots
        assert row_initializer(entries[key], entries) is not None
    lazy, _ = _update_of(CASES[case](estimator.RunConfig(tf_random_seed=3)), input_fn, lazy=True)
    assert all(lazy.rule.program(key).movement is None for key in lazy.tables)


def _with_table(
    rows: int, optimize: Callable[[Any], Any], use: Callable[[Any, Any], Any] = lambda table, ids: table(ids)
) -> Any:
    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        table = keras.layers.Embedding(rows, 16)
        loss = estimator.losses.mean_squared_error(labels, use(table, features).mean(axis=(1, 2)))
        return estimator.EstimatorSpec(mode, loss=loss, train_op=optimize(loss))

    return estimator.Estimator(model_fn)


def _examples() -> Any:
    return np.zeros((4, 2), np.int64), np.zeros(4, np.float32)


def _whole_too(table: Any, ids: Any) -> Any:
    return table(ids) + keras.ops.mean(keras.ops.square(table.embeddings))


def _muon(loss: Any) -> Any:
    return train.minimize(loss, keras.optimizers.Lamb(0.1))


def _sgd(loss: Any) -> Any:
    return train.GradientDescentOptimizer(0.1).minimize(loss, train.get_global_step())


@pytest.mark.slow
def test_small_tables_and_those_that_are_no_tables_travel_whole() -> None:
    assert _update_of(_with_table(16_000, _sgd), _examples)[0].tables == []
    assert _update_of(_with_table(17_000, _sgd), _examples)[0].tables == ["embedding/embeddings"]
    assert _update_of(_with_table(17_000, _sgd, _whole_too), _examples)[0].tables == []
    assert _update_of(_with_table(17_000, _muon), _examples)[0].tables == []


@pytest.mark.slow
def test_what_no_task_can_hold_whole_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"embedding/embeddings.*reads it otherwise than by lookups"):
        _update_of(_with_table(20_000_000, _sgd, _whole_too), _examples)
    with pytest.raises(UnsupportedError, match=r"embedding/embeddings.*does not update it row by row"):
        _update_of(_with_table(20_000_000, _muon), _examples)


@pytest.mark.slow
def test_slots_begin_with_a_number() -> None:
    def adagrad(loss: Any) -> Any:
        return train.AdagradOptimizer(0.1, initial_accumulator_value=0.3).minimize(loss)

    _, entries = _update_of(_with_table(17_000, adagrad), _examples)
    assert constant_of(entries["embedding/embeddings/Adagrad"], entries) == pytest.approx(0.3)
    assert constant_of(entries["embedding/embeddings"], entries) is None


def _ranges(made: Any, read: Callable[[], Any]) -> dict[str, list[int] | None]:
    update, _, options = trace_update(made, read)
    return {v.name: options.ranges_of(v) for v in update.variables if v.kind == "rows"}


@pytest.mark.slow
def test_partitioners_of_tensorflow_1_say_how_tables_are_divided() -> None:
    v1 = tf.compat.v1

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        with v1.variable_scope("in", partitioner=v1.min_max_variable_partitioner(3, min_slice_size=1024)):
            first = tf.nn.embedding_lookup(v1.get_variable("first", (1000, 4)), features)
            with v1.variable_scope("whole", partitioner=v1.fixed_size_partitioner(1)):
                small = tf.nn.embedding_lookup(v1.get_variable("small", (1000, 4)), features)
        second = v1.get_variable("second", (7, 4), partitioner=v1.fixed_size_partitioner(2))
        hidden = tf.add_n([first, small, tf.gather(second, features)])
        loss = tf.reduce_mean(v1.layers.dense(tf.reduce_mean(hidden, axis=1), 1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=_sgd(loss))

    ranges = _ranges(estimator.Estimator(model_fn), _examples)
    assert ranges == {"in/first": [334, 333, 333], "second": [4, 3]}


@pytest.mark.slow
def test_the_partitioner_of_a_canned_estimator_divides_its_tables() -> None:
    column = tf.feature_column.categorical_column_with_identity("id", 10)
    made = tf.compat.v1.estimator.DNNClassifier(
        [4],
        [tf.feature_column.embedding_column(column, 3)],
        input_layer_partitioner=tf.compat.v1.fixed_size_partitioner(4),
    )
    (sizes,) = _ranges(made, lambda: ({"id": np.zeros((4, 1), np.int64)}, np.zeros(4, np.int32))).values()
    assert sizes == [3, 3, 2, 2]


@pytest.mark.slow
def test_a_model_of_keras_keeps_its_shapes_and_its_weights() -> None:
    keras.backend.clear_session()  # Names of layers are counted.
    inputs = keras.Input((2,), dtype="int32")
    table = keras.layers.Embedding(17_000, 16)
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.ops.mean(table(inputs), axis=1)))
    model.compile("adam", "mse")
    made = tf.keras.estimator.model_to_estimator(model)
    update, entries = _update_of(made, lambda: (np.zeros((4, 2), np.int32), np.zeros((4, 1), np.float32)))
    assert update.tables == ["embedding/embeddings"]
    assert tuple(table.embeddings.shape) == (17_000, 16)
    # Servers are given the model's weights; they make none.
    assert row_initializer(entries["embedding/embeddings"], entries) is None
