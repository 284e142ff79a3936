"""Training, evaluation and prediction steps of a model_fn, for the step program."""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._engine.keras.replica_step import moments_over_replicas
from lockstep._engine.step.aggregation import LocalShards, Shards, VariableUpdate
from lockstep._engine.step.jaxprs import depends_on_inputs
from lockstep._engine.step.local_sgd import COMMON, OWN, PARAMETER, LocalTraining, Role, role_of
from lockstep._engine.step.protocol import Step, Update
from lockstep._engine.step.reduction import Reduction
from lockstep._engine.step.replicas import AXIS, Replicas
from lockstep._nest import map_structure, pack
from lockstep._types import Metric, PyTree, State, Tensor
from lockstep.errors import ArgumentError
from lockstep.estimator._model_fn.function import (
    Batches,
    Data,
    ModelCall,
    ModelFunction,
    Selection,
    combine_outputs,
    parts_of,
)
from lockstep.estimator._model_fn.lookups import of_shard
from lockstep.estimator._model_fn.records import MetricOp, TrainOp, batches_of_update, group
from lockstep.estimator._model_fn.scope import ReachedGradient
from lockstep.estimator._model_fn.step_parts import KnownGradients, SplitStep, StepParts, Values
from lockstep.estimator._model_fn.variables import GLOBAL_STEP, Entry, impurity_error

_log = logging.getLogger("lockstep")


class Steps:
    """The forms of one step: for a whole batch, for one replica's shard, split before the update, and for local SGD.

    In each, the model_fn sees a replica's shard as its batch. A batch that does not divide evenly is cut into shards of
    about equal size, which every device computes one after another.

    Args:
        compute: Computes one step on shards: `(state, shards) -> (outputs, state)`.
        roles: Returns the role of each variable in local SGD.
        begin: Returns a step on shards that is split before the update; `None` if the step has no update.
    """

    def __init__(
        self,
        compute: Callable[[Any, Shards], tuple[Any, Any]],
        replicas: Replicas,
        roles: Callable[[Any], Any] | None = None,
        begin: Callable[[Shards], SplitStep] | None = None,
    ) -> None:
        self._compute = compute
        self._replicas = replicas
        self._roles = roles
        self._begin = begin

    def batch_step(self, state: State, data: Data) -> tuple[Any, Any]:
        """Computes the step for a batch that every device holds as a whole."""
        return self._compute(state, shards_of(data, self._replicas.count))

    def replica_step(self) -> Step | None:
        """Returns the step for one replica's shard; `None` if there is only one replica."""
        return None if self._replicas.count == 1 else lambda state, data: self._compute(state, self._one_shard(data))

    def split_step(self) -> tuple[Step, Update] | None:
        """Returns the step up to averaged gradients and the update, for ZeRO-1; `None` without it."""
        if self._begin is None or not self._replicas.shards_optimizer_state or self._replicas.count == 1:
            return None
        parts = StepParts(self._begin, self._one_shard)
        return parts.gradients, parts.update

    def parts(self, weights: Sequence[float] = (1.0,)) -> StepParts:
        """Returns a step that trains in two parts, of as many batches as there are weights."""
        assert self._begin is not None, "only a step that trains has an update"
        return StepParts(self._begin, lambda data: Shards(parts_of(data), weights))

    def local_step(self) -> LocalTraining | None:
        """Returns the step of local SGD; `None` without it."""
        rounds, count = self._replicas.local_sgd, self._replicas.count
        if rounds is None or self._roles is None:
            return None

        def shard_step(state: State, data: Data) -> tuple[Any, Any]:
            return self._compute(state, LocalShards([data], [1.0], place=lax.axis_index(AXIS), part=1 / count))

        def batch_step(state: State, data: Data) -> tuple[Any, Any]:
            return self._compute(state, LocalShards(*_cut(data, count), place=lax.axis_index(AXIS)))

        return LocalTraining(rounds, shard_step, self._roles, whole=batch_step)

    def _one_shard(self, data: Data) -> Shards:
        count = self._replicas.count
        return Shards([data], [1.0 / count], AXIS, count, self._replicas.reduction or Reduction())


