"""The coordinator's side of workers and servers: a thread for each worker, which sends it closures and waits."""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers.closures.plan import Plan
from lockstep._engine.servers.closures.queue import Closure, ClosureQueue
from lockstep._engine.servers.closures.store import PREFIX
from lockstep._engine.servers.connection import Caller, unwrap_answer
from lockstep._engine.servers.message_channel import MessageChannel
from lockstep._engine.servers.messages import Message
from lockstep._types import Array
from lockstep.errors import LockstepError, MissingTaskError, PeerError

_log = logging.getLogger("lockstep")
_TAKE_SECONDS = 1.0
_CONNECT_SECONDS = 2.0
# Between two attempts with a worker that cannot reach a server.
_PAUSE_SECONDS = 1.0
Ask = Callable[[Message], Message]


class _GoneError(Exception):
    """Error of a worker that does not answer, was started again, or cannot reach a server."""


class ServerClient:
    """All servers, as the coordinator asks them.

    Args:
        servers: By the number of a server: asks it.
        coordinator: The coordinator's own id.
    """

    def __init__(self, servers: Sequence[Ask], coordinator: str) -> None:
        self._servers = tuple(servers)
        self._coordinator = coordinator
        for number in range(len(servers)):
            self.ask(number, "begin")

    def __len__(self) -> int:
        return len(self._servers)

    def end(self) -> None:
        """Says that the program has ended."""
        for number in range(len(self)):
            with contextlib.suppress(LockstepError):
                self.ask(number, "end")

    def ask(self, server: int, kind: str, arrays: Mapping[str, Array] | None = None, **facts: object) -> Message:
        """Returns a server's answer.

        Raises:
            PeerError: If it has lost what this coordinator gave it.
            MissingTaskError: If it cannot be reached.
        """
        request = Message(PREFIX + kind, {**facts, "coordinator": self._coordinator}, arrays or {})
        answer = self._servers[server](request)
        if answer.kind == "lost":
            raise server_lost(f"ps {server}")
        return unwrap_answer(answer, f"ps {server}")


def server_lost(server: str) -> PeerError:
    """Says that a server was started again, so that the variables on it are gone."""
    return PeerError(
        f"{server} was started again, and has lost the variables that it held. Start the program again from a "
        "checkpoint: save one with tf.train.CheckpointManager, or model.save_weights, after join."
    )


class Dispatcher:
    """Sends closures to workers for as long as the program runs.

    Args:
        queue: The closures.
        caller: This process, as workers see it.
        workers: The names and addresses of workers.
        limits: The limits of all waits.
        coordinator: The coordinator's own id.

    Attributes:
        queue: As above.
        limits: As above.
        coordinator: As above.
        connected: The names of workers that are there.
    """

    def __init__(
        self, queue: ClosureQueue, caller: Caller, workers: Mapping[str, str], limits: Limits, coordinator: str
    ) -> None:
        self.queue, self.limits, self.coordinator = queue, limits, coordinator
        self._workers = dict(workers)
        self._is_closed = False
        self.connected: set[str] = set()
        self._alone_since = time.monotonic()
        self._numbers = threading.Lock()
        self._number = 0
        self._links = [
            _WorkerLink(self, number, MessageChannel(caller, name, address, limits))
            for number, (name, address) in enumerate(workers.items())
        ]
        for link in self._links:
            threading.Thread(target=link.run, name=f"lockstep-{link.name}", daemon=True).start()

    @property
    def is_closed(self) -> bool:
        """Returns whether the program has ended."""
        return self._is_closed

    def check(self) -> None:
        """Raises `MissingTaskError` if there has been no worker for longer than the limit."""
        if not self.connected and time.monotonic() - self._alone_since > self.limits.join:
            names = ", ".join(f"{name} ({address})" for name, address in self._workers.items())
            raise MissingTaskError(
                f"At least one worker must be there within {self.limits.join:g} s (LOCKSTEP_JOIN_TIMEOUT). Missing: "
                f"{names}. Start them with tf.distribute.Server(...).join(), or with this program, and the same "
                "cluster in TF_CONFIG."
            )

    def next_number(self) -> int:
        """Returns a number that no message has had."""
        with self._numbers:
            self._number += 1
            return self._number

    def note(self, name: str, is_there: bool) -> None:
        """Notes whether a worker is there."""
        with self._numbers:
            if is_there:
                self.connected.add(name)
            else:
                self.connected.discard(name)
                if not self.connected:
                    self._alone_since = time.monotonic()

    def forget_plans(self) -> None:
        """Has workers forget plans and values, of variables that have moved; nothing is under way."""
        for link in self._links:
            link.forgets = True

    def close(self, is_end: bool) -> None:
        """Leaves the workers, and tells them whether the program has ended."""
        self._is_closed = True
        for link in self._links:
            link.close(is_end)


