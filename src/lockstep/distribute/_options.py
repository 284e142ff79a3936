"""Options of `Strategy.run`, and of what replicas do by themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lockstep._types import PyTree
from lockstep.distribute._communication import CommunicationOptions
from lockstep.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from lockstep._engine.step.replicas import BatchStatistics, LocalSGDOptions, Replicas


@dataclass(frozen=True)
class RunOptions:
    """How `Strategy.run` runs a function.

    Attributes:
        donate_argnums: Numbers of positional arguments that the caller gives away: their arrays may be overwritten with
            the results, which saves a copy of them in memory, and must not be used after the call. For the state of a
            loop, such as parameters and an optimizer's state. Default: none.
        experimental_enable_dynamic_batch_size: Must be True: batches of any size run, each compiled once.
        experimental_bucketizing_dynamic_shape: Must be False.
        experimental_xla_options: Must be `None`.

    Raises:
        ArgumentError: If `donate_argnums` is no sequence of non-negative integers.
        UnsupportedError: If anything else is asked for.

    Source: tf.distribute.RunOptions; `donate_argnums` is lockstep's, after jax.jit's.
    """

    donate_argnums: tuple[int, ...] = ()
    experimental_enable_dynamic_batch_size: bool = True
    experimental_bucketizing_dynamic_shape: bool = False
    experimental_xla_options: Any = None

    def __post_init__(self) -> None:
        """Refuses what cannot be done."""
        given: PyTree = self.donate_argnums
        numbers = (given,) if type(given) is int else tuple(given) if isinstance(given, (tuple, list)) else None
        if numbers is None or any(type(n) is not int or n < 0 for n in numbers):
            raise ArgumentError(
                f"donate_argnums must be numbers of positional arguments. Received: {given!r}. Example: (0,)"
            )
        # A tuple, also of a list: options are a part of the key by which compiled programs are kept.
        object.__setattr__(self, "donate_argnums", numbers)
        self._refuse("experimental_enable_dynamic_batch_size", True)
        self._refuse("experimental_bucketizing_dynamic_shape", False)
        self._refuse("experimental_xla_options", None)

    def _refuse(self, name: str, only: Any) -> None:
        if getattr(self, name) is not only:
            raise UnsupportedError(
                f"{name} concerns TPUs under TensorFlow; here it can only be {only!r}. Received: "
                f"{getattr(self, name)!r}. Leave it out."
            )


NO_OPTIONS = RunOptions()


def run_options(value: PyTree) -> RunOptions:
    """Returns options as they are given: `None` for none, a `RunOptions`, or TensorFlow's with its fields.

    Raises:
        ArgumentError: For anything else.
    """
    if value is None:
        return NO_OPTIONS
    if isinstance(value, RunOptions):
        return value
    # TensorFlow's RunOptions is a namedtuple.
    fields: Mapping[str, Any] | None = value._asdict() if hasattr(value, "_asdict") else None
    if fields is None or not set(fields) <= set(RunOptions.__dataclass_fields__):
        raise ArgumentError(
            f"options must be a lockstep.distribute.RunOptions. Received: {value!r}. Example: "
            "RunOptions(donate_argnums=(0,))"
        )
    return RunOptions(**fields)


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
    """Returns what strategies' options say of rounds."""
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
    # Rounds exchange nothing, and moments over all replicas would be an exchange in each step.
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


def check_slots(replicas: Replicas) -> None:
    """Checks `shard_optimizer_state`.

    Raises:
        ArgumentError: If it is no bool.
        UnsupportedError: If other options have steps run once per replica, where each needs the whole of it.
    """
    if type(replicas.shards_optimizer_state) is not bool:
        raise ArgumentError(
            f"shard_optimizer_state must be True or False. Received: {replicas.shards_optimizer_state!r}."
        )
    if replicas.shards_optimizer_state and (replicas.explicit or replicas.local_sgd is not None):
        raise UnsupportedError(
            "With shard_optimizer_state XLA divides the step, and decides what travels. Received it together with "
            "options that have steps run once per replica: communication_options, cross_device_ops, local_steps or "
            'batch_statistics="replica". Leave one of them out.'
        )
