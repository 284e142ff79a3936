"""Recognizes TensorFlow's own checkpoints, which nothing here reads, so that none is ignored or written over.

Such a checkpoint is `PREFIX.index`, a table, and `PREFIX.data-00000-of-00001` and so on.

Source: tensorflow/core/util/tensor_bundle/naming.cc; tensorflow/core/lib/io/format.h.
"""

from __future__ import annotations

import os
import re

from lockstep.errors import CheckpointError

_DATA = re.compile(r"(.+)\.data-[0-9]{5}-of-[0-9]{5}")
_INDEX = ".index"
# The last 8 bytes of a table. Programs for TensorFlow look for files of this name, so others write them, too.
_TABLE = (0xDB4775248B80FB57).to_bytes(8, "little")


def refuse_in(directory: str | os.PathLike[str]) -> None:
    """Raises `CheckpointError` if a directory holds checkpoints of TensorFlow."""
    path = os.fsdecode(directory)
    try:
        names = sorted(os.listdir(path or "."))
    except OSError:  # Whoever goes on to use the directory says what is wrong with it.
        return
    for name in names:
        if _DATA.fullmatch(name) or (name.endswith(_INDEX) and _is_table(os.path.join(path, name))):
            raise _of_tensorflow(os.path.join(path, name), path)


def refuse_at(prefix: str | os.PathLike[str]) -> None:
    """Raises `CheckpointError` if a checkpoint is one of TensorFlow's."""
    index = os.fsdecode(prefix) + _INDEX
    if _is_table(index):
        raise _of_tensorflow(index, os.path.dirname(index))


def _is_table(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(-len(_TABLE), os.SEEK_END)
            return file.read() == _TABLE
    except OSError:
        return False


def _of_tensorflow(file: str, directory: str) -> CheckpointError:
    return CheckpointError(
        f"{file} belongs to a checkpoint of TensorFlow, which lockstep does not read: training would begin anew beside "
        f"it, and overwrite the file `checkpoint` that names it. Nothing was written. Give another directory than "
        f"{directory or '.'}. To go on with its weights, read them where TensorFlow is installed "
        "(tf.train.load_checkpoint(path).get_tensor(name)), save them with numpy.savez, and assign them here before "
        "training."
    )
