"""tf.GradientTape: in plain Python, in compiled code, in a replica's function and in a model_fn."""

from __future__ import annotations

import contextlib
import enum
import logging
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any

import jax
import jax.numpy as jnp
import keras

from lockstep._nest import flatten
from lockstep._types import PyTree, Tensor, Variable
from lockstep.compat.tensorflow._ops import dispatch
from lockstep.compat.tensorflow._ops.named import model_fn_scope, replica_scope
from lockstep.compat.tensorflow._ops.training import derivatives_in_model_fn
from lockstep.compat.tensorflow._tape.entry import is_inexact
from lockstep.compat.tensorflow._tape.tape import EagerTape, is_array
from lockstep.errors import ArgumentError, UnsupportedError

__all__ = ["GradientTape", "UnconnectedGradients"]


class UnconnectedGradients(enum.Enum):
    """Chooses what stands for derivatives by what the target does not depend on. Source: tf.UnconnectedGradients."""

    NONE = "none"
    ZERO = "zero"


class GradientTape:
    """Takes derivatives of what is computed in it.

    In a function that `strategy.run` runs they are one replica's. In a model_fn they are those of `tf.gradients`.
    Elsewhere values are there at once, unless the code around is compiled.

    Source: tf.GradientTape.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        """Makes a tape.

        Args:
            persistent: Whether derivatives may be taken any number of times.
            watch_accessed_variables: Whether all trainable variables are watched; in a model_fn they always are.
        """
        # A model_fn takes derivatives by its own scope, which watches all trainable variables.
        self._is_of_model_fn = model_fn_scope() is not None
        self._of_replica: Any = None
        self._eager: Any = None
        if self._is_of_model_fn:
            return
        scope = replica_scope()
        # Of one replica there is nothing to add up: its derivatives are those of the code around.
        if scope is None or scope.is_alone:
            self._eager = EagerTape(persistent, watch_accessed_variables)
        else:
            from lockstep.distribute.internal import Tape

            self._of_replica = Tape(scope, watch_accessed_variables)

    def __enter__(self) -> GradientTape:
        if self._of_replica is not None:
            self._of_replica.begin()
        elif self._eager is not None:
            self._eager.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._eager is not None:
            self._eager.end()

    def watch(self, tensor: PyTree) -> None:
        """Watches tensors and variables, in any structure; in a model_fn variables only, which are watched anyway.

        Raises:
            ValueError: If something else is given.
        """
        for leaf in jax.tree.leaves(tensor):
            if not (is_array(leaf) or isinstance(leaf, keras.Variable)):
                raise ValueError(
                    f"A tape watches tensors and variables. Received: {leaf!r:.80}, a {type(leaf).__name__}."
                )
            if self._of_replica is not None:
                self._of_replica.watch(leaf)
            elif self._eager is not None:
                if not is_inexact(leaf) and not isinstance(leaf, keras.Variable):
                    logging.getLogger("lockstep").warning(
                        "A watched tensor must have floats, or there is no derivative by it. Received: %s.",
                        leaf.dtype,
                    )
                self._eager.watch(leaf)
            elif not isinstance(leaf, keras.Variable):
                raise UnsupportedError(
                    f"In a model_fn derivatives are taken by variables. Received: {leaf!r}. By other tensors, use "
                    "jax.grad."
                )

    def gradient(
        self,
        target: PyTree,
        sources: PyTree,
        output_gradients: PyTree = None,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
    ) -> Any:
        """Returns the derivatives of the sum of `target` by the sources, in their structure.

        Args:
            target: A tensor of floats, or several.
            sources: Variables, or watched tensors.
            output_gradients: What each element of the target counts, in its structure; refused in a model_fn.
            unconnected_gradients: "none", or "zero" for zeros where there is no derivative.

        Raises:
            RuntimeError: If derivatives were taken before, and the tape is not persistent.
        """
        fills = _fills_zeros(unconnected_gradients)
        leaves, structure = flatten(sources)
        if self._is_of_model_fn:
            if output_gradients is not None:
                raise ArgumentError("output_gradients must be None: multiply target instead. Received some.")
            return structure.unflatten(derivatives_in_model_fn("GradientTape.gradient", target, leaves))
        if self._eager is not None:
            targets = flatten(target)[0]
            weights = None if output_gradients is None else _flat_weights(output_gradients, len(targets))
            derivatives = self._eager.gradient(targets, leaves, weights)
        else:
            derivatives = self._of_replica.gradient(_sum_target(target, output_gradients), leaves)
        return structure.unflatten(_zeros_for_none(derivatives, leaves) if fills else derivatives)

    def jacobian(
        self,
        target: Tensor,
        sources: PyTree,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Returns the derivatives of each element of `target` by the sources, in their structure.

        Each has the shape of the target, followed by that of its source. All are computed together, whatever
        `parallel_iterations` and `experimental_use_pfor` say.
        """
        fills = _fills_zeros(unconnected_gradients)
        leaves, structure = flatten(sources)
        found = self._plain("jacobian").jacobian(target, leaves)
        if fills:
            shape = tuple(target.shape)
            found = [
                jnp.zeros((*shape, *s.shape), s.dtype) if f is None else f for f, s in zip(found, leaves, strict=True)
            ]
        return structure.unflatten(found)

    def batch_jacobian(
        self,
        target: Tensor,
        source: Tensor,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None,
        experimental_use_pfor: bool = True,
    ) -> Any:
        """Returns the derivatives of each element of `target` by the elements of the same example of `source`.

        Its shape is that of the target, followed by that of the source without the first dimension.

        Raises:
            ValueError: If target and source have no first dimension, or not the same.
        """
        fills = _fills_zeros(unconnected_gradients)
        shapes = tuple(target.shape), tuple(source.shape)
        if not shapes[0] or not shapes[1] or shapes[0][0] != shapes[1][0]:
            raise ValueError(
                f"Need first dimension of target shape ({shapes[0]}) and source shape ({shapes[1]}) to match."
            )
        found = self._plain("batch_jacobian").batch_jacobian(target, source)
        if found is None and fills:
            return jnp.zeros((*shapes[0], *shapes[1][1:]), source.dtype)
        return found

    def watched_variables(self) -> tuple[Variable, ...]:
        """Returns the variables that are watched, in the order in which they were read."""
        return self._plain("watched_variables").watched_variables()

    def reset(self) -> None:
        """Forgets what was recorded and watched, and goes on."""
        self._plain("reset").reset()

    @contextlib.contextmanager
    def stop_recording(self) -> Generator[None]:
        """Opens a context in which nothing is recorded."""
        with self._plain("stop_recording").stop_recording():
            yield

    def _plain(self, what: str) -> EagerTape:
        if self._eager is None:
            where = "In a model_fn" if self._is_of_model_fn else "In a function of strategy.run"
            raise UnsupportedError(
                f"{where} a tape takes derivatives by gradient() alone. Received: GradientTape.{what}. {_INSTEAD[what]}"
            )
        return self._eager


