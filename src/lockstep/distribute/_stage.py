"""Functions that run one at a time, each on a thread of its own, and wait for each other where they meet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lockstep.errors import ArgumentError

# How often a wait looks whether the other side still lives.
_LOOK_SECONDS = 1.0


class _Ended(BaseException):  # It is a way out of a function, not an error.
    """Another function has failed."""


@dataclass(eq=False)
class _Actor:
    """One function on its thread."""

    thread: threading.Thread
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    brings: tuple[str, Any] | None = None
    answer: Any = None
    result: Any = None
    error: BaseException | None = None
    has_ended: bool = False


class Stage:
    """Runs functions in turn: each until it meets the others or ends, then the next.

    Args:
        meet: Called on the caller's thread with what a meeting is about, and what each function brings; returns an
            answer for each.
    """

    def __init__(self, meet: Callable[[str, list[Any]], Sequence[Any]]) -> None:
        self._meet = meet
        self._back = threading.Semaphore(0)
        self._actors: list[_Actor] = []
        self._caller = threading.current_thread()
        self._is_over = False

    def run(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """Returns what the functions return.

        Raises:
            ArgumentError: If they meet in different things.
            BaseException: What a function raises, with a note of which.
        """
        for number, function in enumerate(functions):
            target = threading.Thread(target=self._play, args=(number, function), name=f"replica {number}", daemon=True)
            self._actors.append(_Actor(target))
        try:
            return self._played()
        finally:
            self._end()

    def _played(self) -> list[Any]:
        for actor in self._actors:
            actor.thread.start()
        while True:
            for number, actor in enumerate(self._actors):
                self._continue(actor)
                if actor.error is not None:
                    actor.error.add_note(f"It was raised by replica {number} of this process.")
                    raise actor.error
            if all(actor.has_ended for actor in self._actors):
                return [actor.result for actor in self._actors]
            self._answer()

    def _continue(self, actor: _Actor) -> None:
        actor.go.release()
        while not self._back.acquire(timeout=_LOOK_SECONDS):
            if not actor.thread.is_alive():
                return

    def _answer(self) -> None:
        topics = ["the end" if a.brings is None else a.brings[0] for a in self._actors]
        if len(set(topics)) > 1:
            raise ArgumentError(
                "All replicas must come to the same collectives in the same order. Received: "
                f"{'; '.join(f'replica {i}: {topic}' for i, topic in enumerate(topics))}. Look for a condition that "
                "depends on the replica."
            )
        answers = self._meet(topics[0], [a.brings[1] for a in self._actors if a.brings])
        for actor, answer in zip(self._actors, answers, strict=True):
            actor.brings, actor.answer = None, answer

    def meet(self, number: int, topic: str, value: Any) -> Any:
        """Brings a value to a meeting; called by a function, on its thread. Returns its answer."""
        actor = self._actors[number]
        actor.brings = topic, value
        self._back.release()
        self._wait(actor)
        return actor.answer

    def _play(self, number: int, function: Callable[[], Any]) -> None:
        actor = self._actors[number]
        try:
            self._wait(actor)
            actor.result = function()
        except BaseException as error:  # It is raised on the caller's thread.
            actor.error = error
        finally:
            actor.has_ended = True
            self._back.release()

    def _wait(self, actor: _Actor) -> None:
        """Waits for the turn, as long as the caller lives."""
        while not actor.go.acquire(timeout=_LOOK_SECONDS):
            if not self._caller.is_alive():
                raise _Ended
        if self._is_over:
            raise _Ended

    def _end(self) -> None:
        self._is_over = True
        for actor in self._actors:
            actor.go.release()
        for actor in self._actors:
            if actor.thread.ident is not None and not actor.has_ended:
                actor.thread.join(_LOOK_SECONDS)
