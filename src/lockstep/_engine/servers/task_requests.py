"""Answers to what the other tasks of a job with parameter servers ask its chief.

Tasks ask, and the chief answers within a second: an answer "wait" means to ask again. So a wait ends soon after
anything has changed, and both sides notice when the other has gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lockstep._engine.runtime import failure, fingerprint
from lockstep._engine.servers.job_state import CallRecord, JobState
from lockstep._engine.servers.membership import Membership
from lockstep._engine.servers.messages import Message
from lockstep.errors import MismatchError, PeerError

_log = logging.getLogger("lockstep")
# An answer comes after so long at most, so that a connection that is broken is noticed.
ANSWER_SECONDS = 1.0


class TaskRequests:
    """Answers tasks, from the state of the job.

    Args:
        state: The state.
        members: The tasks.
        chief: The name of the chief's task.
    """

    def __init__(self, state: JobState, members: Membership, chief: str) -> None:
        self._state, self._members, self._chief = state, members, chief
        self._handlers: dict[str, Callable[[str, Message], Message]] = {
            "begin": self._begin,
            "opened": self._opened,
            "epoch": self._next_epoch,
            "lease": self._lease,
            "exhausted": self._exhausted,
            "give back": self._give_back,
            "result": self._result,
            "failed": self._failed,
            "state": self._describe,
            "serves": self._serves,
        }

    def handle(self, task: str, message: Message) -> Message:
        """Answers a request of a task, within about a second."""
        self._members.beat(task)
        handler = self._handlers.get(message.kind)
        if handler is None:
            return Message("error", {"error": "PeerError", "message": f"Nobody answers {message.kind!r:.40}."})
        state = self._state
        with state.changed:
            if state.error is not None and message.kind not in ("failed", "state"):
                return Message("error", {"error": "PeerError", "message": str(state.error)})
            return handler(task, message)

    def _wait_until(self, message: Message, is_ready: Callable[[], bool], for_tickets: bool = False) -> bool:
        changed = self._state.tickets if for_tickets else self._state.changed
        end = self._state.clock() + min(float(message.facts.get("seconds", 0.0)), ANSWER_SECONDS)
        while not is_ready():
            left = end - self._state.clock()
            if left <= 0 or self._state.error is not None:
                return False
            changed.wait(left)
        return True

    def _call_of(self, message: Message) -> CallRecord | None:
        number, calls = message.facts.get("call"), self._state.calls
        return calls[number] if isinstance(number, int) and 0 <= number < len(calls) else None

    def _await_call(self, message: Message) -> CallRecord | None:
        """Returns the call of a request, which a chief that was started again may not have reached yet."""
        self._wait_until(message, lambda: self._call_of(message) is not None or self._state.has_ended)
        return self._call_of(message)

    def _answer(self, call: CallRecord | None, status: str, **facts: Any) -> Message:
        """Returns an answer with the state of the call, which every answer tells."""
        if call is not None and call is self._state.current:
            facts |= {
                "serial": -1 if call.epoch is None else call.epoch.serial,
                "epoch over": call.epoch is not None and call.book.is_over(call.epoch.epoch),
            }
        state = self._state
        is_over = state.has_ended or (call is not None and (call.result is not None or call is not state.current))
        return Message(status, {**facts, "generation": state.generation, "over": is_over, "job": state.id})

    def _begin(self, task: str, message: Message) -> Message:
        number, kind, facts = (message.facts.get(name) for name in ("call", "kind", "facts"))
        if not isinstance(number, int) or number < 0:
            return Message("error", {"error": "PeerError", "message": "A call has a number."})
        if not self._wait_until(message, lambda: number < len(self._state.calls) or self._state.has_ended):
            return self._answer(None, "wait", waits="the chief's call")
        if number >= len(self._state.calls):
            return self._answer(None, "ended")
        call = self._state.calls[number]
        found = fingerprint.first_difference([[call.kind, call.facts], [kind, facts]], [self._chief, task])
        if found:
            text = f"All tasks must make the same calls with the same arguments. Call {number} differs. {found}."
            return Message("error", {"error": "MismatchError", "message": text})
        return self._answer(call, "begun")

    def _opened(self, task: str, message: Message) -> Message:
        del task
        call = self._await_call(message)
        if call is None or not self._wait_until(message, lambda: call.opened is not None or call.result is not None):
            return self._answer(call, "wait")
        if call.opened is None:
            return self._answer(call, "ended")
        answer = self._answer(call, "opened")
        return replace(answer, facts={**call.opened.facts, **answer.facts}, arrays=call.opened.arrays)

    def _next_epoch(self, task: str, message: Message) -> Message:
        del task
        call, after = self._await_call(message), message.facts.get("after", -1)

        def is_ready() -> bool:
            assert call is not None
            is_begun = call.epoch is not None and call.epoch.serial > after
            return is_begun or call.result is not None or call is not self._state.current

        if call is None or not self._wait_until(message, is_ready):
            return self._answer(call, "wait")
        if call.result is not None or call.epoch is None or call is not self._state.current:
            return self._answer(call, "ended")
        e = call.epoch
        values = [e.epoch, e.first_batch, e.batches, e.first_ticket, e.extra, e.serial, e.generation]
        return self._answer(call, "epoch", epoch=values)

    def _lease(self, task: str, message: Message) -> Message:
        call = self._call_of(message)
        if call is None or call is not self._state.current:
            return self._answer(call, "ended")
        for number, (generation, ticket, share, names) in enumerate(message.facts.get("done", [])):
            report = {name: message.arrays[f"{number}/{name}"] for name in names}
            self._state.note_done(call, task, generation, ticket, share, report)
        serial, lease = message.facts.get("serial"), None

        def is_ready() -> bool:
            nonlocal lease
            if call.result is not None or call.epoch is None or call.epoch.serial != serial:
                return True
            if call.book.is_over(call.epoch.epoch) or call is not self._state.current:
                return True
            if message.facts.get("wants", True):
                first, last = message.facts.get("first", 0), message.facts.get("last")
                lease = call.book.lease(task, self._state.clock(), first, last)
            return lease is not None

        self._wait_until(message, is_ready, for_tickets=True)
        if lease is None:
            return self._answer(call, "none")
        most, tasks = int(message.facts.get("most", 1)) - 1, self._members.count_computing()
        more = call.book.lease_more(task, self._state.clock(), most, tasks)
        leases = [
            [le.ticket, le.share, le.shares, le.epoch, le.batch, le.generation, dict(le.hyper)] for le in (lease, *more)
        ]
        return self._answer(call, "lease", leases=leases)

    def _exhausted(self, task: str, message: Message) -> Message:
        del task
        call = self._call_of(message)
        if call is not None and call is self._state.current and call.epoch is not None:
            if call.epoch.serial == message.facts.get("serial"):
                try:
                    call.book.exhausted(call.epoch.epoch, int(message.facts["batches"]))
                except MismatchError as error:
                    failure.mark_agreed(error)
                    self._state.end_by(error)
                    return Message("error", {"error": "MismatchError", "message": str(error)})
            self._state.notify()
        return self._answer(call, "noted")

    def _give_back(self, task: str, message: Message) -> Message:
        call = self._call_of(message)
        if call is not None and call is self._state.current:
            call.book.give_back(task, int(message.facts["ticket"]), int(message.facts["share"]))
            self._state.tickets.notify_all()
        return self._answer(call, "noted")

    def _result(self, task: str, message: Message) -> Message:
        del task
        call = self._await_call(message)
        if call is None:
            return self._answer(None, "ended" if self._state.has_ended else "wait")
        if not self._wait_until(message, lambda: call.result is not None or self._state.has_ended):
            return self._answer(call, "wait")
        if call.result is None:
            return self._answer(call, "ended")
        answer = self._answer(call, "result")
        return replace(answer, facts={**answer.facts, **call.result.facts}, arrays=call.result.arrays)

    def _failed(self, task: str, message: Message) -> Message:
        """Ends the job for the error of a task that is not started again."""
        record = message.facts
        text = f"{task} failed first. {record.get('type')}: {record.get('message')}"
        if record.get("final"):
            _log.error("%s", text)
            error = failure.attach_cause(PeerError(text), {"task": task, "type": record.get("type"), "message": text})
            self._state.end_by(error)
        return self._answer(None, "noted")

    def _serves(self, task: str, message: Message) -> Message:
        del message
        self._members.note_serving(task)
        return self._answer(None, "noted")

    def _describe(self, task: str, message: Message) -> Message:
        ended = self._state.has_ended and not (self._members.is_server(task) and self._state.needs_servers)
        missing = self._members.missing_servers()
        return self._answer(self._call_of(message), "state", ended=ended, missing=missing)
