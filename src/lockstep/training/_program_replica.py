"""A user's step as one replica runs it, and what must be equal on all of them afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._engine.keras.batch_moments import moments_over_replicas
from lockstep._engine.step import backends, error_feedback, sequential_emulation
from lockstep._engine.step.protocol import Step
from lockstep._engine.step.replica_invariance import find_varying
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep.errors import ArgumentError
from lockstep.training._program_layout import Layout
from lockstep.training._program_step import UserStep, demand_same_record, of_arrays

if TYPE_CHECKING:
    from lockstep.distribute import Strategy


class ReplicaStep:
    """A user's step, written for one replica's share of a batch.

    Args:
        step: The step.
        strategy: Whose replicas.
        replicas: The same ones.
    """

    def __init__(self, step: UserStep, strategy: Strategy, replicas: Replicas) -> None:
        self._step = step
        self._strategy = strategy
        self._replicas = replicas

    def of_replica(self, layout: Layout) -> Step:
        """Returns the step for one replica: to be traced over `AXIS`."""
        inner = self._inner(layout)

        def step(arrays: Any, batch: Any) -> tuple[Any, Any]:
            logs, after = inner(arrays, batch)
            return jax.tree.map(partial(_shown, self._replicas.count), logs), after

        return step

    def of_whole(self, layout: Layout) -> Step:
        """Returns the step for a batch that the replicas cannot divide into equal shares."""

        def demand_equal(differs: Any, shapes: Any) -> None:
            _demand_means(differs[0], shapes[0])
            _demand_equal(layout, differs[1])

        return sequential_emulation.emulate_step(self.of_replica(layout), self._replicas, demand_equal)

    def examine(self, layout: Layout, arrays: Any, batch: Any) -> None:
        """Traces the step.

        Args:
            layout: Of the state.
            arrays: Shapes and types of its arrays.
            batch: Those of a batch of all replicas.

        Raises:
            ArgumentError: If the step is not pure, or what it returns differs between replicas.
        """
        share = jax.tree.map(partial(_share, self._replicas.count), batch)
        inner = self._inner(layout)

        def traced() -> Any:
            backends.begin_program()
            # A function of its own: jax keeps what it has traced.
            look = jax.make_jaxpr(lambda *given: _explored(inner, *given), axis_env=axes, return_shape=True)
            return look(arrays, share)

        axes = [(AXIS, self._replicas.count)]
        record, shapes = traced()
        demand_same_record(record, lambda: traced()[0])
        differs = [False] * len(arrays) + [bool(leaf.ndim) for leaf in jax.tree.leaves(share)]
        logs, after = jax.tree.unflatten(jax.tree.structure(shapes), find_varying(record, differs, AXIS))
        _demand_equal(layout, after)
        _demand_means(logs, shapes[0])

    def _inner(self, layout: Layout) -> Step:
        inner = of_arrays(self._step, layout)

        def step(arrays: Any, batch: Any) -> tuple[Any, Any]:
            from lockstep.distribute.internal import enter_replica

            with enter_replica(self._strategy), self._statistics():
                return inner(arrays, batch)

        return step

    @contextlib.contextmanager
    def _statistics(self) -> Generator[None]:
        """Keras' batch normalisation takes its moments over all replicas, unless the strategy says otherwise."""
        if self._replicas.batch_statistics == "replica":
            yield
            return
        with moments_over_replicas(AXIS):
            yield


def _explored(step: Step, arrays: Any, batch: Any) -> Any:
    with error_feedback.exploring():
        return step(arrays, batch)


def _share(count: int, leaf: Any) -> jax.ShapeDtypeStruct:
    """The first replica's share, which is never the smallest."""
    shape = (-(-leaf.shape[0] // count), *leaf.shape[1:]) if leaf.shape else ()
    return jax.ShapeDtypeStruct(shape, leaf.dtype)


def _shown(count: int, value: Any) -> Any:
    """What is logged: the mean over all replicas of a float, each counting as much as it has rows."""
    value = jnp.asarray(value)
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return value
    turn = sequential_emulation.current()
    weight = 1.0 if turn is None else turn.weight
    own = value if weight else jnp.zeros_like(value)  # The mean over no examples is not a number.
    return lax.psum(own * jnp.asarray(weight / count, value.dtype), AXIS)


def _demand_equal(layout: Layout, differs: list[bool]) -> None:
    for name, is_different in zip(layout.array_names, differs, strict=True):
        if is_different:
            raise ArgumentError(
                f"All replicas must come to the same state. Received: a step after which {name} may differ between "
                "them, because it is computed from a replica's shard of the batch, its size or its number. Average the "
                "gradients with lockstep.distribute.get_replica_context().average_gradients(gradients), and anything "
                'else with all_reduce("mean", value), before it goes into the state.'
            )


def _demand_means(differs: Any, shapes: Any) -> None:
    """Logs that are no floats have no mean."""
    found = zip(jax.tree_util.tree_flatten_with_path(differs)[0], jax.tree.leaves(shapes), strict=True)
    for (path, is_different), shape in found:
        if is_different and not jnp.issubdtype(shape.dtype, jnp.inexact):
            raise ArgumentError(
                "Logs that differ between replicas are averaged, which takes floats. Received: "
                f"{jax.tree_util.keystr(path)}, of type {shape.dtype}. Add it up first: "
                'lockstep.distribute.get_replica_context().all_reduce("sum", value).'
            )
