"""What a model_fn says, while it is traced, that the step program is to carry out or to hand out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from lockstep.errors import ArgumentError

SummaryKind = Literal["scalar", "histogram", "image", "text"]


@dataclass(frozen=True)
class SummaryOp:
    """A value for TensorBoard.

    Attributes:
        kind: How it is shown.
        tag: Its name.
        value: The array; while a model_fn is traced, a traced one.
        max_outputs: Of images, how many of a batch.
    """

    kind: SummaryKind
    tag: str
    value: Any
    max_outputs: int = 3


class Rule(Protocol):
    """How gradients change variables.

    Attributes:
        hyper: Everything that was traced, such as a learning rate computed in the model_fn. What else a rule holds from
            the trace is dead when `update` runs.
    """

    hyper: dict[str, Any]

    def update(self, scope: Any, gradients: list[Any], variables: list[Any], hyper: dict[str, Any]) -> None:
        """Assigns the variables; runs once per step, after model_fn has returned."""
        ...


@dataclass(frozen=True)
class TrainOp:
    """One update of variables, carried out by the step program.

    Attributes:
        rule: How.
        variables: Which.
        counts: Whether it increments the global step.
        loss: What to take the gradients of; `None` if they are given.
        gradients: One for each variable, `None` where a variable has none; empty if they are to be taken.
    """

    rule: Rule
    variables: tuple[Any, ...]
    counts: bool
    loss: Any = None
    gradients: tuple[Any, ...] = ()

    @classmethod
    def deferred(cls, rule: Rule, loss: Any, variables: Sequence[Any], counts: bool) -> TrainOp:
        """An update whose gradients the step program takes."""
        return cls(rule, tuple(variables), counts, loss=loss)

    @classmethod
    def immediate(cls, rule: Rule, pairs: Sequence[tuple[Any, Any]], counts: bool) -> TrainOp:
        """An update with gradients at hand: (gradient, variable) pairs."""
        return cls(rule, tuple(v for _, v in pairs), counts, gradients=tuple(g for g, _ in pairs))


class GroupOp(tuple[TrainOp, ...]):
    """Several updates, from the same values of the variables, in this order."""


def group(*ops: Any) -> GroupOp:
    """Puts updates (and groups of them) together; `None` is left out.

    Raises:
        ArgumentError: For anything else.
    """
    return GroupOp(op for given in ops for op in _ops(given))


def _ops(given: Any) -> list[TrainOp]:
    if given is None:
        return []
    if isinstance(given, TrainOp):
        return [given]
    if isinstance(given, (tuple, list)):
        return [op for one in given for op in _ops(one)]
    raise ArgumentError(
        f"A train_op is what minimize or apply_gradients returns, or a group of such. Received: {given!r}. Use an "
        "optimizer of lockstep.train, or lockstep.train.minimize(loss, optimizer) for one of Keras or optax."
    )


class MetricOp(tuple[Any, Any]):
    """What a metric function returns: (value, update), both the metric's result after this batch.

    Attributes:
        metric: The keras.metrics.Metric behind it.
    """

    metric: Any

    def __new__(cls, value: Any, update: Any, metric: Any) -> MetricOp:
        """Makes the pair."""
        made = super().__new__(cls, (value, update))
        made.metric = metric
        return made


@dataclass(frozen=True)
class GradientSite:
    """A place where a model_fn asks for gradients as values.

    Attributes:
        keys: Of which variables.
    """

    keys: tuple[str, ...]


@dataclass(frozen=True)
class HostNeed:
    """Numbers that a model_fn wants of a text, computed on the host before the step.

    Attributes:
        leaf: Which leaf of the data, by its path.
        function: Maps an object array of bytes to integers of the same shape.
        dtype: Of the integers.
    """

    leaf: str
    function: Callable[[Any], Any]
    dtype: Any


@dataclass
class Recorded:
    """What one call of a model_fn has said besides its spec."""

    values: dict[str, Any] = field(default_factory=dict[str, Any])
    summaries: list[SummaryOp] = field(default_factory=list[SummaryOp])
    sites: list[GradientSite] = field(default_factory=list[GradientSite])
    needs: list[HostNeed] = field(default_factory=list[HostNeed])