def train_step(function: ModelFunction, replicas: Replicas, selection: Selection) -> Steps:
    """Returns the step that trains; its state is the value of each variable by key, its outputs are the selection."""

    def begin(shares: Shards) -> _TrainStep:
        # Keras' BatchNormalization takes the moments of the global batch, if the strategy says so.
        over_replicas = shares.axis is not None and replicas.batch_statistics == "global"
        return _TrainStep(function, shares, selection, over_replicas)

    def compute(state: Values, shares: Shards) -> tuple[Any, Any]:
        step = begin(shares)
        outputs, pending = step.forward(state)
        return outputs, step.apply(state, pending)

    return Steps(compute, replicas, lambda state: {key: _role(function, key) for key in state}, begin)


def _role(function: ModelFunction, key: str) -> Role:
    """Returns a variable's role in local SGD; variables that the model_fn does not assign are optimizers'."""
    entry, first = function.variables.entries[key], function.first
    assert first is not None
    # Parameters are averaged at the end of a round; counts and random states are common or a replica's own.
    if entry.trainable:
        return PARAMETER
    if key == GLOBAL_STEP or key in first.assigned:
        return COMMON if key == GLOBAL_STEP else role_of(entry.is_seed, entry.aggregation)
    return COMMON if entry.is_seed or entry.aggregation == "only_first_replica" else OWN


