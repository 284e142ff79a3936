"""Updates of a model_fn: groups of them, what they wait for, gradients."""

# ruff: noqa: D417

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep._nest import flatten
from lockstep._types import PyTree, Tensor
from lockstep.compat.tensorflow._missing import GRADIENT
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.named import model_fn_scope, replica_scope
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["GradientTape", "control_dependencies", "gradients", "group", "no_op"]

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
    return _derivatives("tf.gradients", ys, xs if isinstance(xs, (list, tuple)) else [xs])


def _derivatives(what: str, ys: Tensor, variables: Any) -> list[Any]:
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


class NotRecordedError(UnsupportedError):
    """Derivatives are taken in a function that nobody records."""


class GradientTape:
    """Takes derivatives of what is computed in it.

    In a function that `strategy.run` runs they are one replica's, by variables and by watched tensors, as in
    TensorFlow; by what the target does not depend on there is none. In a model_fn they are those of `tf.gradients`.

    Source: tf.GradientTape.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        """Opens a tape.

        Args:
            persistent: Either: derivatives may be taken any number of times.
            watch_accessed_variables: Whether all trainable variables are watched; in a model_fn they always are.

        Raises:
            UnsupportedError: Outside of a model_fn and of a function that `strategy.run` or `tf.function` compiles.
        """
        # A model_fn takes derivatives by its own scope, which watches all trainable variables.
        self._tape: Any = None
        if model_fn_scope() is None:
            scope = replica_scope()
            if scope is None:
                raise NotRecordedError(f"tf.GradientTape takes derivatives of what is compiled. {GRADIENT}")
            from lockstep.distribute.internal import Tape

            self._tape = Tape(scope, watch_accessed_variables)

    def __enter__(self) -> GradientTape:
        if self._tape is not None:
            self._tape.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        return None

    def watch(self, tensor: PyTree) -> None:
        """Watches tensors and variables, in any structure; in a model_fn variables only, which are watched anyway."""
        for leaf in jax.tree.leaves(tensor):
            if self._tape is not None:
                self._tape.watch(leaf)
            elif not isinstance(leaf, keras.Variable):
                raise UnsupportedError(
                    f"In a model_fn derivatives are taken by variables. Received: {leaf!r}. By other tensors, use "
                    "jax.grad."
                )

    def gradient(
        self, target: PyTree, sources: PyTree, output_gradients: PyTree = None, unconnected_gradients: str = "none"
    ) -> Any:
        """Returns the derivatives of the sum of `target` by the sources, in their structure.

        Args:
            target: A tensor of floats, or several.
            sources: Variables, or watched tensors.
            output_gradients: What each element of the target counts, in its structure; refused in a model_fn.
            unconnected_gradients: "none", or "zero" for zeros where there is no derivative.
        """
        leaves, structure = flatten(sources)
        if self._tape is not None:
            total = _sum_target(target, output_gradients)
            derivatives = self._tape.gradient(total, leaves)
            if str(unconnected_gradients) == "zero":
                derivatives = [
                    jnp.zeros(s.shape, s.dtype) if g is None else g for g, s in zip(derivatives, leaves, strict=True)
                ]
            return structure.unflatten(derivatives)
        if output_gradients is not None:
            raise ArgumentError("output_gradients must be None: multiply target instead. Received some.")
        return structure.unflatten(_derivatives("GradientTape.gradient", target, leaves))

    def __getattr__(self, name: str) -> Any:
        """Says what is there instead of what TensorFlow's tapes have."""
        if name in ("jacobian", "batch_jacobian", "reset", "stop_recording", "watched_variables"):
            raise AttributeError(f"GradientTape.{name} is not available. {_OF_TAPE[name]}")
        raise AttributeError(f"'GradientTape' object has no attribute {name!r}")


# A Jacobian needs the function; a tape has seen one result of it.
_JACOBIAN = "Write the function of the tensor and use jax.jacrev(function)(tensor), under jax.vmap for a batch."
_OF_TAPE = {
    "jacobian": _JACOBIAN,
    "batch_jacobian": _JACOBIAN,
    "reset": "Open another tape.",
    "stop_recording": "Use tf.stop_gradient.",
    "watched_variables": "Pass the variables that are trained, such as model.trainable_variables.",
}


def _sum_target(target: PyTree, weights: PyTree) -> Any:
    arrays = [dispatch.to_array(dispatch.DEVICE, y) for y in jax.tree.leaves(target)]
    if not all(jnp.issubdtype(array.dtype, jnp.inexact) for array in arrays):
        raise ArgumentError(f"A target of derivatives has floats. Received: {[str(a.dtype) for a in arrays]}.")
    if weights is not None:
        # Weights of the elements, before the sum.
        arrays = [a * w for a, w in zip(arrays, jax.tree.leaves(weights), strict=True)]
    return sum(array.sum() for array in arrays)
