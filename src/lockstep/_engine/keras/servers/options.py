"""Holds what a parameter server strategy says of training, for the models of its scope."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from lockstep._engine.keras.servers.tables import Table, TablePolicy, demand_small
from lockstep._engine.servers.job import Job

if TYPE_CHECKING:
    from lockstep._engine.keras.servers.scheduled import Scheduler

Mode = Literal["async", "sync"]
Role = Literal["chief", "worker", "ps"]


@dataclass
class ServedModel:
    """The model whose variables servers hold: one at a time.

    Attributes:
        digest: Of the spec that they were opened with; empty for none.
        tables: Its tables, and those of its optimizer, whose values are only on the servers.
    """

    digest: str = ""
    tables: list[Table] = field(default_factory=list[Table])

    def make_room(self) -> None:
        """Fetches the tables, before servers begin with another model.

        Raises:
            UnsupportedError: If one is too large for this task.
        """
        for table in self.tables:
            if table.is_served:
                demand_small(table.path, table.shape, table.dtype, "another model that trains in the same job")
                table.assign(table.value)
        self.digest, self.tables = "", []


@dataclass(frozen=True)
class ServerOptions:
    """The servers of a strategy, and how models train with them.

    Attributes:
        job: The job.
        role: What this task does in it.
        task: The task's name, for messages.
        mode: Whether updates wait for each other.
        staleness: How many updates a gradient may miss; `None` for no bound.
        shares: Into how many shares a global batch is divided.
        lazy: Whether rows without a gradient stay as they are, whatever the optimizer does.
        log_order: Whether servers log the order of their updates.
        policy: Which weights are tables.
        served: The model whose variables servers hold.
        scheduler: Returns who has workers without a program compute training steps.
    """

    job: Job
    role: Role
    task: str
    mode: Mode = "async"
    staleness: int | None = None
    shares: int = 1
    lazy: bool = False
    log_order: bool = False
    policy: TablePolicy = field(default_factory=TablePolicy)
    served: ServedModel = field(default_factory=ServedModel)
    scheduler: Callable[[], Scheduler] | None = None

    @property
    def is_synchronous(self) -> bool:
        """Returns whether every update waits for all shares of its batch."""
        return self.mode == "sync"

    def about(self) -> dict[str, Any]:
        """Returns how models train, for the report of a run."""
        return {"replicas": self.shares, "parameter servers": self.job.num_servers, "updates": self.mode}
