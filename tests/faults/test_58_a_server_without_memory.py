"""Row 58: a server has no memory for an update: it ends, and is started again as one that was killed."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep._engine.servers.closures.store import PREFIX
from lockstep._engine.servers.messages import Message
from lockstep._engine.servers.server import ServerService


class _Full:
    """A state, or a store, without memory."""

    def handle(self, message: Message) -> Message:
        raise MemoryError(message.kind)

    def assign(self, *given: Any) -> None:
        raise MemoryError(given[0])


@pytest.mark.parametrize("kind", ["assign", f"{PREFIX}assign"])
def test_58_the_error_ends_the_server_and_reaches_who_has_asked(kind: str) -> None:
    full: Any = _Full()
    service = ServerService(0, full)
    service.store = full
    service._spec = full  # pyright: ignore[reportPrivateUsage]
    facts = {"name": "w", "start": 0, "stop": 1}
    answer = service.handle(Message(kind, facts, {"value": full}))
    assert answer.kind == "error" and answer.facts["message"].startswith("MemoryError")
    # Its main thread raises this, the process ends, and the launcher starts it again.
    assert isinstance(service.wait_for_failure(0), MemoryError)
