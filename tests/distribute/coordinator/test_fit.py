"""`Model.fit` where workers run `Server.join()`: its steps are scheduled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep.cluster_resolver import SimpleClusterResolver
from tests.distribute.coordinator.local import make_cluster
from tests.distribute.coordinator.tasks import Tasks


def _fit(strategy: Any, folder: Path | None = None, epochs: int = 3) -> tuple[Any, Any]:
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 4)).astype(np.float32)
    y = x.sum(1, keepdims=True)
    with strategy.scope():
        hidden = [keras.layers.Dense(8, use_bias=False), keras.layers.BatchNormalization(), keras.layers.Dropout(0.1)]
        model = keras.Sequential([keras.Input((4,)), *hidden, keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    callbacks = [] if folder is None else [keras.callbacks.BackupAndRestore(str(folder), delete_checkpoint=False)]
    quiet: Any = 0
    history = model.fit(x, y, batch_size=32, epochs=epochs, verbose=quiet, validation_data=(x, y), callbacks=callbacks)
    return history.history, model


@pytest.fixture(scope="module")
def cluster() -> dict[str, list[str]]:
    return make_cluster(2, 2)


def _strategy(cluster: Any, **options: Any) -> Any:
    return ls.distribute.ParameterServerStrategy(SimpleClusterResolver(cluster), **options)


@pytest.mark.slow
def test_one_after_the_other_steps_are_those_of_one_device(cluster: Any, tmp_path: Path) -> None:
    expected, alone = _fit(ls.distribute.OneDeviceStrategy("cpu:0"))
    history, model = _fit(_strategy(cluster, staleness=0))
    for name, values in expected.items():
        np.testing.assert_allclose(history[name], values, rtol=1e-4, err_msg=name)
    for one, other in zip(alone.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_a_backup_is_gone_on_from_as_on_one_device(cluster: Any, tmp_path: Path) -> None:
    losses: list[Any] = []
    for name, make in {
        "alone": lambda: ls.distribute.OneDeviceStrategy("cpu:0"),
        "scheduled": lambda: _strategy(cluster, staleness=0),
    }.items():
        _fit(make(), tmp_path / name, epochs=2)
        losses.append(_fit(make(), tmp_path / name)[0]["loss"])
    assert len(losses[0]) == 1
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)


@pytest.mark.slow
def test_workers_compute_steps_at_the_same_time(cluster: Any) -> None:
    history, model = _fit(_strategy(cluster))
    assert int(np.asarray(model.optimizer.iterations)) == 3 * 7
    assert history["loss"][-1] < history["loss"][0]


def main(folder: Path) -> None:
    resolver = ls.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        ls.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id).join()
        return
    history, model = _fit(ls.distribute.ParameterServerStrategy(resolver))
    found = {"loss": history["loss"], "iterations": int(np.asarray(model.optimizer.iterations))}
    (folder / "found.json").write_text(json.dumps(found))


@pytest.mark.cluster
def test_a_chief_trains_with_workers_that_only_serve(tmp_path: Path) -> None:
    tasks = Tasks("tests.distribute.coordinator.fitting", 2, 2, tmp_path)
    codes = tasks.wait()
    assert set(codes.values()) == {0}, (codes, {name: tasks.log(name)[-2000:] for name in codes})
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["iterations"] == 21 and found["loss"][-1] < found["loss"][0]
