"""A parameter server: serves its shards to workers, and does what the chief asks.

Each connection has a thread. `ServerState` holds the variables and is safe between threads; this module is what lies
between it and the sockets.
"""

from __future__ import annotations

import json
import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

import jax

from lockstep._engine.runtime.limits import Limits
from lockstep._engine.servers.closures.store import PREFIX, VariableStore
from lockstep._engine.servers.connection import Caller, FrameSocket
from lockstep._engine.servers.exchange import ExchangeCodec
from lockstep._engine.servers.message_channel import MessageChannel
from lockstep._engine.servers.messages import (
    BEAT,
    EXCHANGE,
    HEADER,
    MESSAGE,
    PROBLEM,
    REPLY,
    Message,
    ProtocolError,
    decode,
    encode,
)
from lockstep._engine.servers.replies import Replies
from lockstep._engine.servers.requests import JobSpec, Pull, Push, Reply, Request
from lockstep._engine.servers.server_group import spec_of_message
from lockstep._engine.servers.server_state import ServerState
from lockstep._engine.servers.signs_of_life import Answering, SignsOfLife
from lockstep.errors import CheckpointError, MismatchError, UnsupportedError

_log = logging.getLogger("lockstep")
_MAX_PROBLEM = 4096
# Requests that write or read files: asked again, they are not begun again while they are under way.
_FILE_WORK = frozenset(("cut", "restore", "save tables", "load tables"))


class _FileWork:
    """A request that is under way.

    Attributes:
        done: Whether there is an answer.
        answer: The answer, then.
    """

    def __init__(self) -> None:
        self.done = threading.Event()
        self.answer = Message("error", {"message": "The thread that answered has ended."})


