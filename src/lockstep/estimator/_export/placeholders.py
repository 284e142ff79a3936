"""Placeholders: symbols for the inputs of a receiver function.

A receiver function computes features from inputs that no caller has given yet. It is run once to collect the inputs,
and again wherever its features are needed, with traced values in the place of the inputs, so that its computation
becomes a part of the program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._text import Text
from lockstep._types import DType, Tensor
from lockstep.data.internal import TEXT, TensorSpec
from lockstep.errors import ArgumentError
from lockstep.saved_model.internal import parsing as _parsing

_running = threading.local()


class Placeholder(TensorSpec):
    """The spec of an input, outside of a receiver function."""

    def __jax_array__(self) -> Any:
        """Refuses: it has no value.

        Raises:
            ArgumentError: Always.
        """
        raise ArgumentError(
            f"A placeholder has a value only inside of a receiver function, while a model is exported. Received: "
            f"{self}, in a computation. Make it in the serving_input_receiver_fn."
        )

    def parse_example(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Parses serialized examples; called by `tf.io.parse_example`."""
        return parse_example(self, features)


class TextPlaceholder(Text):
    """An input of text, while inputs are collected."""

    def __init__(self, shape: tuple[Any, ...]) -> None:
        self.shape = shape

    def ids(self, function: Callable[[np.ndarray], np.ndarray], dtype: DType = np.int32) -> jax.Array:
        """Returns integers of the right shape."""
        return _zeros(self.shape, dtype)

    def parse_example(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Parses serialized examples; called by `tf.io.parse_example`."""
        return parse_example(self, features)


@dataclass
class ParsedText:
    """Serialized examples in a program: the host has parsed them into `values`, the features by name."""

    values: Mapping[str, Any]

    def parse_example(self, features: Mapping[str, Any]) -> dict[str, Any]:
        """Parses serialized examples; called by `tf.io.parse_example`."""
        return parse_example(self, features)


@dataclass(frozen=True)
class Source:
    """An input that callers may give: its spec, and the value that the receiver function computes with.

    Attributes:
        examples: For a feature in serialized examples: the number of the source that these are.
        name: Its name in them.
    """

    spec: TensorSpec
    value: Any
    examples: int | None = None
    name: str = ""


class Collecting:
    """A run of a receiver function that collects its inputs; `size` returns a size for an open axis.

    Attributes:
        sources: The inputs that callers may give, in the order in which they were made.
        specs: The features of serialized examples, by the index of their source.
    """

    def __init__(self, size: Callable[[int], Any]) -> None:
        self._size = size
        self.sources: list[Source] = []
        self.specs: dict[int, Mapping[str, Any]] = {}

    def placeholder(self, spec: TensorSpec) -> Any:
        """Returns a symbol for an input of an exported model."""
        return self._create_value(spec, None, "")

    def parse(self, text: Tensor, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the parsed features."""
        number = next((i for i, source in enumerate(self.sources) if source.value is text), None)
        if number is None or number in self.specs:
            raise ArgumentError(
                "A receiver function parses each placeholder of text once, with all features. Received: one that was "
                "parsed before, or is of another receiver function."
            )
        self.specs[number] = dict(features)
        looks = _parsing.looks(features)
        return {n: self._create_value(TensorSpec(i.shape, i.dtype), number, n) for n, i in looks.items()}

    def _create_value(self, spec: TensorSpec, examples: int | None, name: str) -> Any:
        if spec.shape is None:
            raise ArgumentError(
                "An input of an export needs a number of dimensions. Received: a placeholder without a shape. Give it "
                "one, with None for sizes that may differ, such as [None, 28, 28]."
            )
        # Open sizes differ between the runs: symbols, or an example.
        shape = tuple(self._size(axis) if size is None else size for axis, size in enumerate(spec.shape))
        value = TextPlaceholder(shape) if spec.dtype == TEXT else _zeros(shape, spec.dtype)
        self.sources.append(Source(spec, value, examples, name))
        return value


def _zeros(shape: tuple[Any, ...], dtype: DType) -> jax.Array:
    return jnp.zeros(shape, jax.dtypes.canonicalize_dtype(dtype))


class Feeding:
    """A run of a receiver function with values, by the indices of the sources that an earlier run collected."""

    def __init__(self, values: Mapping[int, Any]) -> None:
        self._values = values
        self._count = 0

    def placeholder(self, spec: TensorSpec) -> Any:
        """Returns a symbol for an input of an exported model."""
        return self._next()

    def parse(self, text: Tensor, features: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the parsed features."""
        return {name: self._next() for name in features}

    def _next(self) -> Any:
        # By their order: a receiver function makes the same placeholders in each run.
        self._count += 1
        if self._count - 1 not in self._values:
            raise ArgumentError(
                "A receiver function must make the same placeholders in each call. Received: one that made others in a "
                "later call. Make it depend on nothing that changes."
            )
        return self._values[self._count - 1]


class running:
    """Context in which placeholders belong to a run of a receiver function."""

    def __init__(self, run: Collecting | Feeding) -> None:
        self._run = run

    def __enter__(self) -> None:
        self._before = getattr(_running, "run", None)
        _running.run = self._run

    def __exit__(self, *_: object) -> None:
        _running.run = self._before


def placeholder(dtype: DType, shape: Sequence[int | None] | None = None, name: str | None = None) -> Any:
    """Returns a symbol for an input of an exported model.

    Inside of a receiver function it can be computed with, like any array; text can be parsed by `tf.io.parse_example`
    or be a feature. Elsewhere it is a spec of an input, for `build_raw_serving_input_receiver_fn`.

    Args:
        dtype: The dtype; text is "string".
        shape: Sizes, `None` for the number of examples and wherever any number will do; `None` as a whole if not known.
        name: For messages.

    Source: tf.compat.v1.placeholder.
    """
    spec = Placeholder(shape, dtype, name)
    run = getattr(_running, "run", None)
    return spec if run is None else run.placeholder(spec)


def parse_example(serialized: Tensor, features: Mapping[str, Any]) -> dict[str, Any]:
    """Parses serialized examples; called by `tf.io.parse_example`.

    What is of different length in each example (`VarLenFeature`, `RaggedFeature`) becomes an array: behind shorter rows
    stand "" (text), -1 (integers) or 0.

    Args:
        serialized: A placeholder of text, with one dimension.
        features: The features of examples, by name.

    Returns:
        Arrays by name, and `Text`.

    Raises:
        ArgumentError: If it is no such placeholder.

    Source: tf.io.parse_example.
    """
    # Raises an error for features that a loaded export could not parse.
    _parsing.as_json(features)
    run = getattr(_running, "run", None)
    if run is None:
        return {n: Placeholder(i.shape, i.dtype) for n, i in _parsing.looks(features).items()}
    return run.parse(serialized, features)
