"""The gang of several machines without a scheduler: a launcher on each, as with torchrun.

The launchers meet before each attempt and after it, at the address of node 0's: in the rendezvous of lockstep's own
tasks, with its limits, its secret, and its words for who is missing. Before an attempt each says which tasks it has and
where, and node 0 answers with the cluster; after it each says how its tasks have ended, and node 0 decides for all.
In between they only watch each other's links.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from lockstep._engine.runtime import addresses, authentication, fingerprint
from lockstep._engine.runtime.limits import Deadline, Limits
from lockstep._engine.runtime.rendezvous import RendezvousServer, Roster
from lockstep._engine.runtime.rendezvous_client import RendezvousClient
from lockstep._launch.budget import Budget
from lockstep._launch.console import Console
from lockstep._launch.failures import Decision, Failure, failure_of
from lockstep._launch.gang import Placement, Verdict
from lockstep._launch.node_links import Links
from lockstep._launch.options import Options
from lockstep._launch.root_cause import Outcome, title
from lockstep._launch.supervisor import Interrupts
from lockstep._launch.task import Task, tasks_of
from lockstep.errors import ArgumentError, MissingTaskError

Hellos = Sequence[Mapping[str, Any]]
Answer = dict[str, Any]
_Value = TypeVar("_Value")

# Kinds of which a cluster has one task.
_SINGLE = ("chief", "evaluator")
# Seconds between two looks at signals, links, and the rendezvous.
_TICK = 0.05
# Seconds until it is said who has not finished yet.
_PATIENCE = 10.0
# In which all have to come to the meeting after an attempt, beyond the time that they have to end their tasks.
_MEETING = 30.0


@dataclass(frozen=True)
class Meeting:
    """A meeting of all launchers.

    Attributes:
        rule: What is demanded of all, for the message about one that does not come.
        answer: Makes node 0's answer of what all have said.
        seconds: How long node 0 waits for the others.
        spare: By how much the others wait longer for node 0, which comes later.
        keep: Takes the connections afterwards; without it they are closed.
    """

    rule: str
    answer: Callable[[Hellos], Answer]
    seconds: float
    spare: float = 0.0
    keep: Callable[[int, socket.socket], None] | None = None


class Nodes:
    """The gang of launchers on several machines; this one is `options.node_rank`.

    Raises:
        ArgumentError: The launchers are on several machines, and there is no secret.
        AddressError: The rendezvous' host does not resolve.
    """

    def __init__(self, options: Options, interrupts: Interrupts, console: Console) -> None:
        assert options.rendezvous is not None and options.node_rank is not None
        self.tasks = tasks_of(options)
        self._options = options
        self._rank = options.node_rank
        self._interrupts = interrupts
        self._console = console
        self._limits = Limits.from_environment()
        self._secret = authentication.secret_from_environment()
        others = [f"address of node {rank} unknown" for rank in range(1, options.nnodes)]
        self._addresses = (options.rendezvous, *others)
        self.host = options.node_address or self._own_host(options.rendezvous)
        self._demand_secret(options.rendezvous)
        self.budget = Budget(options)
        self._own_secret, self._own_run_id = secrets.token_hex(32), secrets.token_hex(16)
        self._links = Links(self._limits.silence)
        self._meetings = 0

    def place(self, addresses: Sequence[str]) -> Placement | None:
        """Meets the others and returns the cluster of all nodes' tasks, in the order of the nodes.

        Raises:
            MissingTaskError: A node has not arrived within `--join-timeout`.
            MismatchError: The nodes disagree about their number or versions, or have two tasks of which there is one.
        """
        self._links.close()
        self._links = Links(self._limits.silence)
        mine = [[task.kind, address] for task, address in zip(self.tasks, addresses, strict=True)]
        rule = (
            f"Each of {self._options.nnodes} machines must run `lockstep run --nnodes {self._options.nnodes} "
            f"--rendezvous {self._addresses[0]}` with a --node-rank of its own."
        )
        seconds = self._options.join_timeout or self._limits.join
        answer = self._meet(Meeting(rule, self._cluster, seconds, keep=self._links.add), {"tasks": mine})
        if answer is None:
            return None
        firsts: Mapping[str, int] = answer["firsts"][self._rank]
        placed = [Task(task.kind, task.index + firsts[task.kind]) for task in tasks_of(self._options)]
        self.tasks = placed
        return Placement(placed, answer["cluster"], answer["secret"], answer["run_id"])

    def failure(self) -> str:
        """Returns which node has failed or is gone; node 0 passes that on to all others."""
        self._links.poll()
        if not self._links.failed:
            return ""
        who = ", ".join(f"node {node}" for node in sorted(self._links.failed))
        self._links.close()
        return (
            f"The tasks of {who} have failed, or it is gone" if self._rank == 0 else "The tasks of a node have failed"
        )

    def fail(self) -> None:
        """Ends the links."""
        self._links.close()

    def decide(self, outcome: Outcome) -> Verdict:
        """Waits for the ends of all nodes' tasks; node 0 decides for all what follows.

        Raises:
            MissingTaskError: A node is gone.
        """
        report = self._report(outcome)
        # An evaluator's failure ends nobody else's tasks.
        if outcome.signal is not None or (outcome.cause is not None and not outcome.cause.task.is_evaluator):
            self._links.close()
        elif self._wait_for_others() is None:
            return self._interrupted()
        # Each kills its own tasks first. Then all come; who does not is gone.
        rule = "When the tasks have ended, the launchers of all machines meet again; who does not come is gone."
        seconds = self._options.end_grace + self._limits.silence + _MEETING
        answer = self._meet(Meeting(rule, self._judgement, seconds, spare=seconds), {"end": report})
        if answer is None:
            return self._interrupted()
        return Verdict(Decision(**answer["decision"]), int(answer["code"]), self._elsewhere(answer))

    def close(self) -> None:
        """Ends the links."""
        self._links.close()

    def _own_host(self, rendezvous: str) -> str:
        """Returns the address of this machine from which it reaches the rendezvous; node 0 is at the rendezvous."""
        if self._rank == 0:
            return addresses.split(rendezvous)[0]
        deadline = Deadline(self._options.join_timeout or self._limits.join)
        found = addresses.resolve(rendezvous, "node 0", deadline)
        return next((ip for each in found if (ip := addresses.local_address_towards(each))), found[0].ip)

    def _demand_secret(self, rendezvous: str) -> None:
        hosts = (addresses.split(rendezvous)[0], self.host)
        if not self._secret.is_set and not all(map(addresses.is_local, hosts)):
            raise ArgumentError(
                "Launchers on several machines must share a secret, or whoever reaches the rendezvous can start "
                f"programs' tasks in their place. Received: --rendezvous {rendezvous}, and no "
                f"{authentication.VARIABLE}. Set {authentication.VARIABLE}, or {authentication.FILE_VARIABLE}, to the "
                'same on all machines, such as the output of: python -c "import secrets; print(secrets.token_hex(32))"'
            )

    def _meet(self, meeting: Meeting, said: Mapping[str, Any]) -> Answer | None:
        """Tells node 0 what this node says, and returns what it makes of what all say; nothing after a signal.

        Raises:
            MissingTaskError: A node does not come.
            MismatchError: The nodes disagree.
        """
        self._meetings += 1
        hello = {
            "task": f"node {self._rank}",
            "versions": fingerprint.installed_versions(),
            "cluster": {},
            "nnodes": self._options.nnodes,
            **said,
        }
        names = tuple(f"node {rank}" for rank in range(self._options.nnodes))
        # Numbered, as attempts are: who is at another meeting is refused.
        roster = Roster(names, self._addresses, self._meetings)
        call = self._serve if self._rank == 0 else self._call
        try:
            return self._unless_interrupted(lambda: call(meeting, roster, hello))
        except MissingTaskError as error:
            raise MissingTaskError(f"{meeting.rule} {error}") from error

    def _serve(self, meeting: Meeting, roster: Roster, hello: Mapping[str, Any]) -> Answer:
        said: list[Mapping[str, Any]] = []

        def check(hellos: list[Any]) -> str | None:
            said[:] = hellos
            return _disagreement(hellos)

        server = RendezvousServer(roster, hello, check, self._secret, None, meeting.seconds)
        server.collect().close()
        found = meeting.answer(said)
        server.release(meeting.keep, answer=found)
        return found

    def _call(self, meeting: Meeting, roster: Roster, hello: Mapping[str, Any]) -> Answer:
        client = RendezvousClient(roster, self._rank, hello, self._secret)
        return client.report(meeting.seconds + meeting.spare, meeting.keep).verdict["answer"]

    def _unless_interrupted(self, call: Callable[[], _Value]) -> _Value | None:
        """Returns what `call` returns, or nothing once a signal has come: the call is left to itself then."""
        results: list[_Value] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(call())
            except BaseException as error:
                errors.append(error)

        # No task is started, which forks, while the thread runs.
        thread = threading.Thread(target=run, name="lockstep-rendezvous", daemon=True)
        thread.start()
        while thread.is_alive() and not self._interrupts.any:
            thread.join(_TICK)
        if errors:
            raise errors[0]
        return results[0] if results else None

    def _wait_for_others(self) -> bool | None:
        """Waits, after this node's tasks have finished, for those of all others; returns nothing after a signal."""
        others = set(range(self._options.nnodes)) - {self._rank} if self._rank == 0 else {0}
        if self._rank:
            self._links.finish()
        deadline, patience = time.monotonic() + self._limits.leave, time.monotonic() + _PATIENCE
        while not self._interrupts.any:
            self._links.poll()
            waited_for = others - self._links.finished
            if self._links.failed or not waited_for:
                break
            if time.monotonic() > min(deadline, patience):
                names = ", ".join(f"node {node}" for node in sorted(waited_for))
                self._console.note(f"The tasks of this node have finished; waiting for {names}.")
                patience = float("inf")
            if time.monotonic() > deadline:
                break
            time.sleep(_TICK)
        else:
            return None
        if self._rank == 0 and not self._links.failed and others <= self._links.finished:
            self._links.finish()
        elif self._rank == 0:
            self._links.close()
        return True

    def _interrupted(self) -> Verdict:
        self._links.close()
        return Verdict(Decision(False, ""), 128 + (self._interrupts.take() or 0))

    def _report(self, outcome: Outcome) -> dict[str, Any]:
        """Returns how this node's tasks have ended, as JSON."""
        report: dict[str, Any] = {"signal": outcome.signal, "code": outcome.code}
        if (cause := outcome.cause) is not None:
            report |= {
                "title": title(cause).removeprefix("lockstep: "),
                "failure": asdict(failure_of(outcome.progress, cause)),
                "rank": [cause.task.is_evaluator, cause.rank, cause.time],
            }
        return report

    def _cluster(self, hellos: Hellos) -> Answer:
        """Returns the addresses of all tasks by kind, and the number of each node's first task of a kind."""
        cluster: dict[str, list[str]] = {}
        firsts: list[dict[str, int]] = []
        for hello in hellos:
            firsts.append({kind: len(cluster.get(kind, ())) for kind, _ in hello["tasks"]})
            for kind, address in hello["tasks"]:
                cluster.setdefault(kind, []).append(address)
        return {"cluster": cluster, "firsts": firsts, "secret": self._own_secret, "run_id": self._own_run_id}

    def _judgement(self, hellos: Hellos) -> Answer:
        """Returns the decision for all, from how each node's tasks have ended."""
        ends = [hello["end"] for hello in hellos]
        for node, end in enumerate(ends):
            if end["signal"] is not None:
                return _answer(Decision(False, ""), end["code"], node, f"node {node} was asked to end")
        failed = [node for node, end in enumerate(ends) if "failure" in end]
        if not failed:
            return _answer(Decision(False, ""), max(end["code"] for end in ends), 0, "")
        # By the distance from the root cause before time, as on one machine; clocks may differ.
        node = min(failed, key=lambda each: ends[each]["rank"])
        end = ends[node]
        if end["rank"][0]:
            return _answer(Decision(False, ""), end["code"], node, end["title"])
        steps = [each["failure"]["step"] for each in ends if "failure" in each and each["failure"]["step"] is not None]
        dispatches = max(ends[each]["failure"]["dispatches"] for each in failed)
        furthest: dict[str, Any] = {"step": max(steps, default=None), "dispatches": dispatches}
        failure = Failure(**{**end["failure"], **furthest})
        return _answer(self.budget.decide(failure), end["code"], node, end["title"])

    def _elsewhere(self, answer: Answer) -> str:
        if answer["node"] == self._rank or not answer["what"]:
            return ""
        return f"On node {answer['node']}: {answer['what']}."


