"""Updates of a model_fn: groups of them, what they wait for, gradients."""

# ruff: noqa: D417

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import Any

import jax
import keras

from lockstep._types import PyTree, Tensor
from lockstep.compat.tensorflow._missing import GRADIENT
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.named import model_fn_scope
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["control_dependencies", "gradients", "group", "no_op"]

# A model_fn and a replica's function may be traced on different threads.
_open = threading.local()


def group(*inputs: Tensor, name: str | None = None) -> Any:
    """Puts updates together, for `EstimatorSpec(train_op=...)`; what else it is given was done where it was written.

    Outside of a model_fn it returns `None`. Source: tf.group.
    """
    if model_fn_scope() is None:
        return None
    # Imported late: programs without an Estimator do not need it.
    from lockstep.estimator.internal import group as grouped

    return grouped(_pending_updates(), _find_updates(inputs))


def no_op(name: str | None = None) -> Any:
    """Returns an update that does nothing but what it waits for; as `group`. Source: tf.no_op."""
    return group()


@contextlib.contextmanager
def control_dependencies(control_inputs: PyTree) -> Generator[None]:
    """Opens a context that changes nothing: operations are carried out in the order of the program.

    In a model_fn, what `group` and `no_op` return in it has the updates in it that they wait for.

    Source: tf.control_dependencies.
    """
    # Contexts nest: an inner one has the outer one's updates, too.
    before = _pending_updates()
    _open.updates = [*before, *_find_updates(control_inputs)]
    try:
        yield
    finally:
        _open.updates = before


def _pending_updates() -> list[Any]:
    return getattr(_open, "updates", [])


def _find_updates(structure: PyTree) -> list[Any]:
    """Returns the updates in a structure, which holds tensors and variables besides."""
    from lockstep.estimator.internal import TrainOp

    if isinstance(structure, TrainOp):
        return [structure]
    if isinstance(structure, (list, tuple)):
        return [update for one in structure for update in _find_updates(one)]
    return []


def gradients(
    ys: Tensor,
    xs: Tensor,
    grad_ys: object = None,
    name: str = "gradients",
    gate_gradients: bool = False,
    aggregation_method: object = None,
    stop_gradients: object = None,
    unconnected_gradients: str = "none",
) -> list[Tensor]:
    """Returns the derivatives of the sum of `ys` by each variable in `xs`; only in a model_fn.

    They are averaged over the replicas. That of a variable that `ys` do not depend on is zero, not `None`.

    Args:
        ys: A tensor, or several.
        xs: A trainable variable, or several.
        grad_ys: Refused, and so are the others but `name`, unless they are left as they are.

    Raises:
        UnsupportedError: Outside of a model_fn, and for derivatives by other tensors.
        ArgumentError: An option is given that graphs have.

    Source: tf.gradients.
    """
    options = (grad_ys, gate_gradients or None, aggregation_method, stop_gradients)
    if any(option is not None for option in options):
        raise ArgumentError(
            "tf.gradients takes ys, xs, name and unconnected_gradients: multiply ys instead of grad_ys, use "
            f"tf.stop_gradient instead of stop_gradients. Received: {options!r}."
        )
    return derivatives_in_model_fn("tf.gradients", ys, xs if isinstance(xs, (list, tuple)) else [xs])


def derivatives_in_model_fn(what: str, ys: Tensor, variables: Any) -> list[Any]:
    """Returns the derivatives of the sum of tensors by variables, which a model_fn's scope takes."""
    scope = model_fn_scope()
    if scope is None:
        raise UnsupportedError(f"{what} can be used in a model_fn of an Estimator only. {GRADIENT}")
    # The derivatives are taken of the step as a function of its variables; other tensors are inside of it.
    others = [x for x in variables if not isinstance(x, keras.Variable)]
    if others:
        raise UnsupportedError(
            f"{what} takes derivatives by variables. Received: {others[0]!r}. By other tensors, write the function of "
            "them and use jax.grad."
        )
    arrays = [dispatch.to_array(dispatch.DEVICE, y) for y in jax.tree.leaves(ys)]
    # TensorFlow takes derivatives of the sum over all elements of all targets.
    return scope.gradients(sum(array.sum() for array in arrays), list(variables))