class _TrainStep:
    """One training step, split before the update, while it is traced."""

    def __init__(self, function: ModelFunction, shares: Shards, selection: Selection, over_replicas: bool) -> None:
        self._function = function
        self._shares = shares
        self._selection = selection
        self._over_replicas = over_replicas
        self._calls: list[ModelCall] = []
        self.gradients_at_sites: list[list[Any]] = []

    @property
    def call(self) -> ModelCall:
        """Returns the traced call of the model_fn for the first shard."""
        return self._calls[0]

    def forward(self, state: Values, known: KnownGradients | None = None) -> tuple[Any, Any]:
        """Calls the model_fn for each shard and averages gradients, but for those that are known."""
        with moments_over_replicas(AXIS) if self._over_replicas else contextlib.nullcontext():
            gradients = self._gradients_of_sites(state, known or {})
            self.gradients_at_sites = [] if gradients is None else gradients[0]
            numbers = range(len(self._shares.data))
            results = [self._forward(state, n, None if gradients is None else gradients[n]) for n in numbers]
        call = self.call
        ops = group(call.spec.train_op)
        entries, values = self._function.variables.entries, [r["values"] for r in results]
        changed = _combine(self._shares, entries, state, {key: [v[key] for v in values] for key in values[0]})
        reduction = reduction_of(call)
        # Averaged before they are clipped or applied, as in TensorFlow. Gradients that the model_fn took as values are
        # averages already, but it may have added something of its batch to them; averaging equal values changes
        # nothing.
        shares = [self._shares.of_loss(reduction) if op.loss is not None else self._shares for op in ops]
        per_op = [s.mean_of_gradients([r["gradients"][number] for r in results]) for number, s in enumerate(shares)]
        # The first shard's, no mean: all have the same learning rate, unless the model_fn computes it from its batch.
        hyper = jax.tree.map(lambda v: self._shares.first([v]), results[0]["hyper"])
        return combine_outputs(self._shares, [r["outputs"] for r in results], reduction), (changed, per_op, hyper)

    def apply(self, state: Values, pending: PyTree) -> dict[str, Any]:
        """Runs the update rules in the scope of the first shard's call."""
        changed, per_op, hyper = pending
        call, values = self.call, {**state, **changed}
        ops = group(call.spec.train_op)

        def update() -> dict[str, Any]:
            for op, gradients, op_hyper in zip(ops, per_op, hyper, strict=True):
                op.rule.update(call.scope, gradients, list(op.variables), op_hyper)
            values = call.scope.values
            values[GLOBAL_STEP] = values[GLOBAL_STEP] + increment(ops)
            return values

        after = self._function.resume(call, values, update)
        self._function.finish(call)
        # Slots, which only an update changes: those that ZeRO-1 shards.
        updated = [key for key, value in after.items() if value is not values.get(key)]
        self._function.updated = frozenset(updated) - {GLOBAL_STEP, *self._function.variables.trainable_keys()}
        return after

    def _gradients_of_sites(self, state: Values, known: KnownGradients) -> list[list[list[Any]]] | None:
        """Computes the gradients that the model_fn asks for as values: for each shard, one site after another."""
        first = self._function.first
        if first is None:  # The first call: there are no values to differentiate at, and zeros do.
            return None
        shares = self._shares.of_loss(reduction_of(first))
        # A replica of TensorFlow's SyncReplicasOptimizer clips its own gradients, which are averaged afterwards.
        are_own = batches_of_update(group(first.spec.train_op)) is not None
        gradients: list[list[list[Any]]] = [[] for _ in shares.data]
        for site in range(len(first.scope.recorded.sites)):
            if site in known:
                at_site = [list(known[site])] * len(shares.data)
            else:
                # Each site may depend on the gradients of the sites before it.
                at_site = [self._gradients_at_site(state, gradients[n], n) for n in range(len(shares.data))]
                at_site = at_site if are_own else [shares.mean_of_gradients(at_site)] * len(shares.data)
            for before, own in zip(gradients, at_site, strict=True):
                before.append(own)
        return gradients

    def _gradients_at_site(self, state: Values, earlier: list[list[Any]], number: int) -> list[Any]:
        """Computes one shard's gradients at the next site."""
        own = _with_own_seeds(self._function, self._shares, number, state)
        keys: tuple[str, ...] = ()

        def loss_fn(trainable: Values) -> Any:
            nonlocal keys
            try:
                self._function({**own, **trainable}, self._shares.data[number], earlier, stop_at=len(earlier))
            except ReachedGradient as reached:
                keys = reached.keys
                return jnp.sum(reached.loss)
            raise impurity_error("it asked for fewer gradients as values")

        with of_shard(number):
            gradients = jax.grad(loss_fn)(self._trainable(state))
        return [gradients[key] for key in keys]

    def _trainable(self, state: Values) -> dict[str, Any]:
        return {key: state[key] for key in self._function.variables.trainable_keys() if key in state}

    def _forward(self, state: Values, number: int, gradients: list[list[Any]] | None) -> dict[str, Any]:
        """Calls the model_fn for one shard and differentiates its losses."""
        own = _with_own_seeds(self._function, self._shares, number, state)
        data = self._shares.data[number]

        def losses(trainable: Values) -> tuple[list[Any], dict[str, Any]]:
            call = self._function({**own, **trainable}, data, gradients)
            self._calls.append(call)
            ops = group(call.spec.train_op)
            before = {**own, **trainable}
            result = {
                "values": {key: v for key, v in call.scope.values.items() if v is not before.get(key)},
                "hyper": [dict(op.rule.hyper) for op in ops],
                "gradients": [list(op.gradients) for op in ops],
                "outputs": self._selection.select(call),
            }
            return [jnp.sum(op.loss) for op in ops if op.loss is not None], result

        with of_shard(number):
            values, pull_back, result = jax.vjp(losses, self._trainable(state), has_aux=True)
        call, number = self._calls[-1], 0
        # One trace of the model for all operations, and one pull-back for each: a model_fn may minimize several losses,
        # as DNNLinearCombined does, at the same values of the variables.
        for op, op_gradients in zip(group(call.spec.train_op), result["gradients"], strict=True):
            if op.loss is None:
                continue
            direction = [jnp.ones_like(v) if i == number else jnp.zeros_like(v) for i, v in enumerate(values)]
            (by_key,) = pull_back(direction)
            for variable in op.variables:
                gradient = by_key.get(call.scope.key_of(variable))
                # Zero in the first call, which has no values to differentiate at.
                op_gradients.append(jnp.zeros(variable.shape, variable.dtype) if gradient is None else gradient)
            number += 1
        return result


def reduction_of(call: ModelCall) -> str | None:
    """Returns the reduction of the loss over shards; batches of one update are averaged, whatever it is."""
    ops = group(call.spec.train_op)
    return None if batches_of_update(ops) is not None else call.scope.loss_reduction


