"""A training step of a model_fn in two parts: gradients of the batch, and the update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax

from lockstep._engine.step.aggregation import Shards
from lockstep._engine.step.jaxprs import is_traced
from lockstep._types import PyTree, State, Tensor
from lockstep.estimator._model_fn.function import Batches, Data, ModelCall

Values = Mapping[str, Any]
# Of gradients that a model_fn asks for as values: by the number of the site, those that need not be computed.
KnownGradients = Mapping[int, Sequence[Any]]


class SplitStep(Protocol):
    """A step in two parts: gradients of the batch, and the update.

    Attributes:
        gradients_at_sites: The gradients that the model_fn has asked for as values, for the first shard: one site after
            another.
    """

    gradients_at_sites: list[list[Any]]

    @property
    def call(self) -> ModelCall:
        """Returns the traced call of the model_fn for the first shard."""
        ...

    def forward(self, state: Values, known: KnownGradients | None = None) -> tuple[Any, Any]:
        """Returns the outputs, and the input of `apply`: gradients, and other values from the batch."""
        ...

    def apply(self, state: Values, pending: PyTree) -> dict[str, Any]:
        """Returns the state after the update."""
        ...


class StepParts:
    """A training step in two functions: `gradients(state, data)`, and `update(state, traced)`.

    Args:
        begin: Returns a step on shards that is split before the update.
        shards_of: Returns the shards of a batch.

    Attributes:
        step: The step that was traced last, by `gradients` or `update`.
        paths: Where each leaf of what `gradients` has returned stands in the input of the step's `apply`.
    """

    def __init__(self, begin: Callable[[Shards], SplitStep], shards_of: Callable[[Any], Shards]) -> None:
        self._begin = begin
        self._shards_of = shards_of
        # The update is traced after each trace of the gradients, for the same state: these are its data's.
        self._shapes: Any = None
        self.step: SplitStep | None = None
        self.paths: list[tuple[Any, ...]] = []

    def gradients(
        self, state: State, data: Data | Batches, known: KnownGradients | None = None
    ) -> tuple[Any, list[Any]]:
        """Returns the outputs, and the traced leaves of the input of the update."""
        self._shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), data)
        self.step = self._begin(self._shards_of(data))
        outputs, pending = self.step.forward(state, known)
        leaves = TracedLeaves(pending)
        self.paths = leaves.paths
        return outputs, leaves.traced

    def update(self, state: State, traced: PyTree) -> Any:
        """Returns the state after the update."""
        # Runs outside of the replicas' shard_map, where their tracers are invalid: the model_fn is traced again for
        # its records (which rules, which variables), and the gradients' values come in as arguments.
        traces: list[tuple[SplitStep, TracedLeaves]] = []

        def trace(state: State, data: PyTree) -> tuple[()]:
            step = self._begin(Shards([data], [1.0]))
            traces.append((step, TracedLeaves(step.forward(state)[1])))
            return ()

        jax.eval_shape(trace, state, self._shapes)
        self.step, pending = traces[0]
        return self.step.apply(state, pending.merge(traced))


class TracedLeaves:
    """A PyTree split into its traced leaves (`traced`, at `paths`) and the rest, which is static."""

    def __init__(self, value: Tensor) -> None:
        paths, self._structure = jax.tree_util.tree_flatten_with_path(value)
        leaves = [leaf for _, leaf in paths]
        self.traced = [leaf for leaf in leaves if is_traced(leaf)]
        self.paths = [path for path, leaf in paths if is_traced(leaf)]
        self._rest = [None if is_traced(leaf) else (leaf,) for leaf in leaves]

    def merge(self, traced: Sequence[Any]) -> Any:
        """Returns the PyTree with other values in the places of the traced leaves."""
        values = iter(traced)
        return jax.tree.unflatten(self._structure, [next(values) if r is None else r[0] for r in self._rest])
