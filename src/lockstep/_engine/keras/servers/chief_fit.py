"""`Model.fit` on the chief of a job with servers, as the one loop of all trainings sees it."""

from __future__ import annotations

from typing import Any

from lockstep._engine.input import random_state
from lockstep._engine.keras.fit import EpochListener, ModelFit, TrainListener
from lockstep._engine.keras.recovery import Progress, Recovery
from lockstep._engine.keras.servers.chief import ChiefTraining

_ANY = 1 << 30


class ServersFit(ModelFit):
    """A fit whose steps other tasks compute, too.

    Attributes:
        training: The training on the servers.
    """

    training: ChiefTraining

    def about(self) -> dict[str, Any]:
        """Returns facts of the call, for the report of the run."""
        servers = self.owned.servers
        assert servers is not None
        return {**super().about(), **servers.about()}

    def listener(self, epoch: int, recovery: Recovery) -> EpochListener:
        """Returns the listener to the steps of an epoch, which other tasks learn of."""
        listener = TrainListener(self.model, self.callbacks, self.owned, recovery)
        first = recovery.progress.batches
        if self.training.is_synchronous:
            self.training.horizon = listener.max_steps
        else:
            # Callbacks of batches do not hold asynchronous training up; a save does.
            self.training.horizon = lambda step: recovery.max_steps(first + step) or _ANY
        self.training.is_watched = listener.looks_at_steps
        extra = {"random": random_state.snapshot(), "data": self.feed.position()}
        self.training.begin_epoch(epoch, first, self.feed.num_batches, extra)
        return listener

    def flush_mode(self, epoch: int, progress: Progress) -> bool:
        """Ends the epoch on the servers, after its last step."""
        self.training.end_epoch(progress.batches)
        return super().flush_mode(epoch, progress)

    def epoch_logs(self, epoch: int, logs: Any) -> dict[str, Any]:
        """Returns metrics, those of the validation, and how many updates gradients have missed."""
        found = super().epoch_logs(epoch, logs)
        missed = self.training.staleness
        if missed and not self.training.is_ordered:
            found |= {"staleness": sum(missed) / len(missed), "staleness_max": max(missed)}
        return found
