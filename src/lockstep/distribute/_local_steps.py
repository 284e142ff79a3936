"""Replicas that train by themselves in between: local SGD and DiLoCo."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockstep.distribute._options import CommunicationOptions
from lockstep.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from lockstep._engine.step.replicas import BatchStatistics, LocalSGDOptions, Replicas

_MOST = 2**31 - 1


@dataclass(frozen=True)
class LocalSteps:
    """Has each replica train by itself for a round of steps, with one exchange at its end.

    Each replica makes `every` steps on its share of the batches, with its own weights and its own state of the
    optimizer; no gradients travel. Then the mean of the changes of all replicas' weights is what an outer optimizer,
    SGD with momentum, takes for a gradient; with its result all replicas begin the next round. So there travels about
    1 / `every` of the bytes, and training no longer follows the trajectory of one device.

    In a round, and at the end of an epoch in it, the model is what it was when the round began: for callbacks,
    evaluations and checkpoints. The end of a call of `fit`, `Estimator.train` or `lockstep.training.Program.fit` ends a
    round early, so that nothing is lost. Exact restarts go on in the middle of one. A batch that the replicas cannot
    divide evenly is trained on by each of them as a whole. One replica alone has rounds, too,
    unless they end with a mean and nothing else.

    Attributes:
        every: Steps of a round, a positive integer. The paper takes 500.
        outer_learning_rate: Positive. Default: 0.7, the paper's. With 1 and no momentum the weights are averaged, which
            is local SGD.
        outer_momentum: From 0 to below 1. Default: 0.9, the paper's.
        nesterov: Whether the outer momentum is Nesterov's. Default: True; without momentum it changes nothing.

    Raises:
        ArgumentError: If a value is out of range.

    Source: Douillard et al. 2023, "DiLoCo: Distributed Low-Communication Training of Language Models".
    """

    every: int
    outer_learning_rate: float = 0.7
    outer_momentum: float = 0.9
    nesterov: bool = True

    def __post_init__(self) -> None:
        if type(self.every) is not int or not 0 < self.every <= _MOST:
            raise ArgumentError(f"every must be a positive number of steps. Received: {self.every!r}. Example: 50")
        rate, momentum = self.outer_learning_rate, self.outer_momentum
        if not _is_number(rate) or not 0 < rate < math.inf:
            raise ArgumentError(f"outer_learning_rate must be a positive number. Received: {rate!r}. Example: 0.7")
        if not _is_number(momentum) or not 0 <= momentum < 1:
            raise ArgumentError(f"outer_momentum must be at least 0 and below 1. Received: {momentum!r}. Example: 0.9")
        if type(self.nesterov) is not bool:
            raise ArgumentError(f"nesterov must be True or False. Received: {self.nesterov!r}.")

    def rounds(self) -> LocalSGDOptions:
        """Returns the same for a step program."""
        from lockstep._engine.step.replicas import LocalSGDOptions

        return LocalSGDOptions(self.every, float(self.outer_learning_rate), float(self.outer_momentum), self.nesterov)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def rounds_of(
    local_steps: LocalSteps | None, statistics: str | None, options: CommunicationOptions
) -> LocalSGDOptions | None:
    """Returns what strategies' options say of rounds.

    Raises:
        ArgumentError: If they contradict each other, or `local_steps` is something else.
    """
    if local_steps is None:
        return None
    if not isinstance(local_steps, LocalSteps):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"local_steps must be a LocalSteps. Received: {local_steps!r}. Example: "
            "lockstep.distribute.LocalSteps(every=50)"
        )
    if statistics == "global":
        raise ArgumentError(
            'batch_statistics="global" takes moments over all replicas in each step, and with local_steps they '
            'exchange nothing in a round. Received both. Leave batch_statistics out: it is "replica" then.'
        )
    if options.gradient_dtype is not None or options.power_sgd_rank is not None:
        raise ArgumentError(
            "With local_steps no gradients travel that could be made shorter. Received: local_steps together with "
            f"{options}. Leave gradient_dtype and power_sgd_rank out; a larger `every` saves more."
        )
    return local_steps.rounds()


def statistics_of(value: str | None, local_steps: LocalSteps | None) -> BatchStatistics:
    """Returns over which examples moments are taken; raises `ArgumentError` for an unknown name."""
    return _check_batch_statistics(("global" if local_steps is None else "replica") if value is None else value)


def demand_together(replicas: Replicas) -> None:
    """Raises `UnsupportedError` for functions that say themselves what replicas exchange."""
    if replicas.local_sgd is not None:
        raise UnsupportedError(
            "local_steps concerns training that lockstep drives: fit, Estimator.train and "
            "lockstep.training.Program.fit. Received: strategy.run, whose function says itself what replicas exchange, "
            "and when. Use one of them, or a strategy without local_steps."
        )


def _check_batch_statistics(value: str) -> BatchStatistics:
    if value == "global" or value == "replica":
        return value
    raise ArgumentError(
        'batch_statistics must be "global" (moments over the global batch, as one device would take them) or '
        f'"replica" (over each replica\'s share, as TensorFlow does). Received: {value!r}.'
    )