_JACOBIAN = "Write the function of the tensor and use jax.jacrev(function)(tensor), under jax.vmap for a batch."
_INSTEAD = {
    "jacobian": _JACOBIAN,
    "batch_jacobian": _JACOBIAN,
    "reset": "Open another tape.",
    "stop_recording": "Use tf.stop_gradient.",
    "watched_variables": "Pass the variables that are trained, such as model.trainable_variables.",
}


def _fills_zeros(value: UnconnectedGradients | str) -> bool:
    try:
        return UnconnectedGradients(value) is UnconnectedGradients.ZERO
    except ValueError:
        raise ValueError(f"Unknown value for unconnected_gradients: {value!r}. It is 'none' or 'zero'.") from None


def _zeros_for_none(derivatives: Sequence[Any], sources: Sequence[Any]) -> list[Any]:
    return [jnp.zeros(tuple(s.shape), s.dtype) if g is None else g for g, s in zip(derivatives, sources, strict=True)]


def _flat_weights(weights: PyTree, count: int) -> list[Any]:
    found = [weights] if count == 1 and not isinstance(weights, (list, tuple, dict)) else list(_leaves(weights))
    if len(found) != count:
        raise ValueError(f"output_gradients has one for each target: {count}. Received: {len(found)}.")
    return found


def _leaves(structure: PyTree) -> list[Any]:
    # None stands for ones.
    return jax.tree.leaves(structure, is_leaf=lambda leaf: leaf is None)


def _sum_target(target: PyTree, weights: PyTree) -> Any:
    arrays = [dispatch.to_array(dispatch.DEVICE, y) for y in jax.tree.leaves(target)]
    if not all(jnp.issubdtype(array.dtype, jnp.inexact) for array in arrays):
        raise ArgumentError(f"A target of derivatives has floats. Received: {[str(a.dtype) for a in arrays]}.")
    if weights is not None:
        # Weights of the elements, before the sum.
        arrays = [a * w for a, w in zip(arrays, jax.tree.leaves(weights), strict=True)]
    return sum(array.sum() for array in arrays)
