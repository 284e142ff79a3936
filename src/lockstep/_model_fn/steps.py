"""Step functions of a model_fn, for the step program: training, evaluation, prediction."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from lockstep._keras.batch_moments import moments_over_replicas
from lockstep._model_fn.function import Call, Data, ModelFunction
from lockstep._model_fn.outputs import Selection, combined
from lockstep._model_fn.records import MetricOp, TrainOp, group
from lockstep._model_fn.scope import ReachedGradient
from lockstep._model_fn.variables import GLOBAL_STEP, Entry, impure
from lockstep._nest import packed
from lockstep._step.protocol import Step, Update
from lockstep._step.reduction import Reduction
from lockstep._step.replicas import AXIS, Replicas
from lockstep._step.rounds import COMMON, OWN, PARAMETER, Local, Role, role_of
from lockstep._step.shares import Made, OwnShares, Shares
from lockstep._step.tracing import is_traced
from lockstep.errors import ArgumentError

Values = Mapping[str, Any]


class Steps:
    """Writes a step for the whole batch, and for the share of one replica.

    In either, the model_fn is called for a share of the batch at a time: its batch is that of a replica. A batch that
    the replicas cannot divide evenly is cut into shares of about equal size, which every device computes in turn.

    Args:
        compute: Computes one step on shares: `(state, shares) -> (outputs, state)`.
        replicas: Where the step runs.
        roles: The role of each variable, for a step that replicas may make by themselves.
        begin: Returns the two halves of a step on shares, if it has two.
    """

    def __init__(
        self,
        compute: Callable[[Any, Shares], tuple[Any, Any]],
        replicas: Replicas,
        roles: Callable[[Any], Any] | None = None,
        begin: Callable[[Shares], Halves] | None = None,
    ) -> None:
        self._compute = compute
        self._replicas = replicas
        self._roles = roles
        self._begin = begin

    def whole(self, state: Any, data: Data) -> tuple[Any, Any]:
        """The step for a batch that is all here."""
        parts, weights = _cut(data, self._replicas.count)
        return self._compute(state, Shares(parts, weights))

    def of_replica(self) -> Step | None:
        """The step for one replica's share; `None` if there is only one replica."""
        if self._replicas.count == 1:
            return None
        return self._share

    def in_halves(self) -> tuple[Step, Update] | None:
        """The step of one replica up to its averaged gradients, and the update; `None` if replicas do it whole.

        The update is traced after each trace of the first half, for the same state. What the model_fn says of it is
        heard once more: what a replica's trace has made is of no use outside of it.
        """
        begin = self._begin
        if begin is None or not self._replicas.divides_slots or self._replicas.count == 1:
            return None
        shapes: list[Any] = []

        def first(state: Any, data: Data) -> tuple[Any, Any]:
            shapes[:] = [jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), data)]
            outputs, made = begin(self._of_one(data)).first(state)
            return outputs, Static(made).traced

        def update(state: Any, made: Any) -> Any:
            halves, static = _said_of(begin, state, shapes[0])
            return halves.second(state, static.joined(made))

        return first, update

    def local(self) -> Local | None:
        """The step for replicas that train by themselves in between; `None` if they do not."""
        rounds = self._replicas.rounds
        if rounds is None or self._roles is None:
            return None
        return Local(rounds, self._own_share, self._roles, whole=self._own_whole)

    def _own_share(self, state: Any, data: Data) -> tuple[Any, Any]:
        return self._compute(state, OwnShares([data], [1.0], place=lax.axis_index(AXIS), part=1 / self._replicas.count))

    def _own_whole(self, state: Any, data: Data) -> tuple[Any, Any]:
        return self._compute(state, OwnShares(*_cut(data, self._replicas.count), place=lax.axis_index(AXIS)))

    def _share(self, state: Any, data: Data) -> tuple[Any, Any]:
        return self._compute(state, self._of_one(data))

    def _of_one(self, data: Data) -> Shares:
        count = self._replicas.count
        return Shares([data], [1.0 / count], AXIS, count, self._replicas.reduction or Reduction())


class Halves(Protocol):
    """A step in two: what takes the batch, and what then changes the variables."""

    def first(self, state: Values) -> tuple[Any, Any]:
        """Returns the outputs, and what the second half takes of the batch."""
        ...

    def second(self, state: Values, pending: Any) -> dict[str, Any]:
        """Returns the state after the step."""
        ...


