"""Links between launchers, a star around that of node 0: their ends show that somebody has failed or is gone.

They are the connections of the rendezvous, kept for as long as an attempt runs. A launcher whose tasks have all
finished well sends one byte. One whose tasks have failed closes its link, and so does the kernel of one that was
killed; a machine that is cut off is found by TCP's keep-alive. What has happened is told at the next rendezvous.
"""

from __future__ import annotations

import contextlib
import socket
import threading

_FINISHED = b"."
# Probes of the kernel within the limit of silence; the last one that is not answered ends the connection.
_PROBES = 4


class Links:
    """The links of one launcher: of node 0 to all others, of any other one to node 0.

    Attributes:
        failed: The nodes whose link has ended.
        finished: The nodes whose tasks have all finished well; node 0 says so when those of all nodes have.
    """

    def __init__(self, silence: float) -> None:
        self.failed: set[int] = set()
        self.finished: set[int] = set()
        self._silence = silence
        self._links: dict[int, socket.socket] = {}
        # The rendezvous adds links on its own thread, which may still run when this launcher leaves.
        self._lock = threading.Lock()
        self._is_closed = False

    def add(self, node: int, link: socket.socket) -> None:
        """Keeps the connection with the launcher of a node."""
        interval = max(1, int(self._silence / (2 * _PROBES)))
        settings = {"TCP_KEEPIDLE": 4 * interval, "TCP_KEEPINTVL": interval, "TCP_KEEPCNT": _PROBES}
        with contextlib.suppress(OSError):
            link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in settings.items():
                if hasattr(socket, name):  # macOS has other names for some.
                    link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        link.setblocking(False)
        with self._lock:
            if self._is_closed:
                link.close()
            else:
                self._links[node] = link

    def poll(self) -> None:
        """Notes who has finished or failed since the last time."""
        for node, link in list(self._links.items()):
            try:
                data = link.recv(16)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError:
                data = b""
            if not data:
                self.failed.add(node)
                self._links.pop(node).close()
            elif _FINISHED in data:
                self.finished.add(node)

    def finish(self) -> None:
        """Says that the tasks have finished well."""
        for link in self._links.values():
            # One that has gone is found by `poll`.
            with contextlib.suppress(OSError):
                link.send(_FINISHED)

    def close(self) -> None:
        """Closes all links, which tells the others that the attempt has failed."""
        with self._lock:
            self._is_closed = True
            for link in self._links.values():
                link.close()
            self._links.clear()
