"""Names checkpoints: `<directory>/<basename>-<step>`, a prefix; the file adds `.npz` to it."""

from __future__ import annotations

import os
import re

from lockstep.errors import ArgumentError

SUFFIX = ".npz"
# More digits than any step has; int() would refuse thousands of them.
_STEP = re.compile(r"-([0-9]{1,19})\Z")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def path_of(path: str | os.PathLike[str]) -> str:
    """Returns a path as text; addresses of cloud storage are refused.

    Raises:
        ArgumentError: If it is not the path of a file system.
    """
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise ArgumentError(
            f"A checkpoint is named by a path, not by {path!r}. Pass a str or a pathlib.Path."
        ) from None
    if "\0" in text:
        raise ArgumentError(f"Paths have no null characters; {text!r:.200} has. Pass another path.")
    # It would become a relative path, and a directory called "gs:".
    if _URL.match(text):
        raise ArgumentError(f"Checkpoints lie in a file system, not at {text!r}. Mount the storage and pass its path.")
    return text


def file_of(prefix: str | os.PathLike[str]) -> str:
    """Returns the file of a checkpoint; also if it is what is given."""
    text = path_of(prefix)
    # Users pass files as often as prefixes.
    return text if text.endswith(SUFFIX) else text + SUFFIX


def prefix_of(file: str | os.PathLike[str]) -> str:
    """Returns the checkpoint's name, given its file; also if it is what is given."""
    return path_of(file).removesuffix(SUFFIX)


def step_in(prefix: str | os.PathLike[str]) -> int | None:
    """Returns the step that a checkpoint's name ends with, or `None`."""
    found = _STEP.search(prefix_of(prefix))
    return int(found[1]) if found else None


def step_of(prefix: str | os.PathLike[str]) -> int:
    """Returns the step that a checkpoint's name ends with, such as 120 of `model.ckpt-120`.

    Args:
        prefix: The checkpoint's name, as `latest_checkpoint` returns it.

    Raises:
        ArgumentError: If the name does not end with a step.
    """
    step = step_in(prefix)
    if step is None:
        raise ArgumentError(f"A checkpoint's name ends with its step, as in 'model.ckpt-120'; {prefix!r} does not.")
    return step
