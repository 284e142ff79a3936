"""Checkpoints: files of variables by name, their writer, their readers.

A checkpoint is one file of a directory, and is known by its name without the suffix, such as `dir/model.ckpt-120`. The
file is numpy's `.npz` and holds JSON besides; nothing in it is ever unpickled. The file `checkpoint` of the directory
says which one is the newest, in TensorFlow's format.
"""

from __future__ import annotations

from lockstep.checkpoint._listing import all_checkpoints as all_checkpoints
from lockstep.checkpoint._listing import checkpoint_exists as checkpoint_exists
from lockstep.checkpoint._listing import checkpoints_iterator as checkpoints_iterator
from lockstep.checkpoint._listing import get_checkpoint_mtimes as get_checkpoint_mtimes
from lockstep.checkpoint._listing import latest_checkpoint as latest_checkpoint
from lockstep.checkpoint._listing import remove_checkpoint as remove_checkpoint
from lockstep.checkpoint._names import step_of as step_of
from lockstep.checkpoint._pins import pinned as pinned
from lockstep.checkpoint._reader import Checkpoint as Checkpoint
from lockstep.checkpoint._reader import CheckpointReader as CheckpointReader
from lockstep.checkpoint._reader import list_variables as list_variables
from lockstep.checkpoint._reader import load as load
from lockstep.checkpoint._reader import load_checkpoint as load_checkpoint
from lockstep.checkpoint._reader import load_newest as load_newest
from lockstep.checkpoint._reader import load_variable as load_variable
from lockstep.checkpoint._state import CheckpointState as CheckpointState
from lockstep.checkpoint._state import get_checkpoint_state as get_checkpoint_state
from lockstep.checkpoint._state import update_checkpoint_state as update_checkpoint_state
from lockstep.checkpoint._store import CheckpointStore as CheckpointStore

__all__ = [
    "Checkpoint",
    "CheckpointReader",
    "CheckpointState",
    "CheckpointStore",
    "all_checkpoints",
    "checkpoint_exists",
    "checkpoints_iterator",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "latest_checkpoint",
    "list_variables",
    "load",
    "load_checkpoint",
    "load_newest",
    "load_variable",
    "pinned",
    "remove_checkpoint",
    "step_of",
    "update_checkpoint_state",
]
