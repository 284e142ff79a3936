"""A model's state that parameter servers hold while it trains: a loop takes and gives nothing of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from lockstep._engine.keras.state import ModelState


class ServedState(ModelState, ABC):
    """Leaves a model's variables on the servers; `sync` says how the model's own follow."""

    def take(self) -> Any:
        """Returns nothing: the state is on the servers."""
        return ()

    def give(self, state: Any) -> None:
        """Takes nothing."""
        del state

    def flush(self, ends: bool) -> None:
        """Has the model's variables follow those of the servers; see `sync`."""
        del ends
        self.sync()

    @abstractmethod
    def sync(self) -> None:
        """Has the model's variables follow those of the servers."""
