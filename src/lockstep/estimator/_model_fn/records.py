"""Records of a model_fn's trace: training operations, metrics, summaries, uses of gradients and text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from lockstep._types import Array, Metric, PyTree, Tensor, Variable
from lockstep.errors import ArgumentError

SummaryKind = Literal["scalar", "histogram", "image", "text"]


@dataclass(frozen=True)
class SummaryOp:
    """A value for TensorBoard, a tracer while the model_fn is traced; of images the first `max_outputs` of a batch."""

    kind: SummaryKind
    tag: str
    value: Any
    max_outputs: int = 3


class Rule(Protocol):
    """An optimizer's update rule.

    Attributes:
        hyper: All traced values, such as a learning rate computed in the model_fn. Other tracers that a rule holds are
            dead when `update` runs.
    """

    hyper: dict[str, Any]

    def update(
        self, scope: object, gradients: list[Array], variables: list[Variable], hyper: dict[str, PyTree]
    ) -> None:
        """Assigns the variables; called once per step, after the model_fn has returned."""
        ...


@dataclass(frozen=True)
class TrainOp:
    """A training operation: an update of variables, run by the step program.

    Attributes:
        counts: By how much it increments the global step.
        loss: The loss to differentiate; `None` if gradients are given.
        gradients: A gradient or `None` for each variable; empty if the loss is differentiated.
        batches: Over how many batches gradients are averaged for one update (SyncReplicasOptimizer); `None` if each
            batch is an update.
    """

    rule: Rule
    variables: tuple[Any, ...]
    counts: int
    # Differentiated by the step program and not in the model_fn, so that one trace gives loss, outputs and gradients.
    loss: Any = None
    gradients: tuple[Any, ...] = ()
    batches: int | None = None

    @classmethod
    def deferred(cls, rule: Rule, loss: Tensor, variables: Sequence[Any], counts: bool) -> TrainOp:
        """Returns an operation whose loss the step program differentiates."""
        return cls(rule, tuple(variables), counts, loss=loss)

    @classmethod
    def immediate(cls, rule: Rule, pairs: Sequence[tuple[Any, Any]], counts: bool) -> TrainOp:
        """Returns an operation with given (gradient, variable) pairs."""
        return cls(rule, tuple(v for _, v in pairs), counts, gradients=tuple(g for g, _ in pairs))


class _NoRule:
    """An update rule that changes no variable."""

    def __init__(self) -> None:
        self.hyper: dict[str, Any] = {}

    def update(
        self, scope: object, gradients: list[Array], variables: list[Variable], hyper: dict[str, PyTree]
    ) -> None:
        """Does nothing."""


def count_steps(number: int) -> TrainOp:
    """Returns the operation that adds a number to the global step, and does nothing besides."""
    return TrainOp(_NoRule(), (), number)


class GroupOp(tuple[TrainOp, ...]):
    """Training operations that run in order, with gradients at the same values of the variables."""


class NamedOp(GroupOp):
    """The operation of a tensor, which was carried out where it was written.

    Attributes:
        name: The tensor's name, without `:0`.
    """

    name: str

    def __new__(cls, name: str) -> NamedOp:
        """Creates the operation."""
        op = super().__new__(cls)
        op.name = name
        return op


def group(*ops: object) -> GroupOp:
    """Groups training operations and groups of them; leaves `None` out.

    Raises:
        ArgumentError: For anything else.
    """
    return GroupOp(op for operation in ops for op in _flatten(operation))


def _flatten(operation: object) -> list[TrainOp]:
    if operation is None:
        return []
    if isinstance(operation, TrainOp):
        return [operation]
    if isinstance(operation, (tuple, list)):
        return [op for member in operation for op in _flatten(member)]
    raise ArgumentError(
        f"A train_op is the result of minimize or apply_gradients, or a group of them. Received: {operation!r}. Use an "
        "optimizer of lockstep.estimator.train, or lockstep.estimator.train.minimize(loss, optimizer) for one of Keras "
        "or optax."
    )


def batches_of_update(ops: Sequence[TrainOp]) -> int | None:
    """Returns over how many batches gradients are averaged for an update; `None` if each batch is one.

    Raises:
        ArgumentError: If the operations of a step differ in it.
    """
    numbers = {op.batches for op in ops if op.variables}
    if len(numbers) > 1:
        raise ArgumentError(
            "All updates of a step are made of the same batches. Received: a train_op whose operations average over "
            f"{sorted(n or 1 for n in numbers)} batches. Wrap each optimizer in a SyncReplicasOptimizer with the same "
            "replicas_to_aggregate, or none."
        )
    return numbers.pop() if numbers else None


class MetricOp(tuple[Any, Any]):
    """The result of a metric function: (value, update), both the metric's result after this batch.

    Attributes:
        metric: The keras.metrics.Metric with the state.
    """

    metric: Any

    def __new__(cls, value: Tensor, update: Tensor, metric: Metric) -> MetricOp:
        """Creates the pair."""
        # A pair, as TensorFlow's programs unpack it.
        pair = super().__new__(cls, (value, update))
        pair.metric = metric
        return pair


@dataclass(frozen=True)
class GradientSite:
    """A call in a model_fn that asks for gradients as values, of the variables of these keys."""

    keys: tuple[str, ...]


@dataclass(frozen=True)
class HostNeed:
    """Integers that a model_fn needs for a text, computed on the host before the step.

    Attributes:
        leaf: The path of the text in the data.
        function: Maps an object array of bytes to integers of the same shape.
    """

    leaf: str
    function: Callable[[Any], Any]
    dtype: Any


@dataclass(frozen=True)
class Check:
    """A condition on values of a step, which the host looks at after it.

    Attributes:
        message: The error's, if it does not hold.
        failures: A traced number, above 0 if it does not hold.
    """

    message: str
    failures: Any


@dataclass
class TraceRecords:
    """Records of a call of a model_fn, besides its spec: named values, summaries, checks, uses of gradients, text."""

    checks: list[Check] = field(default_factory=list[Check])
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    summaries: list[SummaryOp] = field(default_factory=list[SummaryOp])
    sites: list[GradientSite] = field(default_factory=list[GradientSite])
    needs: list[HostNeed] = field(default_factory=list[HostNeed])
