"""Options of `Strategy.run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.errors import ArgumentError, UnsupportedError


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
        given: Any = self.donate_argnums
        numbers = (given,) if type(given) is int else tuple(given) if isinstance(given, (tuple, list)) else None
        if numbers is None or any(type(n) is not int or n < 0 for n in numbers):
            raise ArgumentError(
                f"donate_argnums must be numbers of positional arguments. Received: {given!r}. Example: (0,)"
            )
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


def run_options(value: Any) -> RunOptions:
    """Returns options as they are given: `None` for none, a `RunOptions`, or TensorFlow's with its fields.

    Raises:
        ArgumentError: For anything else.
    """
    if value is None:
        return NO_OPTIONS
    if isinstance(value, RunOptions):
        return value
    fields: Mapping[str, Any] | None = value._asdict() if hasattr(value, "_asdict") else None
    if fields is None or not set(fields) <= set(RunOptions.__dataclass_fields__):
        raise ArgumentError(
            f"options must be a lockstep.distribute.RunOptions. Received: {value!r}. Example: "
            "RunOptions(donate_argnums=(0,))"
        )
    return RunOptions(**fields)
