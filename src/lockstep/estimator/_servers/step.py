"""Computes a ticket: the gradients of a model_fn's own step, and what it changes besides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.servers.traced_parts import Part, Traced
from lockstep._engine.step.compiler import Compiler
from lockstep._types import PyTree
from lockstep.errors import UnsupportedError
from lockstep.estimator._core import CompiledModelFn
from lockstep.estimator._model_fn.function import Data
from lockstep.estimator._servers.update import places_of, shapes_of


@dataclass(frozen=True)
class _Compiled:
    """The step for batches of one signature.

    Attributes:
        part: The program.
        draws: By how much it moves the states of random generators, by key.
        outputs: The structure of the outputs.
    """

    part: Part
    draws: Mapping[str, np.ndarray]
    outputs: Any


class TicketStep:
    """The training step of a model_fn up to its gradients, for one ticket.

    Args:
        compiled: The model_fn.
        held: The keys of the variables that servers hold and send.

    Attributes:
        entries: The variables of the model_fn.
    """

    def __init__(self, compiled: CompiledModelFn, held: Sequence[str]) -> None:
        self.entries = compiled.variables.entries
        self._parts = compiled.training_parts()
        self._compiler = Compiler(compiled.replicas)
        self._known = {*held, *(k for k, e in self.entries.items() if e.is_seed), "global_step"}
        self._by_signature: dict[Any, _Compiled] = {}

    def draws(self, data: Data) -> Mapping[str, np.ndarray]:
        """Returns by how much a step moves the states of random generators, by key."""
        return self._compiled(data).draws

    def outputs_of(self, data: Data, leaves: Sequence[Any]) -> PyTree:
        """Returns the outputs of a step from its leaves."""
        return jax.tree.unflatten(self._compiled(data).outputs, list(leaves))

    def __call__(self, data: Data, values: Mapping[str, Any]) -> dict[str, Any]:
        """Runs the step.

        Args:
            data: The batch.
            values: The variables that servers send, the random generators' states, and the global step, by key.

        Returns:
            Arrays of the host: "gradients" and "changes" by key, "hyper" in order, and the leaves of the "outputs".
        """
        part = self._compiled(data).part
        return jax.device_get(part({key: values.get(key, 0) for key in self.entries}, data))

    def _compiled(self, data: Data) -> _Compiled:
        leaves, structure = jax.tree.flatten(data)
        key = structure, tuple((np.shape(a), str(np.asarray(a).dtype)) for a in leaves)
        if key not in self._by_signature:
            self._by_signature[key] = self._compile(data)
        return self._by_signature[key]

    def _compile(self, data: Data) -> _Compiled:
        structures: list[Any] = []
        state = shapes_of(self.entries)

        def step(state: Any, data: Data) -> dict[str, Any]:
            outputs, traced = self._parts.gradients(state, data)
            places = places_of(self._parts, traced)
            leaves, structure = jax.tree.flatten(outputs)
            structures[:] = [structure]
            changed = {key: traced[place] for key, place in places.changed.items()}
            seeds = {key: value for key, value in changed.items() if self.entries[key].is_seed}
            return {
                "gradients": {key: traced[place] for key, place in places.gradients.items()},
                "changes": {key: value - state[key] for key, value in changed.items() if key not in seeds},
                "hyper": [traced[place] for place in places.hyper],
                "outputs": [jnp.asarray(leaf) for leaf in leaves],
                "seeds": seeds,
                "before": {key: state[key] for key in seeds},
            }

        traced = Traced.of(step, state, data)
        part = traced.part(lambda r: {k: v for k, v in r.items() if k not in ("seeds", "before")}, self._compiler)
        uses = part.uses()[0]
        if unknown := [key for key, is_used in uses.items() if is_used and key not in self._known]:
            raise UnsupportedError(
                "The optimizer's state is on the servers, where a step cannot read it. Received: a model_fn that reads "
                f"{unknown[0]!r}. Leave that out, or use MultiWorkerMirroredStrategy."
            )
        return _Compiled(part, self._measure_draws(traced, state, data), structures[0])

    def _measure_draws(self, traced: Traced, state: PyTree, data: Data) -> dict[str, np.ndarray]:
        """Returns by how much a step moves random generators, which it does alike each time."""
        part = traced.part(lambda r: {"seeds": r["seeds"], "before": r["before"]}, self._compiler)
        zeros = jax.tree.map(
            lambda a, is_used: np.zeros(np.shape(a), a.dtype) if is_used else a, (state, data), part.uses()
        )
        found = jax.device_get(part(*zeros))
        return {key: np.asarray(found["seeds"][key] - found["before"][key]) for key in found["seeds"]}
