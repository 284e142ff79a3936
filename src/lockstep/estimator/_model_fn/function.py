"""A model_fn as a pure function of its variables and its data, and what a call returns besides them."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from keras.src.backend.common import global_state

from lockstep._engine.runtime import randomness
from lockstep._engine.step.aggregation import Shards
from lockstep._engine.step.jaxprs import is_traced
from lockstep._nest import unpack
from lockstep._text import Text
from lockstep._types import Array
from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.estimator._model_fn.scope import ModelScope
from lockstep.estimator._model_fn.variables import Variables, impurity_error

# Keras' global state that must not leak into or out of a call: counters of automatic names, the generator of
# `seed=None`, variables that wait for their first value, and open name scopes. Counters matter most: with them, a
# second trace would name its layers dense_1 instead of dense, and its variables would not be those of the first.
_FRESH: dict[str, Callable[[], Any]] = {
    "object_name_uids": lambda: defaultdict(int),
    "global_seed_generator": lambda: None,
    "uninitialized_variables": list,
    "name_scope_stack": lambda: None,
}
# Levels of attributes and containers to search for traced values.
_DEPTH = 4
_SKIPPED = (str, bytes, int, float, bool, type(None), type)


@dataclass(frozen=True)
class Data:
    """A batch in the form of a step program's input.

    Attributes:
        features: A PyTree of arrays; text is replaced by arrays of its shape.
        labels: A PyTree of arrays, or `None`.
        texts: Integers computed from text, in the order in which the model_fn asks for them.
        rows: An array that stands for the batch if there is no other.
    """

    features: Any
    labels: Any = None
    # Beside the features, not in them: one text may be asked for several times, with different functions.
    texts: tuple[Any, ...] = ()
    rows: Any = None


jax.tree_util.register_dataclass(Data, ["features", "labels", "texts", "rows"], [])


@dataclass(frozen=True)
class Batches:
    """Batches whose gradients make one update (SyncReplicasOptimizer); of any sizes."""

    parts: tuple[Data, ...]


jax.tree_util.register_dataclass(Batches, ["parts"], [])


def parts_of(batch: Data | Batches) -> tuple[Data, ...]:
    """Returns the batches that a step's gradients are averaged over."""
    return batch.parts if isinstance(batch, Batches) else (batch,)


@dataclass(frozen=True)
class ModelCall:
    """A traced call of a model_fn: the scope it ran in, and the EstimatorSpec it returned.

    Attributes:
        assigned: The keys of the variables that it assigned itself; optimizers' updates come later.
    """

    scope: ModelScope
    spec: Any
    assigned: frozenset[str] = frozenset()


