"""What is trained, how its gradients travel, and what is read from a model after it was trained."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Arrays = tuple[np.ndarray, np.ndarray]
_INTERFACE = Path("/sys/class/net/lo/statistics/tx_bytes")

# Arguments of CommunicationOptions, by name; "every" is LocalSteps'.
COMPRESSIONS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "bfloat16": {"gradient_dtype": "bfloat16"},
    "PowerSGD, rank 1": {"power_sgd_rank": 1},
    "PowerSGD, rank 2": {"power_sgd_rank": 2},
    "PowerSGD, rank 4": {"power_sgd_rank": 4},
    "LocalSteps, every 50": {"every": 50},
}
# Of MirroredStrategy: the class of `cross_device_ops` and its arguments, and arguments of CommunicationOptions.
CHOICES: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "AUTO": ("", {}, {}),
    "AUTO, bytes_per_pack=262144": ("", {}, {"bytes_per_pack": 1 << 18}),
    "AUTO, bytes_per_pack=1": ("", {}, {"bytes_per_pack": 1}),
    "RING": ("", {}, {"implementation": "RING"}),
    "RING, bytes_per_pack=262144": ("", {}, {"implementation": "RING", "bytes_per_pack": 1 << 18}),
    "HierarchicalCopyAllReduce()": ("HierarchicalCopyAllReduce", {}, {}),
    "HierarchicalCopyAllReduce(num_packs=3)": ("HierarchicalCopyAllReduce", {"num_packs": 3}, {}),
    "ReductionToOneDevice()": ("ReductionToOneDevice", {}, {}),
}


def strategy_of(distribute: Any, compression: str) -> Any:
    """A strategy of workers."""
    given = dict(COMPRESSIONS[compression])
    every = given.pop("every", None)
    return distribute.MultiWorkerMirroredStrategy(
        communication_options=distribute.CommunicationOptions(**given),
        local_steps=None if every is None else distribute.LocalSteps(every),
    )


def choice_of(distribute: Any, name: str) -> Any:
    """A strategy of the devices of this process that adds up by one of `CHOICES`."""
    kind, arguments, options = CHOICES[name]
    ops = getattr(distribute, kind)(**arguments) if kind else None
    given = distribute.CommunicationOptions(**options)
    return distribute.MirroredStrategy(cross_device_ops=ops, communication_options=given)


def model_for(keras: Any, shape: tuple[int, ...], classes: int, steps: int) -> Any:
    """A small convolutional network, compiled with Adam, whose learning rate falls to zero over so many steps.

    With a constant one, the accuracy of each epoch would differ from the next one's by more than the bars.
    """
    model = _network(keras, shape, classes, "relu", keras.layers.MaxPooling2D)
    rate = keras.optimizers.schedules.CosineDecay(1e-3, steps)
    model.compile(keras.optimizers.Adam(rate), _loss(keras), metrics=["accuracy"])
    return model


def smooth_model_for(keras: Any, shape: tuple[int, ...], classes: int) -> Any:
    """The same without corners, compiled with SGD: where sums round differently, weights stay that near.

    Where two values of a window of max-pooling are equal but for rounding, it decides which of them has the gradient;
    and where one is zero but for rounding, whether ReLU has any.
    """
    model = _network(keras, shape, classes, "tanh", keras.layers.AveragePooling2D)
    model.compile(keras.optimizers.SGD(0.05), _loss(keras), metrics=["accuracy"])
    return model


def _network(keras: Any, shape: tuple[int, ...], classes: int, activation: str, pooling: Any) -> Any:
    layers = keras.layers
    model = keras.Sequential([keras.Input(shape)])
    for filters in (16, 32):
        model.add(layers.Conv2D(filters, 3, activation=activation))
        model.add(pooling(2))
    model.add(layers.Flatten())
    model.add(layers.Dense(128, activation=activation))
    model.add(layers.Dense(classes))
    return model


def _loss(keras: Any) -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def digits(count: int) -> tuple[Arrays, Arrays, str]:
    """MNIST, or the sample that comes with lockstep: training and test data, and where they are from."""
    import lockstep as ls

    os.environ.setdefault("LOCKSTEP_OFFLINE", "1")
    found = ls.datasets.load_mnist()
    train = _scaled(found.train_images[:count, ..., None]), found.train_labels[:count].astype("int32")
    test = _scaled(found.test_images[..., None]), found.test_labels.astype("int32")
    return train, test, f"{len(train[0]):,} pictures of 28x28: {found.source.partition(' from ')[0]}"


def pictures(count: int) -> tuple[Arrays, Arrays, str]:
    """Drawn pictures of ten kinds, of the size of CIFAR's."""
    random = np.random.default_rng(0)
    kinds = random.normal(size=(10, 8, 8, 3)).astype("float32").repeat(4, 1).repeat(4, 2)
    return (
        _drawn(random, kinds, count),
        _drawn(random, kinds, 10_000),
        f"{count:,} drawn pictures of 32x32x3, ten kinds",
    )


DATA = {"digits": digits, "pictures": pictures}
# In `--quick`.
QUICK_COMPRESSIONS = ("none", "bfloat16", "PowerSGD, rank 1", "PowerSGD, rank 4", "LocalSteps, every 50")


def _scaled(images: np.ndarray) -> np.ndarray:
    return images.astype("float32") / 255


def _drawn(random: np.random.Generator, kinds: np.ndarray, count: int) -> Arrays:
    """Each is its kind, moved by up to four places, in more or less light, under noise."""
    labels = random.integers(0, len(kinds), count)
    moved = np.stack([np.roll(kinds[k], random.integers(-4, 5, 2), (0, 1)) for k in labels])
    light = random.uniform(0.5, 1.5, (count, 1, 1, 1)).astype("float32")
    noise = random.standard_normal(moved.shape, "float32")
    return light * moved + 2.5 * noise, labels.astype("int32")


def compiled_text(model: Any, batch: Arrays) -> str:
    """The program of a training step of a model that was trained on such batches, as XLA compiled it."""
    program = model.train_function
    placed = program.place_batch((*batch, None))
    _, *state = _state(model)
    arrays = [[program.place_state(v) for v in part] for part in state]
    carried = program._adapter.wrap(arrays, placed.split, partial(program._shapes_on_devices, placed))
    lowered = program._run_one.lower(placed.split, placed.counts, placed.batch_fn, carried, placed.data)
    return lowered.compile().as_text()


def text_of_end(model: Any) -> str:
    """The same of what ends a round of local steps."""
    local = model.train_function._local
    return local._do.lower("end", local._now).compile().as_text()


def _state(model: Any) -> Any:
    optimizer = model.optimizer.variables
    parts = (model.trainable_variables, model.non_trainable_variables, optimizer, model.metrics_variables)
    return None, *([np.asarray(v) for v in part] for part in parts)


def apart(weights: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> float:
    """The largest difference of a weight."""
    return max(float(np.abs(a - b).max()) for a, b in zip(weights, others, strict=True))


def loopback_bytes() -> int:
    """How many bytes the loopback interface has carried so far; 0 where nobody counts them."""
    return int(_INTERFACE.read_text()) if _INTERFACE.exists() else 0


def noted(seconds: list[float], sent: list[int]) -> Any:
    """A callback that notes how long each epoch takes, and what the loopback interface carries in it."""
    import keras

    class Noted(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.before = loopback_bytes(), time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            sent.append(loopback_bytes() - self.before[0])
            seconds.append(time.perf_counter() - self.before[1])

    return Noted()
