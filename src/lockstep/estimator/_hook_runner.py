"""The loop listener that calls hooks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lockstep._engine.step.outputs import Outputs
from lockstep.estimator._hooks import SessionRunArgs, SessionRunContext, SessionRunValues, next_call
from lockstep.estimator._session import Session
from lockstep.estimator._types import Hook

_UNLIMITED = 1 << 30


class HookRunner:
    """Listener of the loop that calls hooks before and after steps.

    Args:
        hooks: The hooks, in order of calls.
        session: The hooks' session.
        is_alone: Whether this is the only process.
        note: Receives the outputs of steps.
    """

    def __init__(self, hooks: Sequence[Any], session: Session, is_alone: bool, note: Callable[[Outputs], None]) -> None:
        self._hooks = list(hooks)
        self._session = session
        self._is_alone = is_alone
        self._note = note
        self._steps = 1
        # Hooks whose `before_run` was called for this step, and `after_run` not yet.
        self._asked: list[tuple[Any, SessionRunContext, SessionRunArgs | None]] = []
        self._wants_stop = False
        # The global step after which to call each hook; in the past for hooks that are called after every dispatch.
        self._due: list[float] = [session.global_step + 1 for _ in self._hooks]

    def create(self) -> None:
        """Calls `after_create_session` of the hooks."""
        for hook in self._hooks:
            hook.after_create_session(self._session, None)

    def end(self) -> None:
        """Calls `end` of the hooks, after a run without errors."""
        self.settle()
        for hook in self._hooks:
            hook.end(self._session)

    def settle(self) -> None:
        """Makes hooks that check steps lazily check all of them now."""
        waiting = [asked for asked in self._asked if hasattr(asked[0], "settle")]
        self._asked = [asked for asked in self._asked if not hasattr(asked[0], "settle")]
        for asked in waiting:
            self._answer(*asked)
        for hook in self._hooks:
            if hasattr(hook, "settle"):
                hook.settle()

    def max_steps(self, step: int) -> int:
        """Returns the maximum number of steps to dispatch before a hook is due."""
        del step
        session = self._session
        if not session.increment:
            return 1
        # A dispatch may run several steps, but a due hook must be called right after its step.
        left = min((due - session.global_step for due in self._due if due > session.global_step), default=math.inf)
        return _UNLIMITED if left == math.inf else max(1, math.ceil(left / session.increment))

    def before(self, step: int, steps: int) -> None:
        """Calls `before_run` of the hooks that are due after these steps."""
        del step
        self._steps = steps
        following = self._session.global_step + steps * self._session.increment
        calls = zip(self._hooks, self._due, strict=True)
        self._asked = [self._ask(h) for h, due in calls if due <= following or not self._session.increment]

    def after(self, step: int, outputs: Outputs) -> bool:
        """Calls `after_run` of these hooks with their values; returns whether to stop."""
        del step
        self._session.record_outputs(outputs, self._steps)
        self._note(outputs)
        self._wants_stop = False
        while self._asked:
            self._answer(*self._asked.pop(0))
        self._due = [self._next(h, due) for h, due in zip(self._hooks, self._due, strict=True)]
        return self._stops(self._wants_stop)

    def _next(self, hook: Hook, due: float) -> float:
        """Returns the step after which to call a hook next, by the hook's own interval if it has one."""
        done = self._session.global_step
        if due > done:
            return due
        following = next_call(hook, done)
        return math.inf if following is None else following

    def _ask(self, hook: Hook) -> tuple[Any, SessionRunContext, SessionRunArgs | None]:
        context = SessionRunContext(SessionRunArgs(None), self._session, self._steps * self._session.increment)
        request = hook.before_run(context)
        if request is not None and not isinstance(request, SessionRunArgs):
            request = SessionRunArgs(request)
        return hook, context, request

    def _answer(self, hook: Hook, context: SessionRunContext, request: SessionRunArgs | None) -> None:
        results = None
        if request is not None and request.fetches is not None:
            results = self._session.fetch(request.fetches, getattr(request, "raw", False))
        hook.after_run(context, SessionRunValues(results, None, None))
        self._wants_stop |= context.stop_requested

    def _stops(self, is_wanted: bool) -> bool:
        """Returns whether to stop; all workers stop after the same step, once all have the signal."""
        if is_wanted and self._is_alone:
            self._session.is_stopping = True
        elif is_wanted:
            self._session.broadcast("stop")
        if not self._is_alone and self._session.has_received("stop"):
            self._session.is_stopping = True
        return self._session.is_stopping
