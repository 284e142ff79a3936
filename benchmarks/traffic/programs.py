"""What is trained, how its gradients travel, and what is read from a model after it was trained."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
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
    "PowerSGD, rank 4, the rest in bfloat16": {"power_sgd_rank": 4, "gradient_dtype": "bfloat16"},
    "LocalSteps, every 50": {"every": 50},
}
# Of MirroredStrategy: the class of `cross_device_ops` and its arguments, and arguments of CommunicationOptions.
CHOICES: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "AUTO": ("", {}, {}),
    "AUTO, bytes_per_pack=262144": ("", {}, {"bytes_per_pack": 1 << 18}),
    "AUTO, bytes_per_pack=1": ("", {}, {"bytes_per_pack": 1}),
    "RING": ("", {}, {"implementation": "RING"}),
    "RING, bytes_per_pack=1": ("", {}, {"implementation": "RING", "bytes_per_pack": 1}),
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


def model_for(keras: Any, shape: tuple[int, ...], classes: int) -> Any:
    """A small convolutional network, compiled with Adam."""
    layers = keras.layers
    model = keras.Sequential([keras.Input(shape)])
    for filters in (16, 32):
        model.add(layers.Conv2D(filters, 3, activation="relu"))
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    model.add(layers.Dense(128, activation="relu"))
    model.add(layers.Dense(classes))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=["accuracy"])
    return model


def digits(count: int) -> tuple[Arrays, Arrays, str]:
    """MNIST, or the sample that comes with lockstep: training and test data, and where they are from."""
    import lockstep as ls

    os.environ.setdefault("LOCKSTEP_OFFLINE", "1")
    found = ls.datasets.load_mnist()
    train = _scaled(found.train_images[:count, ..., None]), found.train_labels[:count].astype("int32")
    test = _scaled(found.test_images[..., None]), found.test_labels.astype("int32")
    return train, test, f"{len(train[0]):,} pictures of 28x28: {found.source}"


def pictures(count: int) -> tuple[Arrays, Arrays, str]:
    """Drawn pictures of ten kinds, of the size of CIFAR's."""
    random = np.random.default_rng(0)
    kinds = random.normal(size=(10, 32, 32, 3)).astype("float32")
    return _drawn(random, kinds, count), _drawn(random, kinds, 2000), f"{count:,} drawn pictures of 32x32x3, ten kinds"


def photographs(count: int) -> tuple[Arrays, Arrays, str]:
    """Photographs of cats and dogs at 32x32; 1,000 of them in the tests' data."""
    directory = Path(os.environ["LOCKSTEP_DATA_DIR"]) / "cats_vs_dogs"
    train, test = _photographs(directory / "train"), _photographs(directory / "test")
    said = f"{len(train[0]):,} photographs of cats and dogs at 32x32x3, {len(test[0])} to test"
    return (train[0][:count], train[1][:count]), test, said


DATA = {"digits": digits, "pictures": pictures, "photographs": photographs}
# In `--quick`.
QUICK_COMPRESSIONS = ("none", "bfloat16", "PowerSGD, rank 1", "PowerSGD, rank 4", "LocalSteps, every 50")


def _scaled(images: np.ndarray) -> np.ndarray:
    return images.astype("float32") / 255


def _photographs(directory: Path) -> Arrays:
    import lockstep.compat.tensorflow as tf

    files = sorted(directory.glob("*/*.jpg"))
    read = [tf.io.decode_jpeg(file.read_bytes(), channels=3) for file in files]
    images = np.stack([np.asarray(tf.image.resize(image, (32, 32))) for image in read])
    order = np.random.default_rng(0).permutation(len(files))
    labels = np.asarray([file.parent.name == "dog" for file in files], "int32")
    return _scaled(images)[order], labels[order]


def _drawn(random: np.random.Generator, kinds: np.ndarray, count: int) -> Arrays:
    """Each is its kind, moved by up to two places, under noise."""
    labels = random.integers(0, len(kinds), count)
    moved = [np.roll(kinds[k], random.integers(-2, 3, 2), (0, 1)) for k in labels]
    return np.stack(moved) + 3 * random.normal(size=(count, *kinds.shape[1:])).astype("float32"), labels.astype("int32")


def compiled_text(model: Any, batch: Arrays) -> str:
    """The program of a training step of a model that was trained on such batches, as XLA compiled it."""
    program = model.train_function
    placed = program.place_batch((*batch, None))
    _, *state = _state(model)
    carried = program._carried([[program.place_state(v) for v in part] for part in state], placed)
    lowered = program._once.lower(placed.split, placed.counts, placed.recipe, carried, placed.data)
    return lowered.compile().as_text()


def text_of_end(model: Any) -> str:
    """The same of what ends a round of local steps."""
    local = model.train_function._local
    return local._do.lower("end", local._now).compile().as_text()


def _state(model: Any) -> Any:
    optimizer = model.optimizer.variables
    parts = (model.trainable_variables, model.non_trainable_variables, optimizer, model.metrics_variables)
    return None, *([np.asarray(v) for v in part] for part in parts)


def loopback_bytes() -> int:
    """How many bytes the loopback interface has carried so far; 0 where nobody counts them."""
    return int(_INTERFACE.read_text()) if _INTERFACE.exists() else 0


def noted(keras: Any, seconds: list[float], sent: list[int]) -> Any:
    """A callback that notes how long each epoch takes, and what the loopback interface carries in it."""

    class Noted(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.before = loopback_bytes(), time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            sent.append(loopback_bytes() - self.before[0])
            seconds.append(time.perf_counter() - self.before[1])

    return Noted()
