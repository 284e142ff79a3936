"""Models and weights under paths that Keras 3 refuses."""

from __future__ import annotations

from lockstep.compat.tensorflow.keras._saves.checkpoints import Restored as Restored
from lockstep.compat.tensorflow.keras._saves.checkpoints import latest_checkpoint as latest_checkpoint
from lockstep.compat.tensorflow.keras._saves.checkpoints import load_into as load_into
from lockstep.compat.tensorflow.keras._saves.checkpoints import make_ready as make_ready
from lockstep.compat.tensorflow.keras._saves.checkpoints import read_checkpoint as read_checkpoint
from lockstep.compat.tensorflow.keras._saves.checkpoints import write_checkpoint as write_checkpoint
from lockstep.compat.tensorflow.keras._saves.directory import recover as recover
from lockstep.compat.tensorflow.keras._saves.directory import save_directory as save_directory
from lockstep.compat.tensorflow.keras._saves.directory import whole_file as whole_file

__all__ = ["Restored", "latest_checkpoint", "read_checkpoint", "load_into", "make_ready", "recover", "save_directory"]
__all__ += ["whole_file", "write_checkpoint"]
