"""Recognizes TensorFlow's own checkpoints in a directory, so that none is ignored or written over.

Such a checkpoint is `PREFIX.index`, a table, and `PREFIX.data-00000-of-00001` and so on. Who reads checkpoints by
variables' names goes on from them; who needs more than TensorFlow saves (a position in the data) refuses them.

Source: tensorflow/core/util/tensor_bundle/naming.cc.
"""

from __future__ import annotations

import os
import re

from lockstep.checkpoint._tensorflow.bundle import INDEX, index_of, is_bundle, is_table
from lockstep.errors import CheckpointError

_DATA = re.compile(r"(.+)\.data-[0-9]{5}-of-[0-9]{5}")


def refuse_in(directory: str | os.PathLike[str], why: str) -> None:
    """Raises `CheckpointError` if a directory holds checkpoints of TensorFlow.

    Args:
        directory: The directory.
        why: A sentence that says what the caller cannot do with them.
    """
    path = os.fsdecode(directory)
    file = first_in(path)
    if file is not None:
        raise CheckpointError(
            f"{file} belongs to a checkpoint of TensorFlow. {why} Nothing was written. Give another directory than "
            f"{path or '.'}."
        )


def refuse_at(prefix: str | os.PathLike[str]) -> None:
    """Raises `CheckpointError` if a checkpoint of TensorFlow has this name, which would be written over."""
    if is_bundle(os.fsdecode(prefix)):
        raise CheckpointError(
            f"{index_of(os.fsdecode(prefix))} belongs to a checkpoint of TensorFlow, which would be written over. "
            "Nothing was written. Give another name, or move its files away."
        )


def first_in(directory: str) -> str | None:
    """Returns the first file of a directory that belongs to a checkpoint of TensorFlow, or `None`."""
    try:
        names = sorted(os.listdir(directory or "."))
    except OSError:  # Whoever goes on to use the directory says what is wrong with it.
        return None
    for name in names:
        file = os.path.join(directory, name)
        # Programs for TensorFlow look for an index, so others write files of that name, too.
        if _DATA.fullmatch(name) or (name.endswith(INDEX) and is_table(file)):
            return file
    return None