def _answer(decision: Decision, code: int, node: int, what: str) -> Answer:
    return {"decision": asdict(decision), "code": code, "node": node, "what": what}


def _disagreement(hellos: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns in what the nodes differ that must be equal, or which task there is twice."""
    names = [str(hello.get("task")) for hello in hellos]
    for what in ("nnodes", "versions"):
        if found := fingerprint.first_difference([hello.get(what) for hello in hellos], names):
            return (
                f"All launchers must have the same {what}. {found}. Give all the same --nnodes, and the same "
                "environment (a lock file, one container image)."
            )
    tasks = [(kind, address) for hello in hellos for kind, address in hello.get("tasks", ())]
    counts = Counter(kind for kind, _ in tasks)
    for kind in _SINGLE:
        if counts[kind] > 1:
            nodes = [name for name, hello in zip(names, hellos, strict=True) if kind in dict(hello["tasks"])]
            return f"A cluster has one {kind}. {' and '.join(nodes)} start one. Give --{kind} on one machine."
    counts = Counter(address for _, address in tasks)
    if doubled := [address for address, count in counts.items() if count > 1]:
        return (
            f"Each task must have an address of its own. {', '.join(doubled)} is that of two. Give each machine its "
            "own --node-address, and launchers on one machine different --port-base."
        )
    return None
