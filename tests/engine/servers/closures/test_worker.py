"""A worker between two coordinators: what the former one has sent counts for nobody else."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import numpy as np

from lockstep._engine.servers.closures.store import VariableStore
from lockstep._engine.servers.closures.worker import WorkerService, _Closure  # pyright: ignore[reportPrivateUsage]
from lockstep._engine.servers.messages import Message


class _Plan:
    """Reads a variable and sends it back, which adds it to itself."""

    name: ClassVar[str] = "f"
    arguments: ClassVar[tuple[int, ...]] = ()
    results: ClassVar[int] = 0
    programs: ClassVar[Any] = {0: ("add", ((0, None),))}

    def __init__(self, piece: Any) -> None:
        self.pieces = ((piece,),)
        self.reads = {0: [piece]}

    def run(self, value: Any) -> list[Any]:
        return [value]


class _Piece:
    name: ClassVar[str] = "v"
    server: ClassVar[int] = 0
    rows: ClassVar[None] = None


def test_a_closure_of_a_former_coordinator_is_lost() -> None:
    store, asked, go_on = VariableStore(), threading.Event(), threading.Event()

    def ask(message: Message) -> Message:
        if message.kind.endswith("pull"):
            asked.set()
            go_on.wait(10)
        return store.handle(message)

    worker = WorkerService([ask])
    store.handle(Message("closures begin", {"coordinator": "old"}))
    store.handle(Message("closures assign", {"coordinator": "old"}, {"v": np.ones(2, np.float32)}))
    worker.handle(Message("begin", {"coordinator": "old"}))
    plan: Any = _Plan(_Piece())
    facts = {"coordinator": "old", "ticket": 0, "finished": 0, "number": 1, "plan": "0"}
    closure = _Closure(plan, facts, {}, worker._values)  # pyright: ignore[reportPrivateUsage]
    worker._waiting.put(closure)  # pyright: ignore[reportPrivateUsage]
    assert asked.wait(10)
    # Another coordinator comes in between, with a variable of the same name.
    store.handle(Message("closures begin", {"coordinator": "new"}))
    store.handle(Message("closures assign", {"coordinator": "new"}, {"v": np.zeros(2, np.float32)}))
    worker.handle(Message("begin", {"coordinator": "new"}))
    go_on.set()
    assert closure.finished.wait(10) and closure.answer is not None
    assert closure.answer.kind == "server lost"
    assert not worker._values  # pyright: ignore[reportPrivateUsage]
    found = store.handle(Message("closures pull", {"coordinator": "new", "have": {"v": -1}}))
    np.testing.assert_array_equal(found.arrays["v"], [0, 0])
    assert worker.handle(Message("result", {"coordinator": "old", "number": 1})).kind == "lost"
