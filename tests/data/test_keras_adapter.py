"""Keras reads datasets, with and without a strategy."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep.data import Dataset
from lockstep.data._keras_adapter import DatasetAdapter
from lockstep.errors import InputError, UnsupportedError


def model(owned: bool) -> keras.Model:
    keras.utils.set_random_seed(1)
    with ls.distribute.MirroredStrategy(["/cpu:0"]).scope() if owned else contextlib.nullcontext():
        made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile(keras.optimizers.SGD(0.1), loss, weighted_metrics=["accuracy"])
    return made


def data(count: int = 20) -> Dataset:
    x = np.random.default_rng(0).random((count, 3), np.float32)
    return Dataset.from_tensor_slices((x, np.arange(count, dtype=np.int32) % 2))


both = pytest.mark.parametrize("owned", [False, True], ids=["plain", "strategy"])


@pytest.mark.slow
@both
def test_an_epoch_is_a_pass(owned: bool) -> None:
    seen: list[int] = []

    def note(x: Any, y: Any) -> Any:
        seen.append(len(seen))
        return x, y

    history = model(owned).fit(data().map(note).batch(8), epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2
    # Plain Keras looks at the first batch of a pass of its own to learn its shapes.
    assert len(seen) == (40 if owned else 48)


@both
def test_generators(owned: bool) -> None:
    def generate() -> Any:
        for i in range(20):
            yield np.full(3, i, np.float32), i % 2

    # Plain Keras warns at the end of any data whose length it does not know.
    with contextlib.nullcontext() if owned else pytest.warns(UserWarning, match="ran out of data"):
        history = model(owned).fit(Dataset.from_generator(generate).batch(8), epochs=2, verbose=0)
    assert len(history.history["loss"]) == 2


def test_both_read_the_same_passes() -> None:
    histories = [model(owned).fit(data().shuffle(9).batch(4), epochs=3, verbose=0).history for owned in (False, True)]
    np.testing.assert_allclose(histories[0]["loss"], histories[1]["loss"], rtol=1e-6)


@pytest.mark.slow
def test_class_weights_weigh_targets() -> None:
    weights = {0: 1.0, 1: 3.0}
    expected = model(False).fit(
        *map(np.stack, zip(*data(), strict=True)), 20, 2, 0, class_weight=weights, shuffle=False
    )
    for owned in (False, True):
        found = model(owned).fit(data().batch(20), epochs=2, verbose=0, class_weight=weights)
        np.testing.assert_allclose(found.history["loss"], expected.history["loss"], rtol=1e-5)


@both
def test_an_endless_epoch_is_refused(owned: bool) -> None:
    endless = data().repeat().batch(4)
    with pytest.raises(InputError, match="An epoch must end"):
        model(owned).fit(endless, verbose=0)
    with pytest.raises(InputError, match="validation_steps"):
        model(owned).fit(data().batch(4), validation_data=endless, verbose=0)
    history = model(owned).fit(endless, steps_per_epoch=3, validation_data=endless, validation_steps=2, verbose=0)
    assert len(history.history["val_loss"]) == 1


@both
def test_a_dataset_holds_everything(owned: bool) -> None:
    with pytest.raises(InputError, match="and y"):
        model(owned).fit(data().batch(4), np.zeros(20), verbose=0)
    with pytest.raises(InputError, match="a tuple of 4"):
        model(owned).fit(data().batch(4).map(lambda x, y: (x, y, y, y)), verbose=0)
    weighted = data().batch(4).map(lambda x, y: (x, y, y))
    with pytest.raises(InputError, match="class_weight needs elements"):
        model(owned).fit(weighted, class_weight={0: 1.0, 1: 2.0}, verbose=0)


@both
def test_predictions_need_no_targets(owned: bool) -> None:
    made = model(owned)
    inputs = data().map(lambda x, y: x).batch(8)
    np.testing.assert_allclose(made.predict(inputs, verbose=0), made.predict(data().batch(7), verbose=0), rtol=1e-5)


def test_other_backends_are_refused() -> None:
    adapter = DatasetAdapter(data().batch(4), None)
    for read in (adapter.get_tf_dataset, adapter.get_torch_dataloader):
        with pytest.raises(UnsupportedError, match="Import lockstep before keras"):
            read()