def increment(ops: Sequence[TrainOp]) -> int:
    """Returns the global step's increment: one per operation that was given it, and at least one."""
    # In TensorFlow a train_op without the global step trains for ever; at least one lets `steps` end it.
    return sum(op.counts for op in ops) or 1


def evaluate_step(function: ModelFunction, replicas: Replicas, selection: Selection) -> Steps:
    """Returns the step that evaluates; its output "metrics" holds the results over all batches so far."""

    def compute(state: Values, shares: Shards) -> tuple[Any, Any]:
        entries = function.variables.entries
        calls: list[ModelCall] = []
        for number, data in enumerate(shares.data):
            calls.append(function(_with_own_seeds(function, shares, number, state), data))
        # Metrics' counts are added up over shards before their results are computed: a mean of the shards' results
        # would not be that of the batch.
        changed = [k for k, v in calls[0].scope.values.items() if v is not state.get(k)]
        after = {k: [c.scope.values[k] for c in calls] for k in changed}
        _check_aggregation(shares, entries, changed)
        values = {**state, **_combine(shares, entries, state, after)}
        outputs = combine_outputs(shares, [selection.select(c) for c in calls], calls[0].scope.loss_reduction)
        results, after = function.resume(calls[0], values, lambda: _results(calls[0], outputs))
        function.finish(calls[0])
        is_one = len(calls) == 1 and shares.axis is None
        read = _read_values(function, after, shares.data[0], calls[0], is_one)
        return {**outputs, **results, "metrics": {**results["metrics"], **read}}, after

    return Steps(compute, replicas)


def _check_aggregation(shares: Shards, entries: Mapping[str, Entry], changed: Sequence[str]) -> None:
    """Refuses to combine what replicas have counted, where nobody has said how: as TensorFlow does."""
    if len(shares.data) == 1 and shares.axis is None:
        return
    for key in changed:
        if entries[key].local and entries[key].aggregation == "none" and not entries[key].is_seed:
            raise ArgumentError(
                "You must specify an aggregation method to update a variable of LOCAL_VARIABLES on several replicas. "
                f"Received: {key}. Make it with aggregation=tf.VariableAggregation.SUM."
            )


