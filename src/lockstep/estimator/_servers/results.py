"""Traces the training step of a model_fn up to its gradients, and finds what of it waits for those of all shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from lockstep._engine.servers.traced_parts import Traced
from lockstep._engine.step.jaxprs import results_from
from lockstep.estimator._core import CompiledModelFn
from lockstep.estimator._model_fn.function import Batches, Data, ModelCall
from lockstep.estimator._model_fn.lookups import RecordedLookups
from lockstep.estimator._model_fn.records import group
from lockstep.estimator._model_fn.step_parts import KnownGradients, StepParts
from lockstep.estimator._model_fn.variables import Entry
from lockstep.estimator._model_fn.watching import watching
from lockstep.estimator._servers.update import places_of, shapes_of


def results_of(
    parts: StepParts,
    entries: Mapping[str, Entry],
    state: Any,
    data: Data | Batches,
    known: KnownGradients | None = None,
) -> tuple[dict[str, Any], Any]:
    """Traces a step.

    Args:
        parts: The step.
        entries: The variables of the model_fn.
        state: Their values, by key.
        data: The batch, or the shares that the step is of.
        known: Gradients that the model_fn asks for, and that need not be computed.

    Returns:
        What it computes, by kind, and the structure of the outputs, which are a list of their leaves.
    """
    outputs, traced = parts.gradients(state, data, known)
    places = places_of(parts, traced)
    leaves, structure = jax.tree.flatten(outputs)
    changed = {key: traced[place] for key, place in places.changed.items()}
    seeds = {key: value for key, value in changed.items() if entries[key].is_seed}
    results = {
        "gradients": {key: traced[place] for key, place in places.gradients.items()},
        "changes": {key: value - state[key] for key, value in changed.items() if key not in seeds},
        "hyper": [traced[place] for place in places.hyper],
        "outputs": [jnp.asarray(leaf) for leaf in leaves],
        "seeds": seeds,
        "before": {key: state[key] for key in seeds},
    }
    return results, structure


def keys_of_losses(call: ModelCall) -> frozenset[str]:
    """Returns the keys of the variables by which losses are minimized, in place of gradients being applied."""
    ops = group(call.spec.train_op)
    return frozenset(call.scope.key_of(variable) for op in ops if op.loss is not None for variable in op.variables)


@dataclass(frozen=True)
class Rest:
    """Lists what of a step waits for the gradients of all shares.

    Attributes:
        sites: Whose gradients shares push as the model_fn gets them: the keys of the variables, by the number of the
            site.
        outputs: The numbers of the outputs that depend on gradients.
        changes: The keys of the variables that the model_fn assigns and whose values do.
    """

    sites: Mapping[int, tuple[str, ...]]
    outputs: frozenset[int]
    changes: frozenset[str]

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the variables whose gradients shares push as the model_fn gets them."""
        return frozenset(key for keys in self.sites.values() for key in keys)


NOTHING = Rest({}, frozenset(), frozenset())


def rest_of(compiled: CompiledModelFn, data: Data) -> Rest:
    """Returns what waits for the gradients of all shares, of a step that asks for gradients.

    Args:
        compiled: The model_fn.
        data: A share, of which only shapes matter.
    """
    entries = compiled.variables.entries
    shapes = shapes_of(entries)
    sites = compiled.first_call.scope.recorded.sites
    gradients = [[shapes[key] for key in site.keys] for site in sites]

    def rest(gradients: list[list[Any]], state: Any, data: Data) -> dict[str, Any]:
        with watching(RecordedLookups()):
            results, _ = results_of(compiled.training_parts(), entries, state, data, dict(enumerate(gradients)))
        return {"changes": results["changes"], "outputs": results["outputs"]}

    traced = Traced.of(rest, gradients, shapes, data)
    late = _from_first(traced, gradients)
    numbers = jax.tree.unflatten(traced.results, list(range(traced.results.num_leaves)))
    return Rest(
        {site: keys for site, keys in _candidates(compiled.first_call).items() if _is_first(compiled, site, data)},
        frozenset(place for place, number in enumerate(numbers["outputs"]) if number in late),
        frozenset(key for key, number in numbers["changes"].items() if number in late),
    )


def _candidates(call: ModelCall) -> dict[int, tuple[str, ...]]:
    """Returns the sites whose gradients can be pushed as those of their variables: each variable has one."""
    trained = {call.scope.key_of(variable) for op in group(call.spec.train_op) for variable in op.variables}
    free = trained - keys_of_losses(call)
    found: dict[int, tuple[str, ...]] = {}
    for number, site in enumerate(call.scope.recorded.sites):
        if free.issuperset(site.keys):
            found[number] = site.keys
            free.difference_update(site.keys)
    return found


def _is_first(compiled: CompiledModelFn, site: int, data: Data) -> bool:
    """Returns whether the gradients at a site depend on those of no other one."""
    if site == 0:
        return True
    shapes = shapes_of(compiled.variables.entries)
    gradients = [[shapes[key] for key in each.keys] for each in compiled.first_call.scope.recorded.sites[:site]]

    def at_site(gradients: list[list[Any]], state: Any, data: Data) -> list[Any]:
        parts = compiled.training_parts()
        with watching(RecordedLookups()):
            parts.gradients(state, data, dict(enumerate(gradients)))
        assert parts.step is not None
        return parts.step.gradients_at_sites[site]

    return not _from_first(Traced.of(at_site, gradients, shapes, data), gradients)


def _from_first(traced: Traced, first: Any) -> frozenset[int]:
    """Returns the results that depend on the first argument of what was traced."""
    return results_from(traced.jaxpr, range(len(jax.tree.leaves(first))))
