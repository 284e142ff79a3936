"""The strategy that is current when no scope is open."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import TYPE_CHECKING

from lockstep.distribute._strategy import Strategy

if TYPE_CHECKING:
    from lockstep._engine.step.replicas import Replicas


class DefaultStrategy(Strategy):
    """One replica on the default device; its scope leaves Keras as it is.

    Source: the default strategy of tf.distribute.
    """

    def __init__(self) -> None:
        super().__init__(None)

    @property
    def num_replicas_in_sync(self) -> int:
        """1."""
        return 1

    @property
    def is_chief(self) -> bool:
        """True."""
        return True

    def _demanded_replicas(self) -> Replicas:
        from lockstep._engine.runtime.runtime import Runtime
        from lockstep._engine.step.replicas import Replicas
        from lockstep.distribute._devices import default_devices

        return Replicas(Runtime(), default_devices()[:1])

    @contextlib.contextmanager
    def scope(self) -> Generator[Strategy]:
        """A context without effect."""
        yield self
