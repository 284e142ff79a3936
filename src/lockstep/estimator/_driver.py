"""Hooks as the loop's listener."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lockstep.estimator._hooks import SessionRunArgs, SessionRunContext, SessionRunValues, next_call
from lockstep.estimator._session import Session


class Driver:
    """Calls hooks before and after each step.

    Args:
        hooks: In the order in which they are called.
        session: What they see.
        is_alone: Whether no other task takes part.
        note: Is told each step's outputs.
    """

    def __init__(
        self, hooks: Sequence[Any], session: Session, is_alone: bool, note: Callable[[dict[str, Any]], None]
    ) -> None:
        self._hooks = list(hooks)
        self._session = session
        self._is_alone = is_alone
        self._note = note
        self._asked: list[tuple[Any, SessionRunContext, SessionRunArgs | None]] = []
        self._due: list[float] = [-math.inf for _ in self._hooks]

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
        """Has hooks that look at steps later look at all of them now."""
        for hook in self._hooks:
            if hasattr(hook, "settle"):
                hook.settle()

    def before(self, step: int) -> None:
        """Asks the hooks that look at this step what they want of it."""
        del step
        following = self._session.step_after
        self._asked = [self._ask(hook) for hook, due in zip(self._hooks, self._due, strict=True) if due <= following]

    def after(self, step: int, outputs: list[Any]) -> bool:
        """Gives the hooks what they wanted; returns whether to stop."""
        del step
        self._session.stepped(outputs[-1])
        self._note(outputs[-1])
        wants_stop = [self._answer(*asked) for asked in self._asked]
        self._due = [self._next(h, due) for h, due in zip(self._hooks, self._due, strict=True)]
        return self._stops(any(wants_stop))

    def _next(self, hook: Any, due: float) -> float:
        """After which step to call a hook next: what knows its pace is not bothered before."""
        done = self._session.global_step
        if due > done or not self._session.counts:
            return due
        following = next_call(hook, done)
        return math.inf if following is None else following

    def _ask(self, hook: Any) -> tuple[Any, SessionRunContext, SessionRunArgs | None]:
        context = SessionRunContext(SessionRunArgs(None), self._session, self._session.increment)
        request = hook.before_run(context)
        if request is not None and not isinstance(request, SessionRunArgs):
            request = SessionRunArgs(request)
        return hook, context, request

    def _answer(self, hook: Any, context: SessionRunContext, request: SessionRunArgs | None) -> bool:
        results = None
        if request is not None and request.fetches is not None:
            results = self._session.fetched(request.fetches, getattr(request, "raw", False))
        hook.after_run(context, SessionRunValues(results, None, None))
        return context.stop_requested

    def _stops(self, is_wanted: bool) -> bool:
        """All tasks stop after the same step: with others, when all have been told."""
        if is_wanted and self._is_alone:
            self._session.is_stopping = True
        elif is_wanted:
            self._session.ask("stop")
        if not self._is_alone and self._session.told("stop"):
            self._session.is_stopping = True
        return self._session.is_stopping
