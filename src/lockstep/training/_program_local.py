"""A user's step that each replica makes by itself, for rounds of local steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._engine.step.local_sgd import COMMON, OWN, PARAMETER, LocalTraining, Role
from lockstep._engine.step.replica_invariance import find_varying
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.training._program_layout import Layout
from lockstep.training._program_step import UserStep, of_arrays


class OwnStep:
    """A user's step, written for one device: each replica makes it on its share of a batch.

    Args:
        step: The step.
        replicas: Who makes it.
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

    def local(self, layout: Layout, arrays: Sequence[Any], batch: Any) -> LocalTraining:
        """Returns how a step program trains so.

        Args:
            layout: Of the state.
            arrays: Shapes and types of its arrays.
            batch: Those of a batch of all replicas.

        Raises:
            ArgumentError: If no array of the state is combined.
        """
        assert self._replicas.local_sgd is not None
        inner = of_arrays(self._step, layout)
        roles = self._roles(layout, arrays, batch)
        return LocalTraining(self._replicas.local_sgd, inner, lambda state: roles)

    def _roles(self, layout: Layout, arrays: Sequence[Any], batch: Any) -> list[Role]:
        """What stays the same on all replicas, each computes alike; the rest is each one's own."""
        names = layout.names_in(self._parameters)
        pairs = zip(layout.array_names, arrays, strict=True)
        chosen = [name in names and jnp.issubdtype(a.dtype, jnp.inexact) for name, a in pairs]
        if not any(chosen):
            raise ArgumentError(
                "parameters returns the part of the state that is combined at the end of a round: arrays of floats. "
                f"Received: a function that returns {sorted(names)[:5]} of {layout.names[:10]}. Example: "
                'lambda state: state["params"]'
            )
        differs = self._differing(of_arrays(self._step, layout), arrays, batch, chosen)
        return [PARAMETER if c else OWN if d else COMMON for c, d in zip(chosen, differs, strict=True)]

    def _differing(self, step: Any, arrays: Sequence[Any], batch: Any, chosen: Sequence[bool]) -> list[bool]:
        """Which arrays may differ between replicas, after any number of steps, when the chosen ones do."""
        count = self._replicas.count
        share = jax.tree.map(lambda a: jax.ShapeDtypeStruct(_part(a.shape, count), a.dtype), batch)
        record = jax.make_jaxpr(lambda *given: step(*given)[1], axis_env=[(AXIS, count)])(list(arrays), share)
        inputs = [bool(leaf.ndim) for leaf in jax.tree.leaves(share)]
        differs = list(chosen)
        while True:
            after = find_varying(record, [*differs, *inputs], AXIS)
            found = [a or b for a, b in zip(differs, after, strict=True)]
            if found == differs:
                return found
            differs = found


def _part(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    return (-(-shape[0] // count), *shape[1:]) if shape else ()


def demand_fit(replicas: Replicas) -> None:
    """Raises `UnsupportedError` for a single step of replicas that train by themselves in between."""
    if replicas.local_sgd is not None:
        raise UnsupportedError(
            "With local_steps replicas train by themselves until a round or the training ends. Received: a call of one "
            "step. Use Program.fit, which knows when training ends, or a strategy without local_steps."
        )
