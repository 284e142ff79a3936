"""Names for what TensorFlow's functions take, beside those of `lockstep._types`.

Each is `Any` to a type checker: TensorFlow converts what it is given, and so does `_ops.dispatch`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Library: TypeAlias = Any
"""The module that computes: `numpy`, `jax.numpy` or `keras.ops`."""

DTypeLike: TypeAlias = Any
"""A `DType`, a type of numpy or Python, or a name such as "float32"."""

ShapeLike: TypeAlias = Any
"""Sizes of dimensions: integers, a `TensorShape`, or a tensor of the host."""

SizeLike: TypeAlias = Any
"""An integer that must be known when JAX compiles; also as a tensor of the host."""

AxisLike: TypeAlias = Any
"""An axis, several, or None for all; also as a tensor of the host."""

WindowLike: TypeAlias = Any
"""Windows, strides or dilations: one number, one per dimension of space, or one per dimension."""

Padding: TypeAlias = Any
""" "SAME" or "VALID", in any case of letters."""

Seed: TypeAlias = Any
"""One integer of a stateful function, two of a stateless one."""

Trackable: TypeAlias = Any
"""An object with state that a `Checkpoint` holds: a model, layer, optimizer, metric, variable or iterator."""

PathLike: TypeAlias = Any
"""A path: text, an `os.PathLike`, or a tensor of text."""

LearningRate: TypeAlias = Any
"""A number, a schedule of Keras, or a value that a model_fn computed."""

Initializer: TypeAlias = Any
"""An initializer of Keras, a function of shape and dtype, or a name."""

Argument: TypeAlias = Any
"""An argument that is passed on as it was given."""

Dataset: TypeAlias = Any
"""A dataset of `lockstep.data` or of this package, or an iterator of one."""

Text: TypeAlias = Any
"""Text as `str` or as `bytes`."""
