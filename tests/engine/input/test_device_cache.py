"""Data that stays on the devices gives the batches that the host would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from lockstep._engine.input.datasets import ReplicatedReader, ShardSpec
from lockstep._engine.input.device_cache import DeviceCache
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import GatherIndices
from lockstep._engine.step.placement import place_batch
from lockstep._engine.step.replicas import Replicas
from lockstep.data import Dataset
from lockstep.data._dataset_base import plan_of
from lockstep.data._plan import Run

ENOUGH = 1 << 20


@pytest.fixture(params=[1, 4])
def replicas(request: pytest.FixtureRequest) -> Replicas:
    return Replicas(Runtime(), jax.devices()[: request.param])


def batches(dataset: Dataset, cache: DeviceCache | None, run: int = 0) -> Iterator[Any]:
    passing = ReplicatedReader(plan_of(dataset), Run(1, (run,)), ShardSpec(cache=cache))
    return (each.batch for each in passing)


def check(dataset: Dataset, replicas: Replicas, cache: DeviceCache, run: int = 0) -> list[bool]:
    """Compares the batches; returns which of them were on the devices."""
    found = list(batches(dataset, cache, run))
    expected = list(batches(dataset, None, run))
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        placed, other = place_batch(replicas, mine), place_batch(replicas, theirs)
        assert placed.split is other.split
        data = jax.jit(placed.batch_fn)(*placed.data) if placed.batch_fn else placed.data
        assert jax.tree.structure(data) == jax.tree.structure(other.data)
        for a, b in zip(jax.tree.leaves(data), jax.tree.leaves(other.data), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    return [isinstance(b, GatherIndices) for b in found]


def arrays(rows: int = 50) -> dict[str, Any]:
    return {"x": np.arange(rows * 3, dtype=np.uint8).reshape(rows, 3), "y": np.arange(rows)}


def scaled(e: Any) -> Any:
    return e["x"].astype("float32") * 2, e["y"]


def test_arrays_and_their_map_functions(replicas: Replicas) -> None:
    source = Dataset.from_tensor_slices(arrays())
    dataset = source.map(scaled).map(lambda x, y: (x + 1, {"label": y})).shuffle(20, seed=1).repeat(2).batch(8)
    cache = DeviceCache(replicas, ENOUGH)
    assert all(check(dataset, replicas, cache))
    assert all(check(dataset, replicas, cache, run=1))


def test_datasets_side_by_side(replicas: Replicas) -> None:
    one, other = Dataset.from_tensor_slices(arrays()), Dataset.from_tensor_slices(np.arange(50.0))
    dataset = Dataset.zip((one.map(scaled), other)).shuffle(50, seed=2).batch(7)
    assert all(check(dataset, replicas, DeviceCache(replicas, ENOUGH)))


def test_a_cache_moves_to_the_devices_when_it_is_complete(replicas: Replicas) -> None:
    dataset = Dataset.from_tensor_slices(arrays()).map(lambda e: (np.asarray(e["x"]) * 2.0, e["y"])).cache().batch(8)
    cache = DeviceCache(replicas, ENOUGH)
    assert not any(check(dataset, replicas, cache))
    assert all(check(dataset, replicas, cache))


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.from_tensor_slices(arrays()).filter(lambda e: e["y"] % 2 == 0).batch(8),
        Dataset.from_tensor_slices(arrays()).map(lambda e: int(e["y"])).batch(8),
        Dataset.from_tensor_slices(arrays()).padded_batch(8),
        Dataset.from_generator(lambda: iter(range(20))).batch(8),
        Dataset.from_tensor_slices(arrays()).batch(8).map(scaled),
    ],
    ids=["filter", "one by one", "padded", "generator", "after batch"],
)
def test_other_data_stays_on_the_host(replicas: Replicas, dataset: Dataset) -> None:
    # What a filter keeps is new each time; there is no use in moving it.
    cache = DeviceCache(replicas, 8)
    assert not any(check(dataset, replicas, cache))


def test_data_that_does_not_fit_stays_on_the_host(replicas: Replicas) -> None:
    dataset = Dataset.from_tensor_slices(arrays()).batch(8)
    assert not any(check(dataset, replicas, DeviceCache(replicas, 50)))
    assert all(check(dataset, replicas, DeviceCache(replicas, 50 * 3 + 50 * 8)))
    assert all(check(dataset, replicas, DeviceCache(replicas)))


def test_a_light_cache_need_not_be_filled(replicas: Replicas) -> None:
    dataset = Dataset.from_tensor_slices(arrays()).map(scaled).cache().shuffle(50, seed=3).batch(8)
    cache = DeviceCache(replicas, ENOUGH)
    assert all(check(dataset, replicas, cache))
    assert all(check(dataset, replicas, cache, run=1))


def test_datasets_that_are_made_alike_have_equal_recipes(replicas: Replicas) -> None:
    def recipe(factor: float) -> Any:
        dataset = Dataset.from_tensor_slices(arrays()).map(lambda e: (e["x"].astype("float32") * factor, e["y"]))
        (first, *_) = batches(dataset.batch(8), DeviceCache(replicas, ENOUGH))
        return first.batch_fn

    assert recipe(2.0) == recipe(2.0)
    assert hash(recipe(2.0)) == hash(recipe(2.0))
    assert recipe(2.0) != recipe(3.0)
