"""A network of the zoo: how it is built, what it is fed with, and how large a step is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

# Keras 3, or TensorFlow 2.15's `tf.keras`: the zoo's networks are the same program in both.
Keras = Any
Model = Any
Arrays = Any


@dataclass(frozen=True)
class Network:
    """One entry of the zoo.

    Attributes:
        name: Short, unique.
        title: The network in a sentence.
        build: Makes the compiled model with the Keras that it is given.
        examples: Makes `(x, y)` of as many examples; what they contain does not change speed.
        batch: Examples in a step.
        steps: Steps in an epoch.
        policy: Keras' dtype policy.
    """

    name: str
    title: str
    build: Callable[[Keras], Model]
    examples: Callable[[int], tuple[Arrays, Arrays]]
    batch: int
    steps: int = 8
    policy: str = "float32"


def classifier(keras: Keras, model: Model, rate: float = 1e-3) -> Model:
    """Compiles a model that ends in logits, with Adam."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    return model


def pictures(side: int, classes: int = 10, channels: int = 3) -> Callable[[int], tuple[Arrays, Arrays]]:
    """Returns examples of float32 `(count, side, side, channels)` and int32 labels `(count,)`."""

    def make(count: int) -> tuple[Arrays, Arrays]:
        random = np.random.default_rng(0)
        return random.random((count, side, side, channels), np.float32), random.integers(0, classes, count, np.int32)

    return make


def tokens(length: int, words: int = 20_000, classes: int = 2) -> Callable[[int], tuple[Arrays, Arrays]]:
    """Returns examples of int32 `(count, length)` and int32 labels `(count,)`."""

    def make(count: int) -> tuple[Arrays, Arrays]:
        random = np.random.default_rng(0)
        return random.integers(0, words, (count, length), np.int32), random.integers(0, classes, count, np.int32)

    return make


def next_tokens(length: int, words: int) -> Callable[[int], tuple[Arrays, Arrays]]:
    """Returns examples of int32 `(count, length)` and the same shape again: the token that follows each."""

    def make(count: int) -> tuple[Arrays, Arrays]:
        random = np.random.default_rng(0)
        both = random.integers(0, words, (2, count, length), np.int32)
        return both[0], both[1]

    return make


def vectors(width: int, classes: int | None = 10) -> Callable[[int], tuple[Arrays, Arrays]]:
    """Returns examples of float32 `(count, width)` and labels, or themselves where there are no `classes`."""

    def make(count: int) -> tuple[Arrays, Arrays]:
        random = np.random.default_rng(0)
        x = random.random((count, width), np.float32)
        return x, x if classes is None else random.integers(0, classes, count, np.int32)

    return make
