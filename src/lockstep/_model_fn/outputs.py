"""What a step hands out besides the new state: the loss, named values, summaries, what hooks hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax

from lockstep._model_fn.function import Call
from lockstep._model_fn.records import SummaryOp
from lockstep._step.shares import Shares
from lockstep._step.tracing import is_traced

_DEPTH = 4
_SKIPPED = (str, bytes, int, float, bool, type(None), type)


@dataclass(frozen=True)
class Selection:
    """What to hand out.

    Attributes:
        names: Of recorded arrays; single numbers are always handed out.
        hooks: Returns the hooks in a spec.
    """

    names: frozenset[str]
    hooks: Callable[[Any], list[Any]]

    def of(self, call: Call) -> dict[str, Any]:
        """Returns it, of one call of the model_fn."""
        recorded, spec = call.scope.recorded, call.spec
        return {
            "loss": spec.loss,
            "values": {n: v for n, v in recorded.values.items() if n in self.names or getattr(v, "ndim", 1) == 0},
            "summaries": [s.value for s in recorded.summaries],
            "hooks": [held_by(hook) for hook in self.hooks(spec)],
        }


def combined(shares: Shares, outputs: list[dict[str, Any]], reduction: str | None) -> dict[str, Any]:
    """Combines the outputs of several shares."""
    columns, treedef = zip(*(jax.tree.flatten(o) for o in outputs), strict=True)
    found = jax.tree.unflatten(treedef[0], [shares.shown(column) for column in zip(*columns, strict=True)])
    return {**found, "loss": shares.of_loss(reduction).shown([o["loss"] for o in outputs])}


def held_by(holder: Any) -> dict[str, Any]:
    """Returns the traced values in an object, by where in it they are."""
    return dict(_walk(holder, "", _DEPTH, set()))


def static_summaries(summaries: list[SummaryOp]) -> list[SummaryOp]:
    """Returns summaries without their traced values."""
    return [SummaryOp(s.kind, s.tag, None, s.max_outputs) for s in summaries]


def _walk(value: Any, path: str, depth: int, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if is_traced(value):
        yield path, value
        return
    if depth < 0 or isinstance(value, _SKIPPED) or callable(value) or id(value) in seen:
        return
    seen.add(id(value))
    for name, part in _parts(value):
        yield from _walk(part, f"{path}.{name}", depth - 1, seen)


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(str(k), v) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return [(str(i), v) for i, v in enumerate(value)]
    return sorted(getattr(value, "__dict__", {}).items())


def texts_in(holder: Any) -> set[str]:
    """Returns all text in an object: among it are the names of the values that a hook will ask for."""
    return set(_texts(holder, _DEPTH, set()))


def _texts(value: Any, depth: int, seen: set[int]) -> Iterator[str]:
    if isinstance(value, str):
        yield value.removesuffix(":0")
        return
    if depth < 0 or isinstance(value, _SKIPPED) or id(value) in seen:
        return
    seen.add(id(value))
    for name, part in _parts(value):
        yield name
        yield from _texts(part, depth - 1, seen)