class ServerService:
    """One server's answers to all tasks.

    Args:
        index: The server's index.
        state: What it holds.
        limits: For how long requesters wait for a sign of life, and requests for progress.

    Attributes:
        failure: The error that has ended this server, if one has: its main thread raises it.
        store: What it holds for a `ClusterCoordinator`.
    """

    def __init__(self, index: int, state: ServerState | None = None, limits: Limits | None = None) -> None:
        self.index = index
        self._signs = SignsOfLife(f"ps {index}", limits or Limits())
        self.state = state or ServerState(index, self._signs.note_progress)
        self.failure: BaseException | None = None
        self.store = VariableStore()
        self._spec: JobSpec | None = None
        self._generation = -1
        self._lock = threading.Lock()
        self._lock_of_work = threading.Lock()
        self._under_way: dict[str, _FileWork] = {}
        self._failed = threading.Event()
        self._handlers: dict[str, Callable[[Message], Message]] = {
            "open": self._open,
            "read": self._read,
            "assign": self._assign,
            "cut": self._cut,
            "restore": self._restore,
            "save tables": self._save_tables,
            "load tables": self._load_tables,
            "report": self._report,
        }

    def arrive(self, task: str, incarnation: str) -> str | None:
        """Admits every task of the job."""
        del task, incarnation
        return None

    def handle(self, message: Message) -> Message:
        """Answers a message; an error that this server cannot go on with ends it."""
        is_closure = message.kind.startswith(PREFIX)
        handler = self.store.handle if is_closure else self._handlers.get(message.kind)
        if handler is None:
            return Message("error", {"message": f"No server answers {message.kind!r:.40}."})
        if message.kind in _FILE_WORK:
            return self._handle_once(message, handler)
        return self._answer(message, handler)

    def _answer(self, message: Message, handler: Callable[[Message], Message]) -> Message:
        try:
            return handler(message)
        except Exception as error:
            return self._error(error)

    def _handle_once(self, message: Message, handler: Callable[[Message], Message]) -> Message:
        """Answers a message; the same one again, whose answer was lost on the way, gets that of the first."""
        key = f"{message.kind} {json.dumps(message.facts, sort_keys=True)}"
        with self._lock_of_work:
            known = self._under_way.get(key)
            work = self._under_way.setdefault(key, _FileWork())
        if known is not None:
            # As long as that takes: who has asked gets signs of life, or a refusal, meanwhile.
            known.done.wait()
            return known.answer
        try:
            work.answer = self._answer(message, handler)
        finally:
            with self._lock_of_work:
                del self._under_way[key]
            work.done.set()
        return work.answer

    def exchange(self, push: Push | None, pull: Pull | None, seconds: float) -> Reply:
        """Applies a push and answers a pull."""
        if self._spec is None:
            return Reply(0, status="superseded")
        return self.state.exchange(push, pull, seconds)

    def serve(self, task: str, incarnation: str, frames: FrameSocket) -> None:
        """Serves a connection until it ends."""
        del task, incarnation
        # Programs of updates have types of their own; to switch all on for each call costs as much as a small one.
        with jax.enable_x64(True), self._signs.connection(frames) as answering:
            self._serve(frames, answering)

    def _serve(self, frames: FrameSocket, answering: Answering) -> None:
        codec: ExchangeCodec | None = None
        spec: JobSpec | None = None
        replies = Replies(self.exchange)
        while True:
            kind, first, size = frames.read_header()
            if kind == BEAT:
                continue
            if kind == MESSAGE:
                message = decode(frames.read(first), size, frames.read_into)
                with answering.to(_refusal_of_message):
                    answer = self.handle(message)
                frames.send(encode(answer))
                continue
            if kind != EXCHANGE:
                raise ProtocolError(f"a frame of kind {kind}")
            if self._spec is not spec:
                spec = self._spec
                codec = None if spec is None else ExchangeCodec(spec, self.index, spec.rule.hyper)
            if codec is None:
                # A server that was started again knows no layout, and so not what the bytes are: the connection ends.
                _skip(frames, first + size)
                frames.send([_problem("superseded")])
                continue
            request = codec.decode_request(frames.read(first), size, frames.read_into)
            self._serve_exchange(request, replies, codec, frames, answering)

    def _serve_exchange(
        self, request: Request, replies: Replies, codec: ExchangeCodec, frames: FrameSocket, answering: Answering
    ) -> None:
        try:
            with answering.to(_refusal_of_exchange):
                reply = replies.reply_to(request)
        except ProtocolError:
            raise
        except Exception as error:
            self._error(error)
            frames.send([_problem(f"{type(error).__name__}: {error}")])
            return
        if reply is not None:
            frames.send(codec.encode_reply(reply, request.pull))

    def wait_for_failure(self, seconds: float) -> BaseException | None:
        """Waits up to `seconds`; returns the error that has ended this server, if one has."""
        self._failed.wait(seconds)
        return self.failure

    def _error(self, error: Exception) -> Message:
        """Notes an error; memory that is not there, or a state that is half written, ends the server."""
        _log.error("%s", "".join(traceback.format_exception(error)))
        # A disk that is full fails the cut alone, and a push of another layout its worker.
        if not isinstance(error, (OSError, CheckpointError, MismatchError, UnsupportedError)):
            self.failure = self.failure or error
            self._failed.set()
        return Message("error", {"error": type(error).__name__, "message": f"{type(error).__name__}: {error}"})

    def _open(self, message: Message) -> Message:
        spec = spec_of_message(message)
        initial = {n.removeprefix("initial/"): a for n, a in message.arrays.items() if n.startswith("initial/")}
        with self._lock:
            self._generation = int(message.facts["generation"])
            self.state.open(spec, self._generation, initial, bool(message.facts.get("is_new")))
            self._spec = spec
        return Message("opened")

    def _read(self, message: Message) -> Message:
        if self._spec is None:
            return Message("superseded")
        f = message.facts
        return Message("value", {}, {"value": self.state.read(str(f["name"]), int(f["start"]), int(f["stop"]))})

    def _assign(self, message: Message) -> Message:
        if self._spec is None:
            return Message("superseded")
        f = message.facts
        self.state.assign(str(f["name"]), int(f["start"]), int(f["stop"]), message.arrays["value"])
        return Message("assigned")

    def _cut(self, message: Message) -> Message:
        if self._spec is None:
            return Message("superseded")
        info = self.state.cut(str(message.facts["directory"]), int(message.facts["step"]))
        return Message("cut", {"info": info.to_json()})

    def _restore(self, message: Message) -> Message:
        f = message.facts
        if self._spec is None:
            return Message("superseded")
        with self._lock:
            self._generation = int(f["generation"])
            self.state.restore(str(f["directory"]), f["manifest"], self._generation)
        return Message("restored")

    def _save_tables(self, message: Message) -> Message:
        if self._spec is None:
            return Message("superseded")
        f = message.facts
        info = self.state.save_tables(str(f["directory"]), int(f["step"]), f["tables"])
        return Message("tables", {"info": info.to_json()})

    def _load_tables(self, message: Message) -> Message:
        if self._spec is None:
            return Message("superseded")
        f = message.facts
        self.state.load_tables(str(f["directory"]), f["files"], f["tables"])
        return Message("loaded")

    def _report(self, message: Message) -> Message:
        del message
        report: dict[str, Any] = {} if self._spec is None else self.state.report()
        return Message("report", {**report, "generation": self._generation, "is open": self._spec is not None})


