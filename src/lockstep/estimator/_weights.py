"""The weights behind a path: a checkpoint's, or those of an exported model."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator, Mapping

import numpy as np

from lockstep import checkpoint
from lockstep.checkpoint.internal import Tables, has_tables, load_by_rows
from lockstep.estimator._model_fn.variables import GLOBAL_STEP
from lockstep.saved_model import contains_saved_model
from lockstep.saved_model.internal import read_variables

# Where TensorFlow's exports keep their weights, and programs look for them.
_VARIABLES = os.path.join("variables", "variables")


class TabledValues(Mapping[str, np.ndarray]):
    """The values of variables, of which tables stay in a checkpoint's files until they are asked for.

    Args:
        arrays: All others.
        tables: The tables.
        dtypes: By name of a table or slot that is a variable: its dtype.

    Attributes:
        tables: The tables.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], tables: Tables, dtypes: Mapping[str, str]) -> None:
        self.tables = tables
        self._arrays, self._dtypes = arrays, dtypes

    def __getitem__(self, key: str) -> np.ndarray:
        if key in self._arrays:
            return self._arrays[key]
        return self.tables.read(key).astype(self._dtypes[key], copy=False)

    def __contains__(self, key: object) -> bool:
        return key in self._arrays or key in self._dtypes

    def __iter__(self) -> Iterator[str]:
        return iter([*self._arrays, *self._dtypes])

    def __len__(self) -> int:
        return len(self._arrays) + len(self._dtypes)

    @property
    def by_rows(self) -> Mapping[str, str]:
        """The dtypes of tables and slots, by name."""
        return self._dtypes


def is_by_rows(path: str | None) -> bool:
    """Returns whether a checkpoint has tables that are read by rows."""
    return path is not None and has_tables(path)


def load_weights(path: str | bytes | os.PathLike[str], by_rows: bool = False) -> checkpoint.Checkpoint:
    """Reads a checkpoint, the newest one of a directory, or the weights of an exported model.

    Args:
        path: The checkpoint's name, or the directory of the checkpoints or of the export; of the latter also
            `variables/variables` in it.
        by_rows: Whether tables stay in the checkpoint's files.

    Raises:
        CheckpointError: If there is nothing to read, or it is damaged.
    """
    load: Callable[[str], checkpoint.Checkpoint] = load_by_rows if by_rows else checkpoint.load
    name = os.fsdecode(path)
    directory = name.removesuffix(os.sep + _VARIABLES)
    if contains_saved_model(directory):
        arrays = dict(read_variables(directory))
        return checkpoint.Checkpoint(name, int(arrays.get(GLOBAL_STEP, 0)), arrays, {}, os.path.getmtime(directory))
    if os.path.exists(os.path.join(directory, f"{_VARIABLES}.index")):
        return load(os.path.join(directory, _VARIABLES))
    if os.path.isdir(name):
        newest = checkpoint.latest_checkpoint(name)
        if newest is None:
            # Its error says what a directory must hold.
            checkpoint.load_checkpoint(name)
        return load(newest or name)
    return load(name)


@contextlib.contextmanager
def hold_checkpoint(path: str | bytes | os.PathLike[str]) -> Generator[None]:
    """Keeps a training that goes on from deleting this checkpoint, within the context."""
    name = os.fsdecode(path)
    # Nobody deletes exports.
    pinned = contextlib.nullcontext() if os.path.isdir(name) else checkpoint.pinned(name)
    with pinned:
        yield