class Static:
    """A structure in which some leaves are not traced: they need not be carried from one half to the other.

    Attributes:
        traced: The others.
    """

    def __init__(self, value: Any) -> None:
        leaves, self._structure = jax.tree.flatten(value)
        self.traced = [leaf for leaf in leaves if is_traced(leaf)]
        self._rest = [None if is_traced(leaf) else (leaf,) for leaf in leaves]

    def joined(self, traced: Sequence[Any]) -> Any:
        """Returns the structure with other values in the places of the traced leaves."""
        values = iter(traced)
        return jax.tree.unflatten(self._structure, [next(values) if r is None else r[0] for r in self._rest])


def _said_of(begin: Callable[[Shares], Halves], state: Any, data: Any) -> tuple[Halves, Static]:
    """Traces a first half, for what it says: the values in it are dead."""
    heard: list[tuple[Halves, Static]] = []

    def listen(state: Any, data: Any) -> tuple[()]:
        halves = begin(Shares([data], [1.0]))
        heard.append((halves, Static(halves.first(state)[1])))
        return ()

    jax.eval_shape(listen, state, data)
    return heard[0]


def train_step(function: ModelFunction, replicas: Replicas, selection: Selection) -> Steps:
    """Returns the step that trains.

    Its state is the value of each variable by key; its outputs are the selection.
    """

    def begin(shares: Shares) -> _Training:
        return _Training(function, shares, selection, _over_replicas(shares, replicas))

    def compute(state: Values, shares: Shares) -> tuple[Any, Any]:
        training = begin(shares)
        outputs, pending = training.first(state)
        return outputs, training.second(state, pending)

    return Steps(compute, replicas, lambda state: {key: _role(function, key) for key in state}, begin)


def _role(function: ModelFunction, key: str) -> Role:
    """What a variable is to replicas that train by themselves; what the model_fn does not set is the optimizers'."""
    entry, first = function.variables.entries[key], function.first
    assert first is not None
    if entry.trainable:
        return PARAMETER
    if key == GLOBAL_STEP or key in first.assigned:
        return COMMON if key == GLOBAL_STEP else role_of(entry.is_seed, entry.aggregation)
    return COMMON if entry.is_seed or entry.aggregation == "only_first_replica" else OWN


def _over_replicas(shares: Shares, replicas: Replicas) -> bool:
    return shares.axis is not None and replicas.batch_statistics == "global"