class SocketServerLink:
    """Way to a server over the network."""

    def __init__(self, caller: Caller, task: str, address: str, index: int, limits: Limits) -> None:
        self.task = task
        self.heard = 0.0
        self._index = index
        self._limits = limits
        self._caller, self._address = caller, address
        self._messages = MessageChannel(caller, task, address, limits)
        self._frames: FrameSocket | None = None
        self._codec: ExchangeCodec | None = None
        # Of requests that have no answer yet.
        self._pulls: deque[Pull | None] = deque()

    def bind(self, spec: JobSpec) -> None:
        """Sets the layout of the exchanges to come."""
        self._codec = ExchangeCodec(spec, self._index, spec.rule.hyper)

    def send(self, request: Request) -> None:
        """Sends a request."""
        assert self._codec is not None
        try:
            if self._frames is None:
                frames = self._caller.connect(self.task, self._address, 1.0)
                frames.settimeout(self._limits.silence)
                self._frames = frames
            self._frames.send(self._codec.encode_request(request))
            if not request.is_ahead:
                self._pulls.append(request.pull)
        except BaseException as error:
            self.disconnect()
            if isinstance(error, OSError) or not isinstance(error, Exception):
                raise
            raise ConnectionError(str(error)) from error

    def receive(self) -> Reply:
        """Returns the reply to the oldest request that has none yet."""
        assert self._codec is not None
        if self._frames is None:
            raise ConnectionError("it has hung up")
        pull = self._pulls.popleft()
        try:
            kind, first, size = self._frames.read_header_of_answer()
            data = self._frames.read(first)
            if kind == PROBLEM:
                text = bytes(data[:_MAX_PROBLEM]).decode(errors="replace")
                if text == "superseded":
                    self.disconnect()  # Of a push that went ahead, and of the request that followed, each has one.
                    return Reply(0, status="superseded")
                if text.startswith("MismatchError: "):
                    raise MismatchError(f"{self.task}: {text.partition(': ')[2]}")
                raise ConnectionError(text)
            if kind != REPLY:
                raise ProtocolError(f"a frame of kind {kind}")
            return self._codec.decode_reply(data, size, pull, self._frames.read_into)
        except BaseException:
            self.disconnect()
            raise

    def ask(self, message: Message, seconds: float | None = None) -> Message:
        """Returns the answer to a message."""
        return self._messages.ask(message, seconds)

    def beat(self) -> None:
        """Sends a sign of life."""
        self._messages.beat()

    def disconnect(self) -> None:
        """Closes the connection of exchanges; the next one opens another."""
        self._pulls.clear()
        frames, self._frames = self._frames, None
        if frames is not None:
            self.heard = max(self.heard, frames.heard)
            frames.close()

    def close(self) -> None:
        """Closes all connections."""
        self._messages.close()
        self.disconnect()


class LocalServerLink:
    """Way to a server of this process: for tests of what does not depend on sockets."""

    def __init__(self, service: ServerService, task: str) -> None:
        self.task = task
        self.heard = 0.0
        self._service = service
        self._replies = Replies(service.exchange)
        self._requests: deque[Request] = deque()

    def bind(self, spec: JobSpec) -> None:
        """Needs no layout."""
        del spec

    def send(self, request: Request) -> None:
        """Has the server apply a push that goes ahead; keeps another request for `receive`."""
        if request.is_ahead:
            self._replies.reply_to(request)
        else:
            self._requests.append(request)

    def receive(self) -> Reply:
        """Returns the server's reply to the oldest request that has none yet."""
        reply = self._replies.reply_to(self._requests.popleft())
        assert reply is not None
        return reply

    def disconnect(self) -> None:
        """Forgets requests that have no reply yet."""
        self._requests.clear()
        self._replies = Replies(self._service.exchange)

    def ask(self, message: Message, seconds: float | None = None) -> Message:
        """Returns the server's answer to a message."""
        del seconds
        return self._service.handle(message)

    def close(self) -> None:
        """Has nothing to close."""


def _refusal_of_message(text: str) -> list[bytes | memoryview]:
    return encode(Message("error", {"error": "PeerError", "message": text}))


def _refusal_of_exchange(text: str) -> list[bytes | memoryview]:
    return [_problem(text)]


def _problem(text: str) -> bytes:
    data = text.encode()[:_MAX_PROBLEM]
    return HEADER.pack(PROBLEM, len(data), 0) + data


def _skip(frames: FrameSocket, size: int) -> None:
    """Reads and drops so many bytes."""
    while size:
        size -= len(frames.read(min(size, 1 << 16)))
