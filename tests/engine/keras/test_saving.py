"""Files that several workers write to one path, and callbacks that write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep._engine.runtime.runtime import Runtime
from lockstep.cluster_resolver._roles import training_tasks
from lockstep.errors import ArgumentError
from lockstep.training.callbacks import OnChief
from tests.support.cluster import Cluster, shared

_MODULE = "tests.engine.keras.saving_cases"

pair = shared(2)


@pytest.mark.parametrize("form", ["keras", "directory", "hdf5", "weights", "shards", "function"])
def test_a_file_of_all_workers_is_whole_at_any_time(pair: Cluster, tmp_path: Path, form: str) -> None:
    for found in pair.run(f"{_MODULE}:saves", directory=str(tmp_path), form=form):
        assert len(found["seen"]) >= 3
        assert found["seen"].all()
        assert found["same"].all()
        assert [n for n in found["files"] if n.startswith(".")] == []


def test_exports_of_all_workers_are_whole_and_leave_other_files(pair: Cluster, tmp_path: Path) -> None:
    for found in pair.run(f"{_MODULE}:exports", directory=str(tmp_path)):
        assert dict(found["found"]) == {"notes.txt": "mine", "saved_model.pb": "program", "variables/data": "values"}
        assert len(found["half"]) == 0
        assert list(found["left"]) == ["exported"]


def test_one_worker_saves_alone(pair: Cluster, tmp_path: Path) -> None:
    chief, other = pair.run(f"{_MODULE}:one_saves", directory=str(tmp_path))
    assert bool(chief["is_chief"])
    assert bool(chief["saved"])
    assert not other["is_chief"]


def test_what_cannot_be_saved_is_named(pair: Cluster, tmp_path: Path) -> None:
    for found in pair.run(f"{_MODULE}:cannot_save", directory=str(tmp_path)):
        assert str(found["type"]) == "CheckpointError"
        assert f"{tmp_path}/missing/model.keras could not be written: " in str(found["text"])
        assert len(found["files"]) == 0


def test_a_callback_that_writes_runs_on_the_chief(pair: Cluster, tmp_path: Path) -> None:
    chief, other = pair.run(f"{_MODULE}:writes_on_chief", directory=str(tmp_path))
    # Epochs 0 and 1; after the restart its state of then and epoch 2.
    assert chief["epochs"].tolist() == [2, 3]
    assert other["epochs"].tolist() == [0, 0]
    assert int(chief["stopped"]) == int(other["stopped"]) == 2
    assert chief["lines"].tolist() == [f"{epoch} {epochs} ['loss'] 83" for epoch, epochs in ((0, 2), (1, 2), (2, 3))]


class _Recording(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []


def _record(name: str) -> Callable[..., None]:
    def method(self: _Recording, *args: Any, **_: Any) -> None:
        # Keras calls some of a callback's methods from a thread of its own.
        here = threading.current_thread() is threading.main_thread()
        self.calls.append((name, here, *(a for a in args if isinstance(a, int))))

    return method


for _name in [n for n in dir(keras.callbacks.Callback) if n.startswith("on_")]:
    setattr(_Recording, _name, _record(_name))


def test_one_process_calls_the_callback_as_it_is() -> None:
    plain, wrapped = _Recording(), _Recording()
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    x, y = np.zeros((4, 2)), np.zeros((4, 1))
    for callback in (plain, OnChief(wrapped)):
        model.fit(x, y, validation_data=(x, y), verbose=0, callbacks=[callback])
        model.predict(x, verbose=0, callbacks=[callback])
    assert wrapped.calls == plain.calls
    assert len(plain.calls) > 10
    assert wrapped.model is model
    assert wrapped.params == plain.params


@pytest.mark.parametrize("given", [print, ls.callbacks.BackupAndRestore("/tmp/never")], ids=["function", "backups"])
def test_on_chief_takes_callbacks_of_one_worker(given: Any) -> None:
    with pytest.raises(ArgumentError, match=r"Received: .*(print|OnChief\(BackupAndRestore)"):
        OnChief(given)


def test_every_strategy_says_who_writes() -> None:
    assert ls.distribute.MirroredStrategy().is_chief
    assert ls.distribute.OneDeviceStrategy("cpu:0").is_chief
    assert ls.distribute.get_strategy().is_chief


_WORKERS = {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}
_WITH_CHIEF = {"chief": ["127.0.0.1:3"], **_WORKERS}


@pytest.mark.parametrize(
    ("cluster", "task", "expected"),
    [
        (_WORKERS, ("worker", 0), True),
        (_WORKERS, ("worker", 1), False),
        (_WITH_CHIEF, ("chief", 0), True),
        (_WITH_CHIEF, ("worker", 0), False),
    ],
)
def test_one_task_of_a_cluster_is_the_chief(cluster: Any, task: tuple[str, int], expected: bool) -> None:
    tasks = training_tasks(ls.cluster_resolver.ClusterSpec(cluster))
    runtime = Runtime(tuple(map(str, tasks)), tasks.index(ls.cluster_resolver.Task(*task)))
    resolver = ls.cluster_resolver.SimpleClusterResolver(cluster, task_type=task[0], task_id=task[1])
    replicas: Any = SimpleNamespace(runtime=runtime)
    assert ls.distribute.Strategy(replicas, resolver).is_chief is expected


def test_an_evaluator_is_not_the_chief() -> None:
    cluster = ls.cluster_resolver.ClusterSpec({"worker": ["127.0.0.1:1"], "evaluator": ["127.0.0.1:2"]})
    resolver = ls.cluster_resolver.SimpleClusterResolver(cluster, task_type="evaluator", task_id=0)
    assert not ls.distribute.MultiWorkerMirroredStrategy(resolver).is_chief