class _Training:
    """One training step, while it is traced."""

    def __init__(self, function: ModelFunction, shares: Shares, selection: Selection, over_replicas: bool) -> None:
        self._function = function
        self._shares = shares
        self._selection = selection
        self._over_replicas = over_replicas
        self._calls: list[Call] = []

    def first(self, state: Values) -> tuple[Any, Any]:
        """Everything up to the averaged gradients."""
        with moments_over_replicas(AXIS) if self._over_replicas else contextlib.nullcontext():
            gradients = self._gradients_of_sites(state)
            results = [self._forward(state, number, gradients) for number in range(len(self._shares.data))]
        call = self._calls[0]
        ops = group(call.spec.train_op)
        changed = self._combined_values(state, [r["values"] for r in results])
        reduction = call.scope.loss_reduction
        per_op = self._mean_gradients(ops, [r["gradients"] for r in results], reduction)
        # The first share's, and no mean: all have the same learning rate, unless they compute it from their batch.
        hyper = jax.tree.map(lambda v: self._shares.first([v]), results[0]["hyper"])
        return combined(self._shares, [r["outputs"] for r in results], reduction), (changed, per_op, hyper)

    def second(self, state: Values, pending: Any) -> dict[str, Any]:
        """The update."""
        changed, per_op, hyper = pending
        call, values = self._calls[0], {**state, **changed}
        ops = group(call.spec.train_op)
        after = self._function.resumed(call, values, lambda: self._update(call, ops, per_op, hyper))
        self._function.ended(call)
        updated = [key for key, value in after.items() if value is not values.get(key)]
        self._function.updated = frozenset(updated) - {GLOBAL_STEP, *self._function.variables.trainable()}
        return after

    def _mean_gradients(self, ops: Sequence[TrainOp], found: list[list[Any]], reduction: str | None) -> list[list[Any]]:
        """Combines the gradients of each op over the shares.

        Those that the model_fn has made of values are combined already; but it may have added something of its batch.
        """
        shares = [self._shares.of_loss(reduction) if op.loss is not None else self._shares for op in ops]
        return [s.mean_of_gradients([of_share[number] for of_share in found]) for number, s in enumerate(shares)]

    def _gradients_of_sites(self, state: Values) -> list[list[Any]] | None:
        """The gradients that the model_fn asks for as values, in the order in which it asks."""
        first = self._function.first
        if first is None:  # There are no values to differentiate by yet, and zeros do.
            return None
        shares = self._shares.of_loss(first.scope.loss_reduction)
        found: list[list[Any]] = []
        for _ in first.scope.recorded.sites:
            found.append(shares.mean_of_gradients([self._site(state, found, n) for n in range(len(shares.data))]))
        return found

    def _site(self, state: Values, found: list[list[Any]], number: int) -> list[Any]:
        """The gradients at the next place, of one share."""
        own = _with_own_seeds(self._function, self._shares, number, state)
        keys: tuple[str, ...] = ()

        def loss_of(trainable: Values) -> Any:
            nonlocal keys
            try:
                self._function({**own, **trainable}, self._shares.data[number], found, stop_at=len(found))
            except ReachedGradient as reached:
                keys = reached.keys
                return jnp.sum(reached.loss)
            raise impure("it asked for fewer gradients as values")

        gradients = jax.grad(loss_of)(self._trainable(state))
        return [gradients[key] for key in keys]

    def _trainable(self, state: Values) -> dict[str, Any]:
        return {key: state[key] for key in self._function.variables.trainable() if key in state}

    def _forward(self, state: Values, number: int, gradients: list[list[Any]] | None) -> dict[str, Any]:
        """Calls the model_fn for one share, and takes the gradients of its losses."""
        own = _with_own_seeds(self._function, self._shares, number, state)
        data = self._shares.data[number]

        def losses(trainable: Values) -> tuple[list[Any], dict[str, Any]]:
            call = self._function({**own, **trainable}, data, gradients)
            self._calls.append(call)
            ops = group(call.spec.train_op)
            result = {
                "values": _changed(call.scope.values, {**own, **trainable}),
                "hyper": [dict(op.rule.hyper) for op in ops],
                "gradients": [list(op.gradients) for op in ops],
                "outputs": self._selection.of(call),
            }
            return [jnp.sum(op.loss) for op in ops if op.loss is not None], result

        found, pull_back, result = jax.vjp(losses, self._trainable(state), has_aux=True)
        self._take(pull_back, found, result)
        return result

    def _take(self, pull_back: Any, losses: list[Any], result: dict[str, Any]) -> None:
        """Adds the gradients of each loss that an op asks for."""
        call = self._calls[-1]
        number = 0
        for op, gradients in zip(group(call.spec.train_op), result["gradients"], strict=True):
            if op.loss is None:
                continue
            direction = [jnp.ones_like(v) if i == number else jnp.zeros_like(v) for i, v in enumerate(losses)]
            (by_key,) = pull_back(direction)
            gradients += [_of_variable(by_key, call.scope.key_of(v), v) for v in op.variables]
            number += 1

    def _combined_values(self, state: Values, changed: list[dict[str, Any]]) -> dict[str, Any]:
        entries = self._function.variables.entries
        return _combined(self._shares, entries, state, {k: [c[k] for c in changed] for k in changed[0]})

    def _update(self, call: Call, ops: Sequence[TrainOp], gradients: Any, hyper: Any) -> dict[str, Any]:
        """Carries out the updates, one after another."""
        for op, of_op, hyper_of_op in zip(ops, gradients, hyper, strict=True):
            op.rule.update(call.scope, of_op, list(op.variables), hyper_of_op)
        values = call.scope.values
        values[GLOBAL_STEP] = values[GLOBAL_STEP] + increment(ops)
        return values


def increment(ops: Sequence[TrainOp]) -> int:
    """By how much a step increments the global step: once for each op that was given it, or else by one."""
    return sum(op.counts for op in ops) or 1