class ModelFunction:
    """Calls a model_fn as a pure function; `text` has the paths of the leaves of (features, labels) that are text.

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
        is_read_only: bool = False,
    ) -> ModelCall:
        """Calls the model_fn; see `ModelScope` for the arguments."""
        scope = ModelScope(
            self.variables,
            self.mode,
            values,
            texts=self._texts_of(data),
            gradients=gradients,
            stop_at=stop_at,
            replicas=self.replicas,
            is_read_only=is_read_only,
        )
        # The same names and the same random numbers in each call: only then are retraced calls the same function.
        with _fresh_state(self.variables.random_state), scope:

            def replace_text(path: tuple[Any, ...], leaf: Array) -> Any:
                name = jax.tree_util.keystr(path)
                return Text(scope, name, tuple(leaf.shape)) if name in self._text else leaf

            features, labels = jax.tree_util.tree_map_with_path(replace_text, (data.features, data.labels))
            scope.is_calling = True
            try:
                spec = self._call(unpack(features), unpack(labels), self.mode)
            finally:
                scope.is_calling = False
            return ModelCall(scope, spec, frozenset(scope.assigned))

    def _texts_of(self, data: Data) -> tuple[Any, ...] | None:
        # The first call finds out which text the model_fn asks for; only then can the host compute it.
        asked = 0 if self.first is None else len(self.first.scope.recorded.needs)
        return None if self.first is None or len(data.texts) < asked else data.texts

    def resume(self, call: ModelCall, values: Mapping[str, Any], then: Callable[[], Any]) -> Any:
        """Runs `then` in the scope of an earlier call, with new values of the variables."""
        # The same scope: rules hold its variables, and look them up there by identity.
        call.scope.replace_values(values)
        with _fresh_state(self.variables.random_state), call.scope:
            return then()

    @contextlib.contextmanager
    def reopened(self, call: ModelCall) -> Generator[None]:
        """Opens the scope of an earlier call, for those who look up its variables and values."""
        with _fresh_state(self.variables.random_state), call.scope:
            yield

    def finish(self, call: ModelCall) -> None:
        """Ends a call: the first one becomes the reference, later ones are compared with it.

        Raises:
            ArgumentError: If the model_fn is not pure.
        """
        self.variables.complete(call.scope.variables)
        if self.first is None:
            self.first = call
            return
        # Outputs, gradients and texts are matched by their order: a call that records others would mix them up.
        first, now = (_records_of(c) for c in (self.first, call))
        for kind, before in first.items():
            if now[kind] != before:
                raise impurity_error(f"its {kind} were {before} in the first call, now they are {now[kind]}")


def _records_of(call: ModelCall) -> dict[str, Any]:
    recorded = call.scope.recorded
    return {
        "gradients as values": [site.keys for site in recorded.sites],
        "uses of text": [need.leaf for need in recorded.needs],
        "checks": [check.message for check in recorded.checks],
        "summaries": [(s.kind, s.tag) for s in recorded.summaries],
        # Their order does not matter: results are a dict.
        "metrics": sorted(call.spec.eval_metric_ops or {}),
    }


@contextlib.contextmanager
def _fresh_state(random_state: dict[str, Any]) -> Generator[None]:
    """Restarts automatic names and sets the random state, within the context."""
    before = {name: global_state.get_global_attribute(name) for name in _FRESH}
    random_before = randomness.snapshot()
    for name, make in _FRESH.items():
        global_state.set_global_attribute(name, make())
    randomness.restore(random_state)
    try:
        yield
    finally:
        randomness.restore(random_before)
        for name, value in before.items():
            global_state.set_global_attribute(name, value)


@dataclass(frozen=True)
class Selection:
    """Selection of a step's outputs: recorded arrays by name, and the traced values of a spec's hooks."""

    names: frozenset[str]
    hooks: Callable[[Any], list[Any]]

    def select(self, call: ModelCall) -> dict[str, Any]:
        """Returns the outputs of one call of the model_fn."""
        recorded, spec = call.scope.recorded, call.spec
        return {
            "loss": spec.loss,
            # Arrays only on request: returning one keeps XLA from fusing it away. Scalars cost nothing.
            "values": {n: v for n, v in recorded.values.items() if n in self.names or getattr(v, "ndim", 1) == 0},
            "collected": {n: v for n, v in collected_values(call.scope).items() if n in self.names},
            "checks": [check.failures for check in recorded.checks],
            "summaries": [s.value for s in recorded.summaries],
            "hooks": [traced_values_in(hook) for hook in self.hooks(spec)],
        }


def combine_outputs(shares: Shards, outputs: list[dict[str, Any]], reduction: str | None) -> dict[str, Any]:
    """Combines the outputs of several shards."""
    # The loss by its own reduction, which says whether the replicas' losses are summed or averaged.
    columns, treedef = zip(*(jax.tree.flatten(o) for o in outputs), strict=True)
    whole = jax.tree.unflatten(treedef[0], [shares.shown(column) for column in zip(*columns, strict=True)])
    return {**whole, "loss": shares.of_loss(reduction).shown([o["loss"] for o in outputs])}


def collected_values(scope: ModelScope) -> dict[str, Any]:
    """Returns the traced values in the collections of a call, and of its summaries, by names of their own."""
    found: dict[str, Any] = {}
    summaries = {"summaries": list(scope.recorded.summaries)}
    for name, members in {**summaries, **scope.collections}.items():
        for number, member in enumerate(members):
            # No name that a model_fn gives has spaces.
            for path, value in _walk(member, "", 1, set()):
                found[f"{name} {number}{path}"] = value
    return found


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
    # `before_run` says what it fetches only when the step is compiled, so any text that is a value's name counts.
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
