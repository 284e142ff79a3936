"""Outputs of a step besides the new state: the loss, named values, summaries, traced values in hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax

from lockstep._engine.step.aggregation import Shards
from lockstep._engine.step.jaxprs import is_traced
from lockstep.estimator._model_fn.function import ModelCall
from lockstep.estimator._model_fn.records import SummaryOp

# Levels of attributes and containers to search for traced values.
_DEPTH = 4
_SKIPPED = (str, bytes, int, float, bool, type(None), type)


@dataclass(frozen=True)
class Selection:
    """Selection of a step's outputs.

    Attributes:
        names: Names of recorded arrays to return; scalars are always returned.
        hooks: Returns the hooks of a spec.
    """

    names: frozenset[str]
    hooks: Callable[[Any], list[Any]]

    def select(self, call: ModelCall) -> dict[str, Any]:
        """Returns the outputs of one call of the model_fn."""
        recorded, spec = call.scope.recorded, call.spec
        return {
            "loss": spec.loss,
            # Arrays only on request: returning one keeps XLA from fusing it away. Scalars cost nothing.
            "values": {n: v for n, v in recorded.values.items() if n in self.names or getattr(v, "ndim", 1) == 0},
            "summaries": [s.value for s in recorded.summaries],
            "hooks": [traced_values_in(hook) for hook in self.hooks(spec)],
        }


def combine_outputs(shares: Shards, outputs: list[dict[str, Any]], reduction: str | None) -> dict[str, Any]:
    """Combines the outputs of several shards."""
    columns, treedef = zip(*(jax.tree.flatten(o) for o in outputs), strict=True)
    whole = jax.tree.unflatten(treedef[0], [shares.shown(column) for column in zip(*columns, strict=True)])
    return {**whole, "loss": shares.of_loss(reduction).shown([o["loss"] for o in outputs])}


def traced_values_in(holder: object) -> dict[str, Any]:
    """Returns the traced values in an object's attributes, by path."""
    return dict(_walk(holder, "", _DEPTH, set()))


def static_summaries(summaries: list[SummaryOp]) -> list[SummaryOp]:
    """Returns summaries without their traced values."""
    return [SummaryOp(s.kind, s.tag, None, s.max_outputs) for s in summaries]


def _walk(value: object, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if is_traced(value):
        yield path, value
        return
    # `seen`: hooks may hold cycles, such as a reference to their estimator.
    if depth < 0 or isinstance(value, _SKIPPED) or callable(value) or id(value) in seen:
        return
    seen.add(id(value))
    for name, part in _parts(value):
        yield from _walk(part, f"{path}.{name}", depth - 1, seen)


def _parts(value: object) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(str(k), v) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return [(str(i), v) for i, v in enumerate(value)]
    return sorted(getattr(value, "__dict__", {}).items())


def texts_in(holder: object) -> set[str]:
    """Returns all strings in an object's attributes, among them the names of values that a hook fetches."""
    return set(_texts(holder, _DEPTH, set()))


def _texts(value: object, depth: int, seen: set[int]) -> Iterator[str]:
    if isinstance(value, str):
        yield value.removesuffix(":0")
        return
    if depth < 0 or isinstance(value, _SKIPPED) or id(value) in seen:
        return
    seen.add(id(value))
    for name, part in _parts(value):
        yield name
        yield from _texts(part, depth - 1, seen)
