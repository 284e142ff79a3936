"""Specs: the structure, shapes and dtypes of elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax
import numpy as np

from lockstep._nest import canonical
from lockstep._types import ArrayLike, DType, Element, PyTree
from lockstep.data._composite import kind_of, kind_of_spec
from lockstep.data._structure import TEXT
from lockstep.errors import ArgumentError, InputError

Shape = tuple[int | None, ...]


@dataclass(frozen=True, init=False)
class TensorSpec:
    """The shape and dtype of one array of an element.

    Args:
        shape: Sizes, each `None` if it differs between elements; `None` as a whole if even their number does.
        dtype: Anything that numpy takes for one; text is `object` (or "string", `str`, `bytes`).
        name: A name for the array, which a program may read back.

    Source: tf.TensorSpec.
    """

    shape: Shape | None
    dtype: np.dtype[Any]
    name: str | None

    def __init__(self, shape: Any, dtype: DType = np.float32, name: str | None = None) -> None:
        object.__setattr__(
            # object.__setattr__, because the dataclass is frozen: plans share specs.
            self,
            "shape",
            # TensorFlow's shape of unknown rank is no None, but says so.
            None
            if shape is None or getattr(shape, "rank", 0) is None
            else tuple(s if s is None else int(s) for s in shape),
        )
        object.__setattr__(self, "dtype", as_dtype(dtype))
        object.__setattr__(self, "name", name)

    def is_compatible_with(self, value: ArrayLike) -> bool:
        """Returns whether an array (or `bytes`) has this shape and dtype."""
        spec, rule = spec_of_leaf(value), self.shape
        if not isinstance(spec, TensorSpec) or spec.dtype != self.dtype:
            return False
        if rule is None or spec.shape is None:
            return rule is None
        sizes = zip(spec.shape, rule, strict=False)
        return len(spec.shape) == len(rule) and all(r is None or r == size for size, r in sizes)

    def __repr__(self) -> str:
        kind = "string" if self.dtype == TEXT else self.dtype.name
        return f"TensorSpec(shape={self.shape}, dtype={kind})"


@dataclass(frozen=True)
class DatasetSpec:
    """The spec of a dataset inside of an element, as `window` makes it.

    Args:
        element_spec: That dataset's own.

    Source: tf.data.DatasetSpec.
    """

    element_spec: Any


def as_dtype(value: ArrayLike) -> np.dtype[Any]:
    """Returns a numpy dtype; every name of text is `object`."""
    # "string" is TensorFlow's name; numpy has no such dtype.
    if value in (str, bytes, "string"):
        return TEXT
    try:
        dtype = np.dtype(value)
    except TypeError:
        raise ArgumentError(
            f"A dtype must be one that numpy knows, or 'string'. Received: {value!r}. Example: np.float32"
        ) from None
    return TEXT if dtype.kind in "US" else dtype


def spec_of(element: Element) -> Any:
    """Returns the spec of a normalised element, exact in all sizes."""
    return jax.tree.map(spec_of_leaf, element)


def spec_of_leaf(value: ArrayLike) -> Any:
    """Returns the spec of one leaf."""
    if isinstance(value, (bytes, str)):
        return TensorSpec((), TEXT)
    if hasattr(value, "element_spec"):
        return DatasetSpec(value.element_spec)
    kind = kind_of(value)
    if kind is not None:
        return kind.spec_of(value)
    return TensorSpec(np.shape(value), value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype)


def add_batch_axis(spec: PyTree, size: int | None) -> Any:
    """Returns the spec of batches of such elements."""

    def add(leaf: Any) -> Any:
        kind = kind_of_spec(leaf)
        if kind is not None:
            return kind.batch_spec(leaf, size)
        return TensorSpec(None if leaf.shape is None else (size, *leaf.shape), leaf.dtype)

    return jax.tree.map(add, spec)


def remove_batch_axis(spec: PyTree) -> Any:
    """Returns the spec of the elements of such batches."""

    def remove(leaf: Any) -> Any:
        kind = kind_of_spec(leaf)
        return TensorSpec(leaf.shape and leaf.shape[1:], leaf.dtype) if kind is None else kind.row_spec(leaf)

    return jax.tree.map(remove, spec)


def generalize(one: PyTree, other: PyTree) -> Any:
    """Returns the narrowest spec that holds for both, or `None` if their structures or dtypes differ."""
    # Structures of dicts are equal whatever the order of keys, as in TensorFlow.
    if jax.tree.structure(one) != jax.tree.structure(other):
        return None
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    if any(type(a) is not type(b) or (isinstance(a, TensorSpec) and a.dtype != b.dtype) for a, b in pairs):
        return None
    wider = [_widen(a, b) for a, b in pairs]
    return None if any(spec is None for spec in wider) else jax.tree.structure(one).unflatten(wider)


def _widen(one: Any, other: Any) -> Any:
    if isinstance(one, TensorSpec):
        return _generalize_shape(one, other)
    kind = kind_of_spec(one)
    return one if kind is None else kind.widen(one, other)


def is_wider(one: TensorSpec, other: TensorSpec) -> bool:
    """Returns whether the shape of `one` holds for all arrays that that of `other` holds for."""
    if one.shape is None or other.shape is None:
        return one.shape is None
    return len(one.shape) == len(other.shape) and all(
        a is None or a == b for a, b in zip(one.shape, other.shape, strict=True)
    )


class IncompatibleElementsError(InputError, TypeError):
    """An attempt to join datasets whose elements differ in structure or dtype."""


def common_spec(specs: Sequence[Any], may_be_narrowed: bool) -> Any:
    """Returns the narrowest spec that holds for the elements of several datasets.

    If `may_be_narrowed`, dtypes of 64 bits and 32 are one, because a map function computed with JAX's.
    """
    result = specs[0]
    for spec in specs[1:]:
        wider = generalize(result, spec)
        # TensorFlow would find equal dtypes: its map functions keep 64 bits, JAX's do not.
        if wider is None and may_be_narrowed:
            wider = generalize(_as_jax(result), _as_jax(spec))
        if wider is None:
            raise IncompatibleElementsError(
                f"Incompatible dataset elements: {result} vs. {spec}. Elements of one dataset must have one structure "
                "and dtype; bring them into one form with map first."
            )
        result = wider
    return result


def _as_jax(spec: PyTree) -> Any:
    def narrow(leaf: ArrayLike) -> Any:
        if not isinstance(leaf, TensorSpec) or leaf.dtype == TEXT:
            return leaf
        return TensorSpec(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))

    return jax.tree.map(narrow, spec)


def _generalize_shape(one: TensorSpec, other: TensorSpec) -> TensorSpec:
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return TensorSpec(None, one.dtype)
    return TensorSpec([a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)], one.dtype)


def signature_of(types: PyTree, shapes: PyTree, signature: PyTree) -> Any:
    """Returns the signature that `output_types` and `output_shapes` stand for."""
    if types is None or signature is not None:
        raise ArgumentError(
            "from_generator takes output_types, and output_shapes with them, or output_signature. Received: both, or "
            "output_shapes alone. Give output_signature alone."
        )
    if shapes is None:
        return jax.tree.map(lambda t: TensorSpec(None, t), canonical(types))
    leaves, structure = jax.tree.flatten(canonical(types))
    # A shape is a list, and None an unknown one: neither is a container here.
    flat = jax.tree.leaves(canonical(shapes), is_leaf=lambda s: s is None or _is_shape(s))
    if len(flat) != len(leaves):
        raise ArgumentError(f"output_shapes must have a shape for each dtype of {types}. Received: {shapes}.")
    return structure.unflatten([TensorSpec(s, t) for s, t in zip(flat, leaves, strict=True)])


def _is_shape(value: PyTree) -> bool:
    if isinstance(value, (list, tuple)):
        sizes = cast("Sequence[Any]", value)
        return all(s is None or isinstance(s, int) for s in sizes)
    return hasattr(value, "as_list")


def as_signature(signature: PyTree) -> Any:
    """Specs of any library, as long as they have shape and dtype."""
    if signature is None:
        return None
    return jax.tree.map(lambda s: s if kind_of_spec(s) else TensorSpec(s.shape, s.dtype), canonical(signature))
