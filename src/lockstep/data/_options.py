"""Options of datasets, and the argument of an input function."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from lockstep.errors import ArgumentError

AUTOTUNE = -1
"""Size of a buffer, or number of calls at a time, that lockstep chooses."""
INFINITE_CARDINALITY = -1
"""Cardinality of a dataset that repeats without end."""
UNKNOWN_CARDINALITY = -2
"""Cardinality of a dataset whose number of elements only reading it tells."""


class AutoShardPolicy(enum.IntEnum):
    """Policies of sharding a dataset among workers. Source: tf.data.experimental.AutoShardPolicy.

    * AUTO: as DATA, so that the global batches do not depend on the number of workers.
    * FILE: each worker reads some of the files. Every example is still seen once.
    * DATA: all workers follow the same order, and each computes its share of every global batch.
    * HINT: each worker takes the part that `shard(SHARD_HINT, SHARD_HINT)` marks.
    * OFF: each worker reads the whole dataset; every example is seen once per worker.
    """

    OFF = -1
    AUTO = 0
    FILE = 1
    DATA = 2
    HINT = 3


SHARD_HINT = -1
"""Stands for the number of workers, and for a worker's number, in `shard`, under AutoShardPolicy.HINT."""


@dataclass
class DistributeOptions:
    """Options of how a strategy distributes a dataset.

    Attributes:
        auto_shard_policy: How it is divided among workers. Default: AUTO.
        num_devices: Must be None: strategies know their devices.
    """

    auto_shard_policy: AutoShardPolicy = AutoShardPolicy.AUTO
    num_devices: int | None = None

    def __setattr__(self, name: str, value: object) -> None:
        """Checks the value, and sets it."""
        if name == "auto_shard_policy":
            try:
                # By name or number, as TensorFlow's enums are often given.
                value = AutoShardPolicy[value.upper()] if isinstance(value, str) else AutoShardPolicy(value)
            except (KeyError, ValueError):
                names = ", ".join(p.name for p in AutoShardPolicy)
                raise OptionTypeError(f"auto_shard_policy must be one of {names}. Received: {value!r}.") from None
        # Accepted and ignored it would mislead.
        if name == "num_devices" and value is not None:
            raise ArgumentError(f"num_devices must be None: the strategy knows its devices. Received: {value}.")
        set_option(self, name, value)


@dataclass
class ThreadingOptions:
    """Options of the threads that compute elements.

    Attributes:
        private_threadpool_size: How many threads compute elements at once, at most; `None` or 0: one per core.
        max_intra_op_parallelism: Must be None or 1: an element is computed by one thread.
    """

    private_threadpool_size: int | None = None
    max_intra_op_parallelism: int | None = None

    def __setattr__(self, name: str, value: object) -> None:
        """Checks the value, and sets it."""
        if name == "max_intra_op_parallelism" and value not in (None, 1):
            raise OptionTypeError(f"max_intra_op_parallelism must be None or 1. Received: {value!r}.")
        if name == "private_threadpool_size" and value is not None and (not isinstance(value, int) or value < 0):
            raise OptionTypeError(f"private_threadpool_size must be a whole number, or None. Received: {value!r}.")
        set_option(self, name, value)


@dataclass
class Options:
    """Options of a dataset; see `Dataset.with_options`. Unknown names are refused.

    Attributes:
        experimental_distribute: How it is distributed.
        threading: How many threads compute elements.
        deterministic: May be True, False or None. Elements always come in the same order: False permits another one,
            which is never needed.
        experimental_deterministic: The same under its older name.
    """

    experimental_distribute: DistributeOptions = field(default_factory=DistributeOptions)
    threading: ThreadingOptions = field(default_factory=ThreadingOptions)
    deterministic: bool | None = None

    @property
    def experimental_deterministic(self) -> bool | None:
        """Returns `deterministic`."""
        return self.deterministic

    @experimental_deterministic.setter
    def experimental_deterministic(self, value: bool | None) -> None:
        self.deterministic = value

    @property
    def experimental_threading(self) -> ThreadingOptions:
        """Returns `threading`."""
        return self.threading

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"Options has experimental_distribute, threading and deterministic. Received: {name}. Leave it out: how "
            "elements are computed needs no tuning here."
        )

    def __setattr__(self, name: str, value: object) -> None:
        """Checks the value, and sets it."""
        if name == "deterministic" and not (value is None or isinstance(value, bool)):
            raise OptionTypeError(f"deterministic must be True, False or None. Received: {value!r}.")
        # A setter would be bypassed: this method sees every assignment first.
        if name == "experimental_deterministic":
            name = "deterministic"
        set_option(self, name, value)

    def merge(self, other: Options) -> Options:
        """Returns these options, where `other` does not change them."""
        # A kind of options that has more of them, such as `compat`'s, stays one.
        kind: type[Options] = type(other) if issubclass(type(other), type(self)) else type(self)
        default = kind()
        merged: dict[str, Any] = {}
        for option in fields(kind):
            standard = getattr(default, option.name)
            one, two = (getattr(options, option.name, standard) for options in (self, other))
            if is_dataclass(standard):
                merged[option.name] = _merge(one, two)
            else:
                merged[option.name] = one if two == standard else two
        return kind(**merged)


def _merge(one: Any, other: Any) -> Any:
    kind = type(other) if issubclass(type(other), type(one)) else type(one)
    default = kind()
    # A field at its default does not override one that was set before, as in tf.data.Options.merge.
    merged: dict[str, Any] = {}
    for option in fields(kind):
        standard = getattr(default, option.name)
        first, second = (getattr(options, option.name, standard) for options in (one, other))
        merged[option.name] = first if second == standard else second
    return kind(**merged)


class UnknownOptionError(ArgumentError, AttributeError):
    """An option that there is not."""


class OptionTypeError(ArgumentError, TypeError):
    """A value of an option that is not of its type."""


def set_option(options: Any, name: str, value: object) -> None:
    """Sets an option of a dataclass of them; raises `UnknownOptionError` if it has none of that name."""
    known = [f.name for f in fields(options)]
    if name not in known:
        raise UnknownOptionError(
            f"Cannot set the property {name} on {type(options).__name__}, which has {', '.join(known)}. Leave it out: "
            "how elements are computed needs no tuning here."
        )
    object.__setattr__(options, name, value)


@dataclass(frozen=True)
class InputContext:
    """The index of an input pipeline among those of all workers.

    Attributes:
        num_input_pipelines: How many there are: one per worker.
        input_pipeline_id: Which one this is, from 0.
        num_replicas_in_sync: Over all workers.

    Source: tf.distribute.InputContext.
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def __str__(self) -> str:
        """Returns which pipeline it is, of how many."""
        return (
            f"tf.distribute.InputContext(input pipeline id {self.input_pipeline_id}, total: {self.num_input_pipelines})"
        )

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Returns `global_batch_size / num_replicas_in_sync`.

        Raises:
            ArgumentError: If that is no whole number.
        """
        # TensorFlow raises here, too: batches of one replica must be equal for its means to be those of the global
        # batch.
        if global_batch_size % self.num_replicas_in_sync:
            raise ArgumentError(
                f"The global batch size must be a multiple of the number of replicas, {self.num_replicas_in_sync}. "
                f"Received: {global_batch_size}. Choose another one, or use experimental_distribute_dataset, which "
                "takes any."
            )
        return global_batch_size // self.num_replicas_in_sync
