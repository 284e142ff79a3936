"""Parts of `lockstep.checkpoint` for its sibling packages. Nothing here comes with a promise of stability."""

from __future__ import annotations

from lockstep.checkpoint import _atomic as atomic
from lockstep.checkpoint._archive import write as write
from lockstep.checkpoint._atomic import naming as naming
from lockstep.checkpoint._atomic import remove as remove
from lockstep.checkpoint._atomic import remove_leftovers as remove_leftovers
from lockstep.checkpoint._atomic import replacing as replacing
from lockstep.checkpoint._atomic import take_place as take_place
from lockstep.checkpoint._listing import remove_all as remove_all
from lockstep.checkpoint._listing import watch as watch
from lockstep.checkpoint._names import file_of as file_of
from lockstep.checkpoint._names import prefix_of as prefix_of
from lockstep.checkpoint._tensorflow import directories as of_tensorflow
from lockstep.checkpoint._tensorflow import names as tensorflow_names
from lockstep.checkpoint._tensorflow import objects as tensorflow_objects
from lockstep.checkpoint._tensorflow.bundle import Bundle as Bundle
from lockstep.checkpoint._tensorflow.bundle import is_bundle as is_bundle

__all__ = [
    "atomic",
    "file_of",
    "naming",
    "Bundle",
    "is_bundle",
    "of_tensorflow",
    "prefix_of",
    "remove",
    "remove_all",
    "remove_leftovers",
    "replacing",
    "take_place",
    "tensorflow_names",
    "tensorflow_objects",
    "watch",
    "write",
]
