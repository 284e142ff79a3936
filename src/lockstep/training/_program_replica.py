"""A user's step as one replica makes it: in the replica view, and in rounds of local SGD."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import lax

from lockstep._engine.keras.replica_step import moments_over_replicas
from lockstep._engine.step import backends, error_feedback, sequential_emulation
from lockstep._engine.step.local_sgd import COMMON, OWN, PARAMETER, LocalTraining
from lockstep._engine.step.protocol import Step
from lockstep._engine.step.replica_invariance import find_varying
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._types import ArrayLike, Batch, PyTree, State
from lockstep.errors import ArgumentError
from lockstep.training._program_layout import Layout
from lockstep.training._program_step import UserStep, check_same_trace, of_arrays

if TYPE_CHECKING:
    from lockstep.distribute import Strategy


class ReplicaStep:
    """A user's step, written for one replica's shard of a batch."""

    def __init__(self, step: UserStep, strategy: Strategy, replicas: Replicas) -> None:
        self._step = step
        self._strategy = strategy
        self._replicas = replicas

    def of_replica(self, layout: Layout) -> Step:
        """Returns the step for one replica, to be traced over `AXIS`."""
        inner = self._inner(layout)

        def step(arrays: State, batch: Batch) -> tuple[Any, Any]:
            logs, after = inner(arrays, batch)
            return jax.tree.map(partial(_mean, self._replicas.count), logs), after

        return step

    def of_whole(self, layout: Layout) -> Step:
        """Returns the step for a batch that the replicas cannot divide into equal shards."""

        def check(differs: Any, shapes: PyTree) -> None:
            _check_means(differs[0], shapes[0])
            _check_equal(layout, differs[1])

        return sequential_emulation.emulate_step(self.of_replica(layout), self._replicas, check)

    def examine(self, layout: Layout, arrays: State, batch: Batch) -> None:
        """Traces the step.

        Args:
            layout: The layout of the state.
            arrays: Shapes and dtypes of its arrays.
            batch: Those of a batch of all replicas.

        Raises:
            ArgumentError: If the step is not pure, or what it returns differs between replicas.
        """
        shard = jax.tree.map(partial(_largest_shard, self._replicas.count), batch)
        inner = self._inner(layout)
        axes = [(AXIS, self._replicas.count)]

        def trace() -> Any:
            backends.begin_program()

            # A function of its own each time: jax keeps traces by function.
            def explored(*args: Any) -> Any:
                with error_feedback.exploring():
                    return inner(*args)

            return jax.make_jaxpr(explored, axis_env=axes, return_shape=True)(arrays, shard)

        jaxpr, shapes = trace()
        check_same_trace(jaxpr, lambda: trace()[0])
        # The state is the same on all replicas, and a batch's arrays with rows are not.
        differs = [False] * len(arrays) + [bool(leaf.ndim) for leaf in jax.tree.leaves(shard)]
        logs, after = jax.tree.unflatten(jax.tree.structure(shapes), find_varying(jaxpr, differs, AXIS))
        # The state first: logs may differ, if they have a mean, and differ as a consequence where an average was
        # forgotten.
        _check_equal(layout, after)
        _check_means(logs, shapes[0])

    def _inner(self, layout: Layout) -> Step:
        inner = of_arrays(self._step, layout)
        # Batch normalization takes its moments over all replicas, unless the strategy says otherwise.
        is_own = self._replicas.batch_statistics == "replica"

        def step(arrays: State, batch: Batch) -> tuple[Any, Any]:
            from lockstep.distribute.internal import enter_replica

            with enter_replica(self._strategy), contextlib.nullcontext() if is_own else moments_over_replicas(AXIS):
                return inner(arrays, batch)

        return step


def _largest_shard(count: int, leaf: ArrayLike) -> jax.ShapeDtypeStruct:
    """Returns the shape of the first replica's shard, which is never the smallest."""
    shape = (-(-leaf.shape[0] // count), *leaf.shape[1:]) if leaf.shape else ()
    return jax.ShapeDtypeStruct(shape, leaf.dtype)


def _mean(count: int, value: ArrayLike) -> Any:
    """Returns the mean of a logged float over all replicas, each weighted by its rows."""
    value = jnp.asarray(value)
    if not jnp.issubdtype(value.dtype, jnp.inexact):
        return value
    # Replicas that run one after the other have shards of different sizes.
    turn = sequential_emulation.current()
    weight = 1.0 if turn is None else turn.weight
    own = value if weight else jnp.zeros_like(value)  # The mean over no examples is not a number.
    # The weights of all replicas add up to `count`: this is the mean over rows, not over replicas.
    return lax.psum(own * jnp.asarray(weight / count, value.dtype), AXIS)


def _check_equal(layout: Layout, differs: list[bool]) -> None:
    for name, is_different in zip(layout.array_names, differs, strict=True):
        if is_different:
            raise ArgumentError(
                f"All replicas must come to the same state. Received: a step after which {name} may differ between "
                "them, because it is computed from a replica's shard of the batch, its size or its number. Average the "
                "gradients with lockstep.distribute.get_replica_context().average_gradients(gradients), and anything "
                'else with all_reduce("mean", value), before it goes into the state.'
            )


def _check_means(differs: Any, shapes: PyTree) -> None:
    """Raises `ArgumentError` for logs that differ and have no mean, because they are no floats."""
    logs = zip(jax.tree_util.tree_flatten_with_path(differs)[0], jax.tree.leaves(shapes), strict=True)
    for (path, is_different), shape in logs:
        if is_different and not jnp.issubdtype(shape.dtype, jnp.inexact):
            raise ArgumentError(
                "Logs that differ between replicas are averaged, which takes floats. Received: "
                f"{jax.tree_util.keystr(path)}, of type {shape.dtype}. Add it up first: "
                'lockstep.distribute.get_replica_context().all_reduce("sum", value).'
            )


# ---- LocalTraining SGD ----


class LocalStep:
    """A user's step, written for one device: each replica makes it on its shard of a batch.

    Args:
        step: The step.
        replicas: The replicas.
        parameters: Returns the part of a state that is combined at the end of a round.

    Raises:
        ArgumentError: If there is no `parameters`.
    """

    def __init__(self, step: UserStep, replicas: Replicas, parameters: Callable[[Any], Any] | None) -> None:
        if parameters is None:
            raise ArgumentError(
                "With local_steps Program has to know which part of the state is combined at the end of a round. "
                'Received: no parameters. Example: Program(step, strategy, parameters=lambda state: state["params"])'
            )
        self._step = step
        self._replicas = replicas
        self._parameters = parameters

    def local(self, layout: Layout, arrays: Sequence[Any], batch: Batch) -> LocalTraining:
        """Returns how a step program trains in rounds.

        Args:
            layout: The layout of the state.
            arrays: Shapes and dtypes of its arrays.
            batch: Those of a batch of all replicas.

        Raises:
            ArgumentError: If no array of the state is combined.
        """
        assert self._replicas.local_sgd is not None
        inner = of_arrays(self._step, layout)
        names = layout.names_in(self._parameters)
        pairs = zip(layout.array_names, arrays, strict=True)
        # A count of steps among the parameters has no mean; the trace decides whether it is common or each replica's
        # own.
        combined = [name in names and jnp.issubdtype(a.dtype, jnp.inexact) for name, a in pairs]
        if not any(combined):
            raise ArgumentError(
                "parameters returns the part of the state that is combined at the end of a round: arrays of floats. "
                f"Received: a function that returns {sorted(names)[:5]} of {layout.names[:10]}. Example: "
                'lambda state: state["params"]'
            )
        # What stays the same on all replicas, each computes alike; the rest is each one's own.
        differs = self._find_differing(inner, arrays, batch, combined)
        roles = [PARAMETER if c else OWN if d else COMMON for c, d in zip(combined, differs, strict=True)]
        return LocalTraining(self._replicas.local_sgd, inner, lambda state: roles)

    def _find_differing(self, step: Any, arrays: Sequence[Any], batch: Batch, combined: Sequence[bool]) -> list[bool]:
        """Returns which arrays may differ between replicas after any number of steps, if the combined ones do."""
        count = self._replicas.count
        shard = jax.tree.map(partial(_largest_shard, count), batch)
        jaxpr = jax.make_jaxpr(lambda *args: step(*args)[1], axis_env=[(AXIS, count)])(list(arrays), shard)
        inputs = [bool(leaf.ndim) for leaf in jax.tree.leaves(shard)]
        # To a fixed point: an array that differs after one step makes others differ after the next.
        differs = list(combined)
        while True:
            after = find_varying(jaxpr, [*differs, *inputs], AXIS)
            both = [a or b for a, b in zip(differs, after, strict=True)]
            if both == differs:
                return both
            differs = both
