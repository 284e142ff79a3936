"""A model_fn with everything fixed but its variables and its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from lockstep._model_fn.fresh import fresh_state
from lockstep._model_fn.scope import ModelScope
from lockstep._model_fn.text import Text
from lockstep._model_fn.variables import Variables, impure
from lockstep._nest import opened


@dataclass(frozen=True)
class Data:
    """A batch as a step program takes it.

    Attributes:
        features: Any structure of arrays; in place of text, arrays of its shape.
        labels: The same, or `None`.
        texts: Integers that stand for text, as the model_fn has asked for them.
    """

    features: Any
    labels: Any = None
    texts: tuple[Any, ...] = ()


jax.tree_util.register_dataclass(Data, ["features", "labels", "texts"], [])


@dataclass(frozen=True)
class Call:
    """What a call of a model_fn came to.

    Attributes:
        scope: Where it ran.
        spec: What it returned.
        assigned: The keys of the variables that it has set itself: updates by optimizers come after it.
    """

    scope: ModelScope
    spec: Any
    assigned: frozenset[str] = frozenset()


class ModelFunction:
    """Calls a model_fn as a pure function.

    Args:
        call: The model_fn as a function of features, labels and mode, which returns a checked EstimatorSpec.
        mode: "train", "eval" or "infer".
        variables: What is known of its variables.
        replicas: Over how many replicas it runs.
        text: The paths of the leaves of (features, labels) that are text.

    Attributes:
        first: The first call; what it holds of values is dead, but what it said of them is not.
        updated: The keys of the variables that updates change, besides those that are trained.
    """

    def __init__(
        self,
        call: Callable[[Any, Any, str], Any],
        mode: str,
        variables: Variables,
        replicas: int,
        text: frozenset[str],
    ) -> None:
        self._call = call
        self.mode = mode
        self.variables = variables
        self.replicas = replicas
        self._text = text
        self.first: Call | None = None
        self.updated: frozenset[str] = frozenset()

    def __call__(
        self,
        values: Mapping[str, Any],
        data: Data,
        gradients: Sequence[Sequence[Any]] | None = None,
        stop_at: int | None = None,
    ) -> Call:
        """Calls it; see `ModelScope` for the arguments."""
        scope = ModelScope(
            self.variables,
            self.mode,
            values,
            texts=None if self.first is None else data.texts,
            gradients=gradients,
            stop_at=stop_at,
            replicas=self.replicas,
        )
        with fresh_state(self.variables.random_state), scope:
            features, labels = self._with_text(scope, (data.features, data.labels))
            spec = self._call(opened(features), opened(labels), self.mode)
            return Call(scope, spec, frozenset(scope.assigned))

    def resumed(self, call: Call, values: Mapping[str, Any], then: Callable[[], Any]) -> Any:
        """Runs `then` in the scope of a call that has ended, with new values of the variables."""
        call.scope.replace_values(values)
        with fresh_state(self.variables.random_state), call.scope:
            return then()

    def ended(self, call: Call) -> None:
        """Takes note of a call that has come to its end: of the first, what it said; of others, whether it is the same.

        Raises:
            ArgumentError: If the model_fn is not pure.
        """
        self.variables.complete(call.scope.variables)
        if self.first is None:
            self.first = call
            return
        first, now = (_said(c) for c in (self.first, call))
        for what, before in first.items():
            if now[what] != before:
                raise impure(f"its {what} were {before} in the first call, now they are {now[what]}")

    def _with_text(self, scope: ModelScope, tree: Any) -> Any:
        if not self._text:
            return tree

        def seen(path: Any, leaf: Any) -> Any:
            name = jax.tree_util.keystr(path)
            return Text(scope, name, tuple(leaf.shape)) if name in self._text else leaf

        return jax.tree_util.tree_map_with_path(seen, tree)


def _said(call: Call) -> dict[str, Any]:
    recorded = call.scope.recorded
    return {
        "gradients as values": [site.keys for site in recorded.sites],
        "uses of text": [need.leaf for need in recorded.needs],
        "summaries": [(s.kind, s.tag) for s in recorded.summaries],
        "metrics": sorted(call.spec.eval_metric_ops or {}),
    }
