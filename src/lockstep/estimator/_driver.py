"""Hooks as the loop's listener."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lockstep._step.outputs import Outputs
from lockstep.estimator._hooks import SessionRunArgs, SessionRunContext, SessionRunValues, next_call
from lockstep.estimator._session import Session

_UNLIMITED = 1 << 30


class Driver:
    """Calls hooks before and after each step.

    Args:
        hooks: In the order in which they are called.
        session: What they see.
        is_alone: Whether no other task takes part.
        note: Is told what steps hand out.
    """

    def __init__(self, hooks: Sequence[Any], session: Session, is_alone: bool, note: Callable[[Outputs], None]) -> None:
        self._hooks = list(hooks)
        self._session = session
        self._is_alone = is_alone
        self._note = note
        self._steps = 1
        # Whose turn after this step is yet to come.
        self._asked: list[tuple[Any, SessionRunContext, SessionRunArgs | None]] = []
        self._wants_stop = False
        # After which step to call each hook; it may have passed, for one that is called after any dispatch.
        self._due: list[float] = [session.global_step + 1 for _ in self._hooks]

    def create(self) -> None:
        """Tells the hooks that the run is about to start."""
        for hook in self._hooks:
            hook.after_create_session(self._session, None)

    def end(self) -> None:
        """Tells the hooks that the run has ended well."""
        self.settle()
        for hook in self._hooks:
            hook.end(self._session)

    def settle(self) -> None:
        """Has hooks that look at steps later look at all of them now: also at one that they were not called for yet."""
        waiting = [asked for asked in self._asked if hasattr(asked[0], "settle")]
        self._asked = [asked for asked in self._asked if not hasattr(asked[0], "settle")]
        for asked in waiting:
            self._answer(*asked)
        for hook in self._hooks:
            if hasattr(hook, "settle"):
                hook.settle()

    def room(self, step: int) -> int:
        """Returns how many steps may run before a hook has to be called."""
        del step
        session = self._session
        if not session.increment:
            return 1
        left = min((due - session.global_step for due in self._due if due > session.global_step), default=math.inf)
        return _UNLIMITED if left == math.inf else max(1, math.ceil(left / session.increment))

    def before(self, step: int, steps: int) -> None:
        """Asks the hooks that look at these steps what they want of them."""
        del step
        self._steps = steps
        following = self._session.global_step + steps * self._session.increment
        calls = zip(self._hooks, self._due, strict=True)
        self._asked = [self._ask(h) for h, due in calls if due <= following or not self._session.increment]

    def after(self, step: int, outputs: Outputs) -> bool:
        """Gives the hooks what they wanted; returns whether to stop."""
        del step
        self._session.stepped(outputs, self._steps)
        self._note(outputs)
        self._wants_stop = False
        while self._asked:
            self._answer(*self._asked.pop(0))
        self._due = [self._next(h, due) for h, due in zip(self._hooks, self._due, strict=True)]
        return self._stops(self._wants_stop)

    def _next(self, hook: Any, due: float) -> float:
        """After which step to call a hook next: what knows its pace is not bothered before."""
        done = self._session.global_step
        if due > done:
            return due
        following = next_call(hook, done)
        return math.inf if following is None else following

    def _ask(self, hook: Any) -> tuple[Any, SessionRunContext, SessionRunArgs | None]:
        context = SessionRunContext(SessionRunArgs(None), self._session, self._steps * self._session.increment)
        request = hook.before_run(context)
        if request is not None and not isinstance(request, SessionRunArgs):
            request = SessionRunArgs(request)
        return hook, context, request

    def _answer(self, hook: Any, context: SessionRunContext, request: SessionRunArgs | None) -> None:
        results = None
        if request is not None and request.fetches is not None:
            results = self._session.fetched(request.fetches, getattr(request, "raw", False))
        hook.after_run(context, SessionRunValues(results, None, None))
        self._wants_stop |= context.stop_requested

    def _stops(self, is_wanted: bool) -> bool:
        """All tasks stop after the same step: with others, when all have been told."""
        if is_wanted and self._is_alone:
            self._session.is_stopping = True
        elif is_wanted:
            self._session.ask("stop")
        if not self._is_alone and self._session.told("stop"):
            self._session.is_stopping = True
        return self._session.is_stopping
