"""How many steps may pass until a hook must be called."""

from __future__ import annotations

import functools
from typing import Any

from lockstep.estimator._hooks._base import GLOBAL_STEP, SessionRunContext, SessionRunHook

_AROUND_STEPS = frozenset({"before_run", "after_run"})


def next_call(hook: Any, step: int) -> int | None:
    """Returns after which step a hook must be called next, or None for never; `step` for after the next run.

    Args:
        hook: The hook.
        step: How many steps are done.
    """
    replaced = _AROUND_STEPS & getattr(hook, "__dict__", {}).keys()
    if not replaced and not _looks_at_steps(type(hook)):
        return None
    if replaced or not _knows_pace(type(hook)):
        return step + 1
    following = hook.next_step(step)
    return None if following is None else max(int(following), step)


def step_after(context: SessionRunContext) -> int:
    """Returns the global step after the run that is about to start."""
    return int(context.session.run(GLOBAL_STEP)) + context.steps


@functools.cache
def _looks_at_steps(kind: type) -> bool:
    return any(getattr(kind, name, None) is not getattr(SessionRunHook, name) for name in _AROUND_STEPS)


@functools.cache
def _knows_pace(kind: type) -> bool:
    """Whether `next_step` speaks for what the class does: nothing that it inherits may be overridden alone."""
    for one in kind.__mro__:
        if "next_step" in vars(one):
            return True
        if _AROUND_STEPS & vars(one).keys():
            return False
    return False