class _WorkerLink:
    """Connects to one worker, sends closures, and puts those back that it does not finish."""

    def __init__(self, dispatcher: Dispatcher, number: int, channel: MessageChannel) -> None:
        self.name = channel.task
        self.forgets = False
        self._dispatcher, self._number, self._channel = dispatcher, number, channel
        self._queue = dispatcher.queue
        self._limits = dispatcher.limits
        self._coordinator = dispatcher.coordinator
        self._incarnation = ""
        self._platform = ""
        self._known: set[str] = set()
        self._is_there = False

    def run(self) -> None:
        """Works until the program ends."""
        while not self._dispatcher.is_closed:
            try:
                if not self._is_there:
                    self._connect()
                closure = self._queue.take(_TAKE_SECONDS)
            except MissingTaskError:
                continue  # It may come later.
            except LockstepError as error:
                # It is there and refuses: another cluster, other versions, another secret.
                self._queue.fail(None, error)
                return
            if closure is not None:
                self._finish(closure)

    def _connect(self) -> None:
        answer = unwrap_answer(self._ask("begin", seconds=_CONNECT_SECONDS), self.name)
        if answer.facts["incarnation"] != self._incarnation:
            self._incarnation, self._known = answer.facts["incarnation"], set()
        self._platform = str(answer.facts["platform"])
        self._is_there = True
        self._dispatcher.note(self.name, True)
        _log.info("%s is there", self.name)

    def _ask(
        self, kind: str, arrays: Mapping[str, Array] | None = None, seconds: float | None = None, **facts: object
    ) -> Message:
        request = Message(kind, {**facts, "coordinator": self._coordinator}, arrays or {})
        return self._channel.ask(request, seconds)

    def _finish(self, closure: Closure) -> None:
        """Has the worker compute a closure, whatever comes of it."""
        try:
            plan, arrays = closure.prepare(self._number)
        except BaseException as error:
            self._queue.fail(closure, error)
            return
        try:
            answer = self._compute(closure, plan, arrays)
        except (MissingTaskError, _GoneError) as error:
            if not self._dispatcher.is_closed:
                _log.warning("%s has gone: %s. Its closure %s is given to others.", self.name, error, closure.name)
            self._is_there = False
            self._channel.disconnect()
            self._dispatcher.note(self.name, False)
            self._queue.put_back(closure, PeerError(f"No worker has finished {closure.name}: {error}"))
            if isinstance(error, _GoneError):
                time.sleep(_PAUSE_SECONDS)
            return
        except LockstepError as error:
            self._queue.fail(closure, error)
            return
        if answer.kind == "result":
            self._queue.finish(closure, answer.arrays)
        elif answer.kind == "server lost":
            self._queue.fail(closure, server_lost(str(answer.facts["server"])))
        else:
            text = f"{self.name} could not compute {closure.name}. {answer.facts.get('type')}: "
            self._queue.fail(closure, PeerError(text + str(answer.facts.get("message"))))

    def _compute(self, closure: Closure, plan: Plan, arrays: Mapping[str, Array]) -> Message:
        limit = self._limits.silence
        if self.forgets:
            self.forgets = False
            self._known.clear()
            self._ask("forget", seconds=limit)
        number = self._dispatcher.next_number()
        facts = {
            "number": number,
            "ticket": closure.ticket,
            "plan": plan.id,
            "finished": self._queue.finished_below,
        }
        if plan.id not in self._known:
            self._define(plan)
        answer = self._ask("run", arrays, limit, **facts)
        if answer.kind == "unknown plan":
            self._define(plan)
            answer = self._ask("run", arrays, limit, **facts)
        while answer.kind == "wait":
            answer = self._ask("result", seconds=limit, number=number)
        if answer.kind in ("lost", "unknown closure", "unknown plan"):
            raise _GoneError("it was started again")
        if answer.kind == "server missing":
            raise _GoneError(str(answer.facts["message"]))
        return unwrap_answer(answer, self.name)

    def _define(self, plan: Plan) -> None:
        message = plan.message(self._platform)
        answer = self._ask("define", message.arrays, self._limits.silence, **message.facts)
        if answer.kind == "lost":
            raise _GoneError("it was started again")
        unwrap_answer(answer, self.name)
        self._known.add(plan.id)

    def close(self, is_end: bool) -> None:
        """Leaves the worker, and says that the program has ended."""
        with contextlib.suppress(LockstepError):
            # Also a worker that computes nothing of this program's waits for its end.
            if is_end:
                self._ask("end", seconds=_CONNECT_SECONDS)
        self._channel.close()


def new_id() -> str:
    """Returns the id of a coordinator."""
    return secrets.token_hex(8)
