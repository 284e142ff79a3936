"""How long a task of a job with parameter servers tries to reach a server that does not answer."""

from __future__ import annotations

import time
from collections.abc import Mapping

from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers.coordinator import Coordinator
from lockstep._engine.servers.messages import Message, Superseded
from lockstep._engine.servers.place import Channel
from lockstep.errors import PeerError

# Between two questions to the chief about a server.
_ASK_SECONDS = 0.5


class Reachability:
    """Decides how long a task tries to reach a server that does not answer."""

    def __init__(
        self, task: str, channel: Channel, coordinator: Coordinator | None, servers: Mapping[str, str], limits: Limits
    ) -> None:
        self._task, self._channel, self._coordinator = task, channel, coordinator
        self._servers, self._limits = servers, limits
        self._asked = 0.0

    def check(self, server: str, seconds: float, generation: int) -> None:
        """Raises what ends the wait for a server that has not answered for so long.

        Raises:
            Superseded: If the servers have gone on to another generation, or the chief's program has ended.
            PeerError: If the chief reaches that server, and this task does not.
        """
        if self._coordinator is not None:
            self._coordinator.check()
            if self._coordinator.state.generation != generation:
                raise Superseded("the servers are of another generation")
            return
        if time.monotonic() - self._asked < _ASK_SECONDS:
            return
        self._asked = time.monotonic()
        facts = self._channel.ask(Message("state", {})).facts
        if facts.get("ended"):
            # Others have computed what this task would push, and servers may have ended, too.
            raise Superseded("the chief's program has ended")
        if facts.get("generation") != generation:
            raise Superseded("the servers are of another generation")
        if server not in facts.get("missing", []) and seconds > self._limits.silence:
            raise PeerError(
                f"Every worker must reach every server. {self._task} has not reached {server} "
                f"({self._servers[server]}) for {seconds:.0f} s (LOCKSTEP_SILENCE_TIMEOUT), and the chief has. Look at "
                "the network between the two machines."
            )
