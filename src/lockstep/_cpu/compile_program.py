"""Compiles one program, as the process that `compile_process` has started for it.

It imports jaxlib, not jax: a process with jax takes 0.6 s to start, this one 0.15 (2-core EPYC).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lockstep._cpu import abi

_MESSAGE_CHARACTERS = 2_000
_RESULT = "executable"
# XLA keeps a handler's address for ever, so Python must keep the handler.
_handlers: list[Any] = []


@dataclass(frozen=True)
class Request:
    """A program to compile, as it is sent to the process that does.

    Attributes:
        devices: The ids of the devices that it is for.
        device_count: Setting `jax_num_cpu_devices` of the process that runs it; below 0 for none.
        targets: The names of its custom calls that are functions of that process' Python.
        options: Of XLA's compiler, serialized.
        code: MLIR's bytecode.
    """

    devices: Sequence[int]
    device_count: int
    targets: Sequence[str]
    options: bytes
    code: bytes

    def write(self, directory: Path) -> None:
        """Writes it into a directory, as three files."""
        facts = {name: value for name, value in asdict(self).items() if not isinstance(value, bytes)}
        (directory / "facts.json").write_text(json.dumps(facts))
        (directory / "options").write_bytes(self.options)
        (directory / "code").write_bytes(self.code)

    @classmethod
    def read(cls, directory: Path) -> Request:
        """Reads what `write` has written."""
        facts = json.loads((directory / "facts.json").read_text())
        return cls(**facts, options=(directory / "options").read_bytes(), code=(directory / "code").read_bytes())


def read_result(directory: Path) -> bytes:
    """Returns the executable, serialized, that `main` has left in a request's directory."""
    return (directory / _RESULT).read_bytes()


def main(directory: str) -> None:
    """Compiles the program of a directory's request, writes the executable there, and ends the process."""
    # The one that waits decides what comes of an interrupt, and ends this one.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_input, daemon=True).start()
    status = 0
    try:
        (Path(directory) / _RESULT).write_bytes(compile_program(Request.read(Path(directory))))
    except BaseException as error:
        print(f"{type(error).__name__}: {error}"[:_MESSAGE_CHARACTERS], flush=True)
        status = 1
    # To end in order takes another half second, mostly to free memory.
    os._exit(status)


def _end_with_input() -> None:
    # Not by sys.stdin, whose lock would be held.
    while os.read(0, 1):
        pass
    os._exit(1)


def compile_program(request: Request) -> bytes:
    """Returns the executable of a program, serialized."""
    count = None if request.device_count < 0 else request.device_count
    client: Any = importlib.import_module("jaxlib.xla_client").make_cpu_client(num_devices=count)
    _register_targets(request.targets)
    by_id = {device.id: device for device in client.local_devices()}
    executable = client.compile_and_load(
        request.code,
        executable_devices=importlib.import_module("jaxlib._jax").DeviceList(tuple(map(by_id.get, request.devices))),
        compile_options=importlib.import_module("jaxlib._jax").CompileOptions.ParseFromString(request.options),
    )
    return executable.serialize()


def _register_targets(names: Sequence[str]) -> None:
    """Registers the targets of custom calls: XLA asks for them when it compiles a call."""
    register: Any = importlib.import_module("jaxlib.xla_client").register_custom_call_target
    # Those of jax itself, which registers them when it is imported.
    for platform, targets in importlib.import_module("jaxlib.lapack").registrations().items():
        for target, function, version in targets:
            register(target, function, platform, version)
    for target in importlib.import_module("jaxlib.lapack").batch_partitionable_targets():
        importlib.import_module("jaxlib.xla_client").register_custom_call_as_batch_partitionable(target)
    for name in names:
        # It is called in the process that loads the program.
        handler = abi.HANDLER(_answer)
        _handlers.append(handler)
        register(name, abi.capsule(handler), "cpu", abi.TYPED)


def _answer(address: int) -> int | None:
    abi.answer_metadata(abi.Frame.from_address(address))
    return None
