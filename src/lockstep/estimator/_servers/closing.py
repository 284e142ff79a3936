"""Closes a round: what a model_fn makes of gradients, such as clips them, it makes of the mean of all shares'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from lockstep._engine.servers.traced_parts import Part, Traced
from lockstep._types import Array
from lockstep.estimator._core import CompiledModelFn
from lockstep.estimator._model_fn.function import Batches, Data
from lockstep.estimator._model_fn.lookups import Windows
from lockstep.estimator._model_fn.watching import watching
from lockstep.estimator._servers.results import Rest, keys_of_losses, results_of
from lockstep.estimator._servers.step import TicketStep, Windowed, signature_of
from lockstep.estimator._servers.update import shapes_of


class ClosingStep:
    """The rest of a training step of a model_fn, for all shares of a batch at once.

    Nearly all of the model falls away: gradients are known, and outputs have been computed by the shares, unless the
    model_fn makes them of gradients.

    Args:
        compiled: The model_fn.
        step: The step of a share.
    """

    def __init__(self, compiled: CompiledModelFn, step: TicketStep) -> None:
        self._compiled = compiled
        self._step = step
        self._of_losses = keys_of_losses(compiled.first_call)
        self._programs: dict[Any, Part] = {}

    def __call__(
        self,
        shares: Sequence[Data],
        weights: Sequence[float],
        values: Mapping[str, Any],
        needed: Windowed,
        gradients: Mapping[str, Array],
    ) -> dict[str, Any]:
        """Runs the rest of the step.

        Args:
            shares: The shares of the batch.
            weights: How much each counts.
            values: As for `TicketStep`; the random generators' states are those of the first share.
            needed: The rows in the windows.
            gradients: The sums of what the shares have pushed: of tables those of windows.

        Returns:
            Arrays of the host: "gradients" by key, of the variables whose gradients the model_fn applies itself;
            "changes" by key and "outputs" by number, those that depend on gradients; and "hyper" in order.
        """
        rest = self._step.rest(shares[0])
        known = {key: gradients[key] for key in rest.keys}
        part = self._program(shares, weights, needed, rest)
        positions = {key: list(each.positions) for key, each in needed.items()}
        state = {key: values.get(key, 0) for key in self._step.entries}
        return jax.device_get(part(state, Batches(tuple(shares)), positions, known))

    def _program(self, shares: Sequence[Data], weights: Sequence[float], needed: Windowed, rest: Rest) -> Part:
        """Returns the compiled rest for shares and windows of these sizes."""
        sizes = tuple(sorted((name, each.size) for name, each in needed.items()))
        key = *(signature_of(share) for share in shares), sizes
        if key not in self._programs:
            self._programs[key] = self._compile(Batches(tuple(shares)), weights, needed, rest)
        return self._programs[key]

    def _compile(self, batches: Batches, weights: Sequence[float], needed: Windowed, rest: Rest) -> Part:
        step, compiled = self._step, self._compiled
        sizes, entries = step.with_windows(needed)

        def run(state: Any, batches: Batches, positions: Mapping[str, Sequence[Any]], known: Any) -> dict[str, Any]:
            at_sites = {site: [known[key] for key in keys] for site, keys in rest.sites.items()}
            with watching(Windows(step.tables, sizes, positions, len(batches.parts))):
                results, _ = results_of(compiled.training_parts(weights), step.entries, state, batches, at_sites)
            return {
                "gradients": {k: v for k, v in results["gradients"].items() if k not in self._of_losses},
                "changes": {key: results["changes"][key] for key in rest.changes},
                "outputs": {number: results["outputs"][number] for number in rest.outputs},
                "hyper": results["hyper"],
            }

        positions = {name: list(each.positions) for name, each in needed.items()}
        shapes = shapes_of(entries)
        known = {key: shapes[key] for key in rest.keys}
        return step.part_of(Traced.of(run, shapes, batches, positions, known), lambda results: results)
