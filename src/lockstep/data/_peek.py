"""Specs by inspection: the first elements of a plan are computed where nothing else shows their spec."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import Any

import jax
import numpy as np

from lockstep._types import PyTree
from lockstep.data import _columns, _spec
from lockstep.data._plan import Node, Run
from lockstep.errors import InputError

# Two elements: sizes in which they differ are not fixed.
_ELEMENTS = 2
# Any will do: it only decides which elements are looked at.
_RUN = Run(entropy=0)
_here = threading.local()


def peek_spec(node: Node, upstream: Node | None = None) -> Any:
    """Returns the spec of the first elements, computed for this purpose; raises `InputError` if there is none.

    `upstream` is of what they are made, one by one. Where sizes of that are not fixed, such as of a last batch, those
    of the results that are equal to them are not either, though the first elements agree in them.
    """
    if node.captures_iterator:
        raise InputError(
            "What the elements look like is known only from the first of them, and a function of this dataset advances "
            "an iterator: looking at an element would take one from the iterator. Take the first element with "
            "next(iter(dataset)), or zip the datasets instead."
        )
    elements = first_elements(node, _ELEMENTS)
    if not elements:
        raise InputError(
            "What the elements look like is known only from the first of them, and there is none. Check the source of "
            "the data."
        )
    result = _spec.spec_of(elements[0])
    for element in elements[1:]:
        result = _spec.generalize(result, _spec.spec_of(element)) or result
    open_sizes = _varying_sizes(upstream) if upstream is not None else set[int]()

    def relax(spec: Any) -> Any:
        # A last batch may be smaller than the batches that were computed, and a map function passes its size on.
        if not isinstance(spec, _spec.TensorSpec) or spec.shape is None:
            return spec
        return _spec.TensorSpec([None if size in open_sizes else size for size in spec.shape], spec.dtype)

    return jax.tree.map(relax, result) if open_sizes else result


def _varying_sizes(node: Node) -> set[int]:
    """Returns the sizes that the first element has where the spec leaves them open."""
    specs = jax.tree.leaves(spec_if_known(node))
    if not any(map(_has_unknown_size, specs)):
        return set()
    sizes: set[int] = set()
    for element in first_elements(node, 1):
        for spec, leaf in zip(specs, jax.tree.leaves(element), strict=True):
            if _has_unknown_size(spec):
                shape = np.shape(leaf)
                sizes |= {n for n, rule in zip(shape, spec.shape or [None] * len(shape), strict=True) if rule is None}
    return sizes


def _has_unknown_size(spec: PyTree) -> bool:
    return isinstance(spec, _spec.TensorSpec) and (spec.shape is None or None in spec.shape)


def spec_if_known(node: Node) -> Any:
    """Returns the spec, or `None` if looking for it has side effects or finds no element."""
    if not (node.replayable or node.has_signature):
        return spec_without_looking(node)
    try:
        return node.spec
    except InputError:
        return None


def example_of(node: Node) -> Any:
    """Returns the first element, or `None` if looking for it has side effects or finds none."""
    elements = first_elements(node, 1) if node.replayable else []
    return elements[0] if elements else None


class _WouldComputeError(Exception):
    """The error of a spec that only computing elements would show."""


def spec_without_looking(node: Node) -> Any:
    """Returns the spec, or `None` if only computing elements shows it."""
    # A flag of the thread, not an argument: `spec` is a property, and any node on the way may compute.
    before = getattr(_here, "may_compute", True)
    _here.may_compute = False
    try:
        return node.spec
    except (_WouldComputeError, InputError):
        return None
    finally:
        _here.may_compute = before


@contextlib.contextmanager
def declared_sizes() -> Generator[None]:
    """Has specs in this block leave the size of a batch open unless it drops a remainder, as TensorFlow's do.

    Elsewhere a size that the number of elements shows to be fixed is known, so that map functions are compiled.
    """
    with _sizes(is_declared=True):
        yield


@contextlib.contextmanager
def exact_sizes() -> Generator[None]:
    """Has specs in this block know every size that is fixed; for a spec that is kept, or that is compiled for."""
    with _sizes(is_declared=False):
        yield


@contextlib.contextmanager
def _sizes(is_declared: bool) -> Generator[None]:
    before = getattr(_here, "declared", False)
    _here.declared = is_declared
    try:
        yield
    finally:
        _here.declared = before


def is_declared() -> bool:
    """Returns whether a size is known only where the program has declared it."""
    return getattr(_here, "declared", False)


def open_declared(spec: PyTree, upstream: Node) -> Any:
    """Returns the spec of results for elements of `upstream`, with the sizes open that only counting shows."""
    declared = jax.tree.leaves(upstream.spec)
    with exact_sizes():
        exact = jax.tree.leaves(upstream.spec)
    sizes = {
        size
        for one, other in zip(declared, exact, strict=True)
        if isinstance(one, _spec.TensorSpec) and one.shape and other.shape
        for rule, size in zip(one.shape[:1], other.shape[:1], strict=True)
        if rule is None and size is not None
    }

    def relax(leaf: Any) -> Any:
        if not isinstance(leaf, _spec.TensorSpec) or not leaf.shape or leaf.shape[0] not in sizes:
            return leaf
        return _spec.TensorSpec((None, *leaf.shape[1:]), leaf.dtype)

    return jax.tree.map(relax, spec) if sizes else spec


def check_may_compute() -> None:
    """Ends a search for a spec that must not compute elements; called before one is computed to look at it."""
    if not getattr(_here, "may_compute", True):
        raise _WouldComputeError


def first_elements(node: Node, count: int) -> list[Any]:
    """Returns up to `count` elements, computed for this purpose."""
    check_may_compute()
    cursor = node.open(_RUN)
    elements: list[Any] = []
    try:
        while len(elements) < count and (block := cursor.next(count - len(elements))) is not None:
            elements += _columns.elements(block.take())
    finally:
        # A look must not leave files open: a dataset may read thousands.
        getattr(cursor, "close", lambda: None)()
    return elements
