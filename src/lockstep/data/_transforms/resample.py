"""`rejection_resample`: elements left out at random, so that classes come as often as they should."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from lockstep._types import ArrayLike, PyTree
from lockstep.data import _blocks, _check, _columns
from lockstep.data._blocks import Block, array_block
from lockstep.data._plan import CHUNK, UNKNOWN, Cursor, Node, Run, Transformation
from lockstep.data._sources import Arrays
from lockstep.data._transforms.batch import Batch, Unbatch
from lockstep.data._transforms.choose import Choose
from lockstep.data._transforms.errors import SequentialCompute, compute_block_or_elements
from lockstep.data._transforms.map import Map, Scan
from lockstep.data._transforms.position import Enumerate
from lockstep.data._transforms.sequence import Repeat, Zip
from lockstep.errors import ArgumentError, InputError

_PAIR = jax.tree.structure((0, 0))
# TensorFlow's estimate of a distribution that is not given: so many elements are counted at once, and each class counts
# as if it had been seen so many times before.
_ESTIMATED_AT_ONCE = 32
_SEEN_BEFORE = 10


def resample(
    plan: Node, class_func: Callable[..., Any], target: ArrayLike, initial: ArrayLike | None, seed: int | None
) -> Node:
    """Returns the plan of pairs of a class and an element, in which the classes are distributed as `target`.

    Args:
        plan: The elements.
        class_func: Returns the class of an element, from 0 on.
        target: float (classes,), which sums to 1.
        initial: The distribution of the elements, alike; `None` to estimate it from them as they are read.
        seed: Of the choices.
    """
    wanted = _distribution(target, "target_dist")
    classed = Map(plan, _with_class(class_func), None)
    if initial is None:
        shares: Node = Map(_estimate(classed, len(wanted)), _acceptance_of(wanted), None)
        return Choose([classed, _accept(classed, shares, seed), shares], None, seed, stop=True, weights_of=_weights)
    given = _distribution(initial, "initial_dist")
    if len(given) != len(wanted):
        raise ArgumentError(
            f"initial_dist and target_dist must have one probability for each class. Received: {len(given)} and "
            f"{len(wanted)}."
        )
    acceptance, original = _acceptance(given, target=wanted)
    # Nothing has to be left out, or everything is sampled anew.
    if original == 1:
        return classed
    shares = Repeat(Arrays(_columns.from_element((acceptance, original))), -1)
    filtered = _accept(classed, shares, seed)
    if original == 0:
        return filtered
    return Choose([classed, filtered], [float(original), 1 - float(original)], seed, stop=True)


def _weights(share: PyTree) -> np.ndarray[Any, Any]:
    """Returns the weights of the elements as they are, and of those that are accepted."""
    original = np.clip(np.asarray(share[1], np.float64), 0, 1)
    return np.array([original, 1 - original])


def _distribution(value: ArrayLike, name: str) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    return np.asarray(_check.weights(value, array.size if array.ndim == 1 else -1, name), np.float32)


def _with_class(class_func: Callable[..., Any]) -> Callable[..., Any]:
    # As wraps tells, the user's code decides whether it may be called for many elements at once.
    @functools.wraps(class_func)
    def call(*values: Any) -> Any:
        return class_func(*values), values[0] if len(values) == 1 else values

    return call


def _acceptance_of(target: np.ndarray[Any, Any]) -> Callable[[ArrayLike], Any]:
    return lambda initial: _acceptance(np.asarray(initial), target=target)


def _acceptance(initial: ArrayLike, *, target: np.ndarray[Any, Any]) -> Any:
    """Returns the probability to accept an element of each class, and the probability to take any element as it is."""
    ratio = target / (initial + np.finfo(np.float32).tiny)
    original = ratio.min()
    with np.errstate(invalid="ignore"):  # All classes as they should be: none is sampled.
        return (ratio - original) / (ratio.max() - original), original


def _estimate(classed: Node, classes: int) -> Node:
    """Returns the plan of the estimated distribution at each element, float32 (classes,)."""

    def count(seen: Any, found: Any) -> Any:
        seen = seen + np.bincount(np.asarray(found).ravel(), minlength=classes)[:classes]
        share = (seen / seen.sum()).astype(np.float32)
        return seen, np.tile(share, (_ESTIMATED_AT_ONCE, 1))

    batches = Batch(Map(classed, _first, None), _ESTIMATED_AT_ONCE, drop=False)
    return Unbatch(Scan(batches, np.full(classes, _SEEN_BEFORE, np.int64), count))


def _first(value: PyTree, _: PyTree) -> Any:
    return value


def _accept(classed: Node, shares: Node, seed: int | None) -> Node:
    # Numbered, so that each draw depends on the number of its element alone, and a position needs nothing else.
    return _Accept(Enumerate(Zip([shares, classed], _PAIR), 0), seed)


class _Accept(Transformation):
    """Pairs of a class and an element, accepted at random.

    The upstream has `(number, ((acceptance of each class, _), (class, element)))`.
    """

    def __init__(self, upstream: Node, seed: int | None) -> None:
        super().__init__(upstream)
        self._seed = seed

    def open(self, run: Run) -> Cursor:
        return _AcceptCursor(self.upstream.open(run), lambda chunk: run.random(self._seed, chunk))

    @property
    def spec(self) -> Any:
        return self.upstream.spec[1][1]

    @property
    def cardinality(self) -> int:
        return UNKNOWN

    @property
    def label(self) -> str:
        return f"Accept({self._seed})"


class _AcceptCursor:
    def __init__(self, upstream: Cursor, draws: Callable[[int], np.random.Generator]) -> None:
        self._draws = functools.lru_cache(2)(lambda chunk: draws(chunk).random(CHUNK))
        computed = SequentialCompute(upstream, lambda block: compute_block_or_elements(self._keep, block))
        self.next, self.state, self.restore = computed.next, computed.state, computed.restore

    def _keep(self, block: Block) -> Block | None:
        numbers, ((acceptance, _), pairs) = _blocks.compute_block(block).take()
        classes, count = np.asarray(pairs[0]), len(block)
        shares = np.stack(list(acceptance))
        if classes.shape != (count,) or classes.dtype.kind not in "iu" or not (classes < shares.shape[1]).all():
            raise InputError(
                f"class_func must return the class of an element, a whole number from 0 to {shares.shape[1] - 1}. "
                f"Received: {classes.tolist()} of {classes.dtype} for {count} elements."
            )
        draws = np.array([self._draws(int(n) // CHUNK)[int(n) % CHUNK] for n in numbers])
        kept = np.flatnonzero(draws < shares[np.arange(count), classes])
        return array_block(_columns.take(pairs, kept)) if len(kept) else None
