"""Elements of distributed datasets: of any shapes, one for each replica. Numbers are TensorFlow 2.15's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lockstep as ls
from lockstep.data import Dataset
from lockstep.distribute import InputOptions
from lockstep.errors import ArgumentError

TWO = ls.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
ONE = ls.distribute.MirroredStrategy(["cpu:0"])


def _from_function(dataset: Dataset) -> list[list[Any]]:
    return [
        [np.asarray(v).tolist() for v in e.values] for e in TWO.distribute_datasets_from_function(lambda c: dataset)
    ]


def test_scalars_go_to_replicas_in_turn() -> None:
    assert _from_function(Dataset.range(5)) == [[0, 1], [2, 3]]


def test_elements_keep_their_shapes() -> None:
    lengths = Dataset.from_generator(lambda: (np.arange(i + 1) for i in range(5)))
    assert _from_function(lengths) == [[[0], [0, 1]], [[0, 1, 2], [0, 1, 2, 3]], [[0, 1, 2, 3, 4], []]]


def test_batches_go_to_replicas_in_turn() -> None:
    assert _from_function(Dataset.range(5).batch(2)) == [[[0, 1], [2, 3]], [[4], []]]


def test_one_replica_gets_elements_as_they_are() -> None:
    assert [int(v) for v in ONE.experimental_distribute_dataset(Dataset.range(3))] == [0, 1, 2]
    with pytest.raises(ArgumentError, match="must consist of batches"):
        next(iter(TWO.experimental_distribute_dataset(Dataset.range(3))))


def test_each_replica_may_have_a_pipeline() -> None:
    options = InputOptions(experimental_replication_mode="PER_REPLICA", experimental_per_replica_buffer_size=2)

    def dataset(context: Any) -> Dataset:
        return Dataset.range(8).shard(context.num_input_pipelines, context.input_pipeline_id).batch(2)

    found = [
        [np.asarray(v).tolist() for v in e.values] for e in TWO.distribute_datasets_from_function(dataset, options)
    ]
    assert found == [[[0, 2], [1, 3]], [[4, 6], [5, 7]]]
    with pytest.raises(ArgumentError, match="PER_REPLICA for a dataset"):
        TWO.experimental_distribute_dataset(Dataset.range(8).batch(2), options)


def test_options_are_checked() -> None:
    assert InputOptions(experimental_place_dataset_on_device=True).experimental_fetch_to_device is None
    for wrong in (
        {"experimental_replication_mode": "PER_TASK"},
        {"experimental_per_replica_buffer_size": 0},
        {"experimental_place_dataset_on_device": True, "experimental_fetch_to_device": False},
    ):
        with pytest.raises(ArgumentError, match="Received: "):
            InputOptions(**wrong)  # pyright: ignore[reportArgumentType]