def _results(call: ModelCall, outputs: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the metrics and the checks over all batches so far, and the state."""
    loss = outputs["loss"]
    # Of several steps that run together, the outputs of the last are kept.
    checks = [_add_up(call, f"check_{n}", failures) for n, failures in enumerate(outputs["checks"])]
    metrics = {n: _result(m) for n, m in (call.spec.eval_metric_ops or {}).items() if not _is_pair(m)}
    # TensorFlow's evaluation loss is the plain mean over batches, whatever their sizes.
    # LocalTraining: an evaluation starts anew, and no checkpoint holds them.
    total, count = (_add_up(call, f"loss/{n}", v) for n, v in (("total", loss), ("count", jnp.ones((), loss.dtype))))
    return {"metrics": {**metrics, "loss": total / count}, "checks": checks}, call.scope.values


def _add_up(call: ModelCall, name: str, number: Tensor) -> Any:
    """Returns the sum of a number over all batches so far."""
    variable = call.scope.variable(name, lambda: np.zeros(()), (), number.dtype, local=True)
    variable.assign(variable.value + number)
    return variable.value


def _is_pair(metric: Metric) -> bool:
    """Returns whether a metric is a pair of a value and an update that the program has put together itself."""
    return not isinstance(metric, MetricOp) and not hasattr(metric, "result")


def _result(metric: Metric) -> Any:
    # The result over the whole shards: the op's own value was computed in the trace of one.
    return metric.metric.result() if isinstance(metric, MetricOp) else metric.result()


def _read_values(function: ModelFunction, values: Values, data: Data, call: ModelCall, is_one: bool) -> dict[str, Any]:
    """Returns the values of pairs (value, update) after the updates of all batches so far.

    TensorFlow computes them at the end, from the variables as they are then, wherever the program has written them. So
    the model_fn is called once more, with those variables, and what it assigns has no effect.
    """
    names = [name for name, metric in (call.spec.eval_metric_ops or {}).items() if _is_pair(metric)]
    if not names:
        return {}

    def read(data: Data) -> list[Any]:
        again = function(values, data, is_read_only=True)
        return [map_structure(_as_array, again.spec.eval_metric_ops[name][0]) for name in names]

    jaxpr, shapes = jax.make_jaxpr(read, return_shape=True)(data)
    outputs = iter(jaxpr.jaxpr.outvars)
    for name, shape in zip(names, shapes, strict=True):
        parts = [next(outputs) for _ in jax.tree.leaves(shape)]
        if any(depends_on_inputs(jaxpr.jaxpr, part) for part in parts):
            _refuse_value_of_batch(name, is_one)
    # XLA leaves out what these values do not depend on: nearly all of the model.
    return dict(zip(names, read(data), strict=True))


def _as_array(value: Tensor) -> Any:
    return jnp.asarray(value.value if hasattr(value, "value") else value)


def _refuse_value_of_batch(name: str, is_one: bool) -> None:
    received = f"eval_metric_ops[{name!r}], whose value is computed from the features or labels themselves"
    # TensorFlow takes it from one more batch, and fails if there is none. A replica sees a part of a batch alone.
    if is_one:
        _log.warning(
            "The value of a metric is computed at the end, from what its update has added up. Received: %s. It is that "
            "of the last batch. Use a function of lockstep.estimator.metrics, such as mean.",
            received,
        )
        return
    raise ArgumentError(
        "On several replicas the value of a metric is computed from the sums over all of them. Received: "
        f"{received}. Use a function of lockstep.estimator.metrics, such as mean, or a metric of Keras."
    )


def predict_step(function: ModelFunction, replicas: Replicas, selection: Selection) -> Steps:
    """Returns the step that predicts; its output "predictions" is the spec's."""

    def compute(state: Values, shares: Shards) -> tuple[Any, Any]:
        assert len(shares.data) == 1 and shares.axis is None, "predictions are made on one device"
        call = function(state, shares.data[0])
        function.finish(call)
        return {**selection.select(call), "predictions": pack(call.spec.predictions)}, call.scope.values

    return Steps(compute, replicas)


def shards_of(data: Data | Batches, replicas: int) -> Shards:
    """Returns the shards of a batch that is held as a whole, at most one a replica; of several each counts alike."""
    if isinstance(data, Batches):
        return Shards(data.parts, [1.0 / len(data.parts)] * len(data.parts))
    return Shards(*_cut(data, replicas))


def _cut(data: Data, replicas: int) -> tuple[list[Data], list[float]]:
    """Cuts a batch into shards of about equal size; data without a common first axis stays one shard."""
    # Without a common first axis nothing says which rows belong together.
    lengths = {leaf.shape[0] if leaf.ndim else None for leaf in jax.tree.leaves(data)}
    rows = lengths.pop() if len(lengths) == 1 else None
    if replicas == 1 or not rows or rows == 1:
        return [data], [1.0]
    # Fewer rows than replicas: some replicas would have none, so there are fewer shards.
    pieces = min(replicas, rows)
    ends = [rows * i // pieces for i in range(pieces + 1)]
    bounds = list(itertools.pairwise(ends))
    return [jax.tree.map(lambda a: a[b:e], data) for b, e in bounds], [(e - b) / rows for b, e in bounds]  # noqa: B023


def _with_own_seeds(function: ModelFunction, shares: Shards, number: int, values: Values) -> dict[str, Any]:
    """Returns the values, with another random state for each shard: replicas must not drop the same units."""
    entries = function.variables.entries
    return {k: shares.own_seed(number, v) if entries[k].is_seed else v for k, v in values.items()}


def _combine(
    shares: Shards, entries: Mapping[str, Entry], state: Values, after: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """Combines the shards' values of variables; a new variable starts at zero."""

    def before(key: str) -> Any:
        return state[key] if key in state else jnp.zeros(entries[key].shape, entries[key].dtype)

    made = [
        VariableUpdate(entries[k].is_seed, entries[k].aggregation, before(k), values) for k, values in after.items()
    ]
    return dict(zip(after, shares.combine(made), strict=True))
