"""Names for the types of values that Python's type system cannot describe, or that jax and keras ship no types for.

Each is `Any` to a type checker; to a reader it says what a parameter holds.
"""

from __future__ import annotations

from typing import Any, TypeAlias

PyTree: TypeAlias = Any
"""Dicts, lists and tuples, nested to any depth, with values at the leaves (jax's term)."""

PyTreeDef: TypeAlias = Any
"""The structure of a PyTree, without its leaves (`jax.tree_util.PyTreeDef`, which is no type to a type checker)."""

Array: TypeAlias = Any
"""An array of numpy or jax, or a tracer that stands for one."""

ArrayLike: TypeAlias = Any
"""Whatever numpy makes an array of: arrays, numbers, nested lists, Keras' variables."""

Batch: TypeAlias = Any
"""A PyTree of arrays whose first axis counts examples."""

State: TypeAlias = Any
"""A PyTree of arrays that a step takes and returns: weights, optimizer slots, metrics, random states."""

Element: TypeAlias = Any
"""One element of a dataset: a PyTree of arrays, or of what a source yields."""

Tracer: TypeAlias = Any
"""A value of jax inside of a function that is being traced."""

Jaxpr: TypeAlias = Any
"""A traced program of jax (`jax.core.Jaxpr` or `ClosedJaxpr`)."""

JaxprEquation: TypeAlias = Any
"""An equation of a jaxpr (`jax.core.JaxprEqn`)."""

JaxprAtom: TypeAlias = Any
"""A variable or a literal of a jaxpr (`jax.core.Var` or `jax.core.Literal`)."""

Aval: TypeAlias = Any
"""The shape and dtype of a traced value (`jax.core.ShapedArray`)."""

DType: TypeAlias = Any
"""A dtype of numpy, or its name."""

Model: TypeAlias = Any
"""A `keras.Model`, whose private methods are used too."""

Variable: TypeAlias = Any
"""A `keras.Variable`."""

Layer: TypeAlias = Any
"""A `keras.Layer`."""

Optimizer: TypeAlias = Any
"""A `keras.optimizers.Optimizer`, or what stands in for one."""

Metric: TypeAlias = Any
"""A `keras.metrics.Metric`."""

Callback: TypeAlias = Any
"""A `keras.callbacks.Callback`, or what has its methods."""

Tensor: TypeAlias = Any
"""In `compat` and in a model_fn: an array or tracer, or what TensorFlow converts to a tensor."""

SourcePosition: TypeAlias = Any
"""Where a source stands; only the source knows what it means, and makes JSON of it for a checkpoint."""

JSON: TypeAlias = Any
"""A value of `json.loads`."""
