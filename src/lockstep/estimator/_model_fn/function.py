"""A model_fn as a pure function of its variables and its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from lockstep._nest import opened
from lockstep._text import Text
from lockstep._types import Array, PyTree
from lockstep.estimator._model_fn.fresh import fresh_state
from lockstep.estimator._model_fn.scope import ModelScope
from lockstep.estimator._model_fn.variables import Variables, impurity_error


@dataclass(frozen=True)
class Data:
    """A batch in the form of a step program's input.

    Attributes:
        features: A PyTree of arrays; text is replaced by arrays of its shape.
        labels: A PyTree of arrays, or `None`.
        texts: Integers computed from text, in the order in which the model_fn asks for them.
    """

    features: Any
    labels: Any = None
    texts: tuple[Any, ...] = ()


jax.tree_util.register_dataclass(Data, ["features", "labels", "texts"], [])


@dataclass(frozen=True)
class ModelCall:
    """A traced call of a model_fn.

    Attributes:
        scope: The scope it ran in.
        spec: The EstimatorSpec it returned.
        assigned: The keys of the variables that it assigned itself; optimizers' updates come later.
    """

    scope: ModelScope
    spec: Any
    assigned: frozenset[str] = frozenset()


class ModelFunction:
    """Calls a model_fn as a pure function.

    Args:
        call: The model_fn as a function of features, labels and mode, which returns a checked EstimatorSpec.
        mode: "train", "eval" or "infer".
        variables: The registry of its variables.
        replicas: Number of replicas.
        text: The paths of the leaves of (features, labels) that are text.

    Attributes:
        first: The first call, whose values are dead tracers, but whose records are the reference for later calls.
        updated: The keys of the variables that updates change, besides trainable ones.
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
        self.first: ModelCall | None = None
        self.updated: frozenset[str] = frozenset()

    def __call__(
        self,
        values: Mapping[str, Any],
        data: Data,
        gradients: Sequence[Sequence[Any]] | None = None,
        stop_at: int | None = None,
    ) -> ModelCall:
        """Calls the model_fn; see `ModelScope` for the arguments."""
        scope = ModelScope(
            self.variables,
            self.mode,
            values,
            # The first call finds out which text the model_fn asks for; only then can the host compute it.
            texts=None if self.first is None else data.texts,
            gradients=gradients,
            stop_at=stop_at,
            replicas=self.replicas,
        )
        # The same names and the same random numbers in each call: only then are retraced calls the same function.
        with fresh_state(self.variables.random_state), scope:
            features, labels = self._with_text(scope, (data.features, data.labels))
            spec = self._call(opened(features), opened(labels), self.mode)
            return ModelCall(scope, spec, frozenset(scope.assigned))

    def resume(self, call: ModelCall, values: Mapping[str, Any], then: Callable[[], Any]) -> Any:
        """Runs `then` in the scope of an earlier call, with new values of the variables."""
        call.scope.replace_values(values)
        with fresh_state(self.variables.random_state), call.scope:
            return then()

    def finish(self, call: ModelCall) -> None:
        """Ends a call: the first one becomes the reference, later ones are compared with it.

        Raises:
            ArgumentError: If the model_fn is not pure.
        """
        self.variables.complete(call.scope.variables)
        if self.first is None:
            self.first = call
            return
        first, now = (_records_of(c) for c in (self.first, call))
        for kind, before in first.items():
            if now[kind] != before:
                raise impurity_error(f"its {kind} were {before} in the first call, now they are {now[kind]}")

    def _with_text(self, scope: ModelScope, tree: PyTree) -> Any:
        if not self._text:
            return tree

        def replace_text(path: tuple[Any, ...], leaf: Array) -> Any:
            name = jax.tree_util.keystr(path)
            return Text(scope, name, tuple(leaf.shape)) if name in self._text else leaf

        return jax.tree_util.tree_map_with_path(replace_text, tree)


def _records_of(call: ModelCall) -> dict[str, Any]:
    recorded = call.scope.recorded
    return {
        "gradients as values": [site.keys for site in recorded.sites],
        "uses of text": [need.leaf for need in recorded.needs],
        "summaries": [(s.kind, s.tag) for s in recorded.summaries],
        "metrics": sorted(call.spec.eval_metric_ops or {}),
    }
