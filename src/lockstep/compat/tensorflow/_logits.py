"""The logits behind the results of softmax and sigmoid, which crossentropies of Keras look for."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from jax.core import Tracer

from lockstep._types import Tensor


class _Source(NamedTuple):
    """Remembers what a result of a softmax or a sigmoid was made of.

    Attributes:
        result: The result, which the record does not keep alive.
        logits: What went in.
        op: "Softmax" or "Sigmoid".
        by_activation: Whether a function of `keras.activations` made it, whose logits every crossentropy takes.
    """

    result: weakref.ref[Any]
    logits: Tensor
    op: str
    by_activation: bool


# By identity: arrays and tracers compare element by element, and tracers have no attributes.
_sources: dict[int, _Source] = {}


def remember(op: str, result: Tensor, logits: Tensor, by_activation: bool = False) -> None:
    """Remembers, as long as a result lives, which logits a softmax or a sigmoid had.

    Args:
        op: "Softmax" or "Sigmoid".
        result: What it gave.
        logits: What it was given.
        by_activation: Whether a function of `keras.activations` was called. Of other functions values in compiled code
            alone are remembered, as in TensorFlow's graphs.
    """
    if not by_activation and not isinstance(result, Tracer):
        return
    key = id(result)
    # The entry goes with the result, so that no other value of the same address is taken for it.
    reference = weakref.ref(result, lambda _: _sources.pop(key, None))
    _sources[key] = _Source(reference, logits, op, by_activation)


def find(output: Tensor, op: str) -> Tensor:
    """Returns the logits that Keras 2 would use in place of `output`, or None."""
    source = _sources.get(id(output))
    if source is None or source.result() is not output:
        return None
    return source.logits if source.by_activation or source.op == op else None
