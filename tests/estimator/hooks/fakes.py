"""A session and a loop, as hooks see them, without a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lockstep.estimator._hooks import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    next_call,
)


class FakeSession:
    """Counts steps and has named values; alone, or a task among others.

    Args:
        step: The global step at the start.
        values: Named values; a function is given the global step.
        is_chief: Whether it is the chief.
        is_alone: Whether what it asks for is told at once.
    """

    def __init__(
        self, step: int = 0, values: dict[Any, Any] | None = None, is_chief: bool = True, is_alone: bool = True
    ) -> None:
        self.step = step
        self.values = values or {}
        self.is_chief = is_chief
        self.is_alone = is_alone
        self.saved: list[tuple[int, str, str]] = []
        self.asked: list[tuple[int, str]] = []
        self.words: set[str] = set()

    def run(self, fetches: Any) -> Any:
        return self.fetch(fetches)

    def fetch(self, fetches: Any) -> Any:
        if isinstance(fetches, dict):
            return {key: self.fetch(value) for key, value in fetches.items()}
        if isinstance(fetches, list):
            return [self.fetch(value) for value in fetches]
        if isinstance(fetches, str) and fetches == "global_step":
            return np.int64(self.step)
        key = fetches if isinstance(fetches, str) else id(fetches)
        value = self.values[key]
        return value(self.step) if callable(value) else value

    def save(self, directory: str, basename: str = "model.ckpt") -> str:
        self.saved.append((self.step, directory, basename))
        return f"{directory}/{basename}-{self.step}"

    def broadcast(self, word: str) -> None:
        self.asked.append((self.step, word))
        if self.is_alone:
            self.words.add(word)

    def has_received(self, word: str) -> bool:
        is_told = word in self.words
        self.words.discard(word)
        return is_told


@dataclass
class Run:
    """What a loop has done.

    Attributes:
        session: Its session.
        called: After which steps each hook was called.
        stopped_at: After which step a hook requested stop.
    """

    session: FakeSession
    called: list[list[int]] = field(default_factory=list)
    stopped_at: int | None = None


def run_each(
    hooks: Sequence[SessionRunHook],
    steps: int,
    session: FakeSession | None = None,
    after: Callable[[int], None] | None = None,
    ends: bool = True,
) -> Run:
    """Calls hooks around each step, as long as none requests stop.

    Args:
        hooks: The hooks.
        steps: How many steps to make at most.
        session: The session.
        after: Is told the global step after each step, before the hooks are.
        ends: Whether the run ends well.
    """
    run = started(hooks, session)
    while run.stopped_at is None and steps > 0:
        step_once(run, hooks, list(range(len(hooks))), 1, after)
        steps -= 1
    for hook in hooks if ends else ():
        hook.end(run.session)
    return run


MOST = 64


def run_paced(
    hooks: Sequence[SessionRunHook],
    steps: int,
    session: FakeSession | None = None,
    after: Callable[[int], None] | None = None,
    only_due: bool = True,
) -> Run:
    """Makes as many steps at once as the hooks allow, but no more than `MOST`.

    Args:
        hooks: The hooks.
        steps: How many steps to make.
        session: The session.
        after: Is told the global step after each run, before the hooks are.
        only_due: Whether hooks are not called around runs that are none of their business.
    """
    run = started(hooks, session)
    last = run.session.step + steps
    while run.stopped_at is None and run.session.step < last:
        due = [next_call(hook, run.session.step) for hook in hooks]
        now = run.session.step
        end = min([last, now + MOST, *(step for step in due if step is not None and step > now)])
        who = [i for i, step in enumerate(due) if (step is not None and step <= end) or not only_due]
        step_once(run, hooks, who, end - run.session.step, after)
    for hook in hooks:
        hook.end(run.session)
    return run


def started(hooks: Sequence[SessionRunHook], session: FakeSession | None = None) -> Run:
    session = session or FakeSession()
    for hook in hooks:
        hook.begin()
    for hook in hooks:
        hook.after_create_session(session, None)
    return Run(session, [[] for _ in hooks])


def step_once(
    run: Run,
    hooks: Sequence[SessionRunHook],
    who: Sequence[int],
    steps: int = 1,
    after: Callable[[int], None] | None = None,
) -> None:
    """Makes a run of some steps, and calls some of the hooks around it."""
    session = run.session
    contexts = [SessionRunContext(SessionRunArgs(None), session, steps) for _ in who]
    requests = [hooks[i].before_run(context) for i, context in zip(who, contexts, strict=True)]
    session.step += steps
    if after is not None:
        after(session.step)
    for i, context, request in zip(who, contexts, requests, strict=True):
        results = None if request is None else session.fetch(request.fetches)
        hooks[i].after_run(context, SessionRunValues(results))
        run.called[i].append(session.step)
        if context.stop_requested:
            run.stopped_at = session.step
