"""Intervals of hooks: the number of steps until a hook must be called."""

from __future__ import annotations

import functools

from lockstep.estimator._hooks._base import GLOBAL_STEP, SessionRunContext, SessionRunHook
from lockstep.estimator._types import Hook

_AROUND_STEPS = frozenset({"before_run", "after_run"})


def next_call(hook: Hook, step: int) -> int | None:
    """Returns the step after which a hook must be called next, or None for never; `step` for after the next run.

    Args:
        hook: The hook.
        step: Number of steps done.
    """
    # A hook without `before_run` and `after_run` of its own does not limit how many steps one dispatch runs.
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
    """Returns whether a class' `next_step` is valid: no method behind it is overridden alone."""
    for one in kind.__mro__:
        if "next_step" in vars(one):
            return True
        if _AROUND_STEPS & vars(one).keys():
            return False
    return False