def evaluate_step(function: ModelFunction, replicas: Replicas, selection: Selection) -> Steps:
    """Returns the step that evaluates; its output "metrics" holds the results over all batches so far."""

    def compute(state: Values, shares: Shares) -> tuple[Any, Any]:
        entries = function.variables.entries
        calls: list[Call] = []
        for number, data in enumerate(shares.data):
            calls.append(function(_with_own_seeds(function, shares, number, state), data))
        changed = [k for k, v in calls[0].scope.values.items() if v is not state.get(k)]
        after = {k: [c.scope.values[k] for c in calls] for k in changed}
        values = {**state, **_combined(shares, entries, state, after)}
        outputs = combined(shares, [selection.of(c) for c in calls], calls[0].scope.loss_reduction)
        is_one = len(calls) == 1 and shares.axis is None
        results, after = function.resumed(calls[0], values, lambda: _results(calls[0], outputs["loss"], is_one))
        function.ended(calls[0])
        return {**outputs, "metrics": results}, after

    return Steps(compute, replicas)


def _results(call: Call, loss: Any, is_one: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The metrics over all batches so far; the loss is the plain mean of the batches' losses."""
    metrics = {name: _result(name, metric, is_one) for name, metric in (call.spec.eval_metric_ops or {}).items()}
    total = call.scope.variable("loss/total", lambda: np.zeros(()), (), loss.dtype, local=True)
    count = call.scope.variable("loss/count", lambda: np.zeros(()), (), loss.dtype, local=True)
    total.assign(total.value + loss)
    count.assign(count.value + 1)
    return {**metrics, "loss": total.value / count.value}, call.scope.values


def _result(name: str, metric: Any, is_one: bool) -> Any:
    if isinstance(metric, MetricOp):
        return metric.metric.result()
    if hasattr(metric, "result"):
        return metric.result()
    if not is_one:
        raise ArgumentError(
            "On several replicas the value of a metric is computed from the sums over all of them. Received: "
            f"eval_metric_ops[{name!r}] as a pair of values. Use a function of lockstep.metrics, or a metric of Keras."
        )
    return metric[1]


def predict_step(function: ModelFunction, replicas: Replicas, selection: Selection) -> Steps:
    """Returns the step that predicts; its output "predictions" is what the spec holds."""

    def compute(state: Values, shares: Shares) -> tuple[Any, Any]:
        assert len(shares.data) == 1 and shares.axis is None, "predictions are made on one device"
        call = function(state, shares.data[0])
        function.ended(call)
        return {**selection.of(call), "predictions": packed(call.spec.predictions)}, call.scope.values

    return Steps(compute, replicas)


def _cut(data: Data, replicas: int) -> tuple[list[Data], list[float]]:
    """Cuts a batch into shares of about equal size; data without a common first axis goes to one share."""
    lengths = {leaf.shape[0] if leaf.ndim else None for leaf in jax.tree.leaves(data)}
    rows = lengths.pop() if len(lengths) == 1 else None
    if replicas == 1 or not rows or rows == 1:
        return [data], [1.0]
    pieces = min(replicas, rows)
    ends = [rows * i // pieces for i in range(pieces + 1)]
    bounds = list(itertools.pairwise(ends))
    return [jax.tree.map(lambda a: a[b:e], data) for b, e in bounds], [(e - b) / rows for b, e in bounds]  # noqa: B023


def _with_own_seeds(function: ModelFunction, shares: Shares, number: int, values: Values) -> dict[str, Any]:
    entries = function.variables.entries
    return {k: shares.own_seed(number, v) if entries[k].is_seed else v for k, v in values.items()}


def _combined(
    shares: Shares, entries: Mapping[str, Entry], state: Values, after: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """Combines what the shares have made of variables; one that is new starts at zero."""

    def before(key: str) -> Any:
        return state[key] if key in state else jnp.zeros(entries[key].shape, entries[key].dtype)

    made = [Made(entries[k].is_seed, entries[k].aggregation, before(k), values) for k, values in after.items()]
    return dict(zip(after, shares.combine(made), strict=True))


def _changed(values: Values, before: Values) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not before.get(key)}


def _of_variable(gradients: Values, key: str, variable: Any) -> Any:
    """The gradient by a variable; in the first call of all, there are no values to differentiate by, and zero does."""
    found = gradients.get(key)
    return jnp.zeros(variable.shape, variable.dtype) if found is None else found
