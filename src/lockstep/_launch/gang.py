"""The gang: all tasks of a job, which start together and end together; here those of one machine."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lockstep._launch.budget import Budget
from lockstep._launch.failures import Decision, failure_of
from lockstep._launch.options import Options
from lockstep._launch.root_cause import Outcome
from lockstep._launch.task import LOCAL_HOST, Task, tasks_of


@dataclass(frozen=True)
class Placement:
    """The place of this machine's tasks in the cluster, for one attempt.

    Attributes:
        tasks: Those of this machine.
        cluster: The addresses of all tasks, by kind.
        secret: The secret of the job, unless the environment has one.
        run_id: What tells this launch's files in a directory from those of others.
    """

    tasks: Sequence[Task]
    cluster: Mapping[str, Sequence[str]]
    secret: str
    run_id: str


@dataclass(frozen=True)
class Verdict:
    """Says what follows from the end of an attempt.

    Attributes:
        decision: Whether all start again.
        code: The exit code if they do not.
        elsewhere: The root cause, if it is on another machine.
    """

    decision: Decision
    code: int
    elsewhere: str = ""


class Gang(Protocol):
    """All tasks of a job, as the launcher of one machine sees them."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks of this machine; before the first `place` their numbers are those on this machine."""
        ...

    @property
    def budget(self) -> Budget:
        """The restarts that this launcher allows; on several machines that of node 0 decides."""
        ...

    @property
    def host(self) -> str:
        """The name or address at which the others reach this machine."""
        ...

    def place(self, addresses: Sequence[str]) -> Placement | None:
        """Returns the place of this machine's tasks, with these addresses; nothing after a signal."""
        ...

    def failure(self) -> str:
        """Returns why the attempt has failed on another machine, if it has."""
        ...

    def fail(self) -> None:
        """Lets the others know that the attempt has failed here."""
        ...

    def decide(self, outcome: Outcome) -> Verdict:
        """Decides, together with the others, what follows from the end of the attempt."""
        ...


class Alone:
    """The gang of a launcher that has all tasks on its machine."""

    host = LOCAL_HOST

    def __init__(self, options: Options) -> None:
        self.tasks = tasks_of(options)
        self.budget = Budget(options)
        self._secret, self._run_id = secrets.token_hex(32), secrets.token_hex(16)

    def place(self, addresses: Sequence[str]) -> Placement:
        """Returns the cluster of these tasks alone."""
        # All tasks by kind: so the workers know from the start whether an evaluator belongs to them.
        cluster: dict[str, list[str]] = {}
        for task, address in zip(self.tasks, addresses, strict=True):
            cluster.setdefault(task.kind, []).append(address)
        return Placement(self.tasks, cluster, self._secret, self._run_id)

    def failure(self) -> str:
        """Returns nothing."""
        return ""

    def fail(self) -> None:
        """Does nothing: there are no others."""

    def decide(self, outcome: Outcome) -> Verdict:
        """Decides by the budget of restarts."""
        cause = outcome.cause
        # An evaluator has a budget of its own, and a signal is no reason to start again.
        if outcome.signal is not None or cause is None or cause.task.is_evaluator:
            return Verdict(Decision(False, ""), outcome.code)
        return Verdict(self.budget.decide(failure_of(outcome.progress, cause)), outcome.code)
