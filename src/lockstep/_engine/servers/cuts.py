"""Cuts of all servers together: each writes its shards, and a manifest is written last."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep._engine.servers.layout import Layout
from lockstep._engine.servers.messages import Message
from lockstep._engine.servers.server_group import ServerGroup
from lockstep.errors import CheckpointError, MismatchError

MANIFEST = "servers.json"


@dataclass(frozen=True)
class Cut:
    """Consistent state of all servers.

    Attributes:
        directory: Where it lies.
        step: The number of tickets that are applied in it.
        extra: Facts that the chief has given, such as the position of the data.
        manifest: What the servers have written.
    """

    directory: str
    step: int
    extra: Any
    manifest: Mapping[str, Any]


def write(group: ServerGroup, directory: str, step: int, extra: Any) -> Cut:
    """Has all servers write their shards, then writes the manifest, without which there is no cut.

    Raises:
        CheckpointError: If a server cannot write, such as on a disk that is full.
    """
    infos = have_written(group, Message("cut", {"directory": directory, "step": step}), directory)
    manifest = {"layout": group.layout.to_json(), "step": step, "servers": infos, "extra": extra}
    _write_whole(Path(directory) / MANIFEST, json.dumps(manifest))
    return Cut(directory, step, extra, manifest)


def have_written(group: ServerGroup, message: Message, directory: str) -> list[Any]:
    """Has all servers write their shards into a directory; returns what each says of its file.

    Raises:
        CheckpointError: If a server cannot write, such as on a disk that is full.
    """
    os.makedirs(directory, exist_ok=True)
    infos: list[Any] = []
    for link in group.links:
        answer = group.ask(link, message, refusals=False)
        if answer.kind == "error":
            raise CheckpointError(
                f"Every server must be able to write its shards. {link.task} cannot, into {directory}: "
                f"{answer.facts.get('message')}. Make room there, or choose another directory."
            )
        infos.append(answer.facts["info"])
    return infos


def read(directory: str) -> Cut:
    """Reads the manifest of a cut.

    Raises:
        CheckpointError: If there is none, or it cannot be read.
    """
    path = Path(directory) / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        return Cut(directory, int(manifest["step"]), manifest["extra"], manifest)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} must be the manifest of a cut. It cannot be read: {error}.") from error


def restore(group: ServerGroup, cut: Cut, generation: int) -> None:
    """Sets all servers back to a cut that any number of servers has written.

    Raises:
        MismatchError: If the cut is of other variables.
    """
    theirs = Layout.from_json(cut.manifest["layout"]).variables
    ours = group.layout.variables
    if set(theirs) != set(ours):
        odd = sorted({v.name for v in set(theirs) ^ set(ours)})
        raise MismatchError(
            f"A cut is restored into a model with the same variables. {cut.directory} differs in {', '.join(odd[:8])}. "
            "Restore the code that wrote it, or begin with another backup directory."
        )
    group.ask_all(Message("restore", {"directory": cut.directory, "manifest": cut.manifest, "generation": generation}))


def _write_whole(path: Path, text: str) -> None:
    """Writes a file that is whole or absent, also after a power cut."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
