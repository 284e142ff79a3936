"""Parts of `lockstep.checkpoint` for its sibling packages. Nothing here comes with a promise of stability."""

from __future__ import annotations

from lockstep.checkpoint import _atomic as atomic
from lockstep.checkpoint._archive import Archive as Archive
from lockstep.checkpoint._archive import Pieces as Pieces
from lockstep.checkpoint._archive import write as write
from lockstep.checkpoint._atomic import naming as naming
from lockstep.checkpoint._atomic import remove as remove
from lockstep.checkpoint._atomic import remove_leftovers as remove_leftovers
from lockstep.checkpoint._atomic import replacing as replacing
from lockstep.checkpoint._atomic import take_place as take_place
from lockstep.checkpoint._format import Layout as ArrayLayout
from lockstep.checkpoint._listing import remove_all as remove_all
from lockstep.checkpoint._listing import watch as watch
from lockstep.checkpoint._names import file_of as file_of
from lockstep.checkpoint._names import prefix_of as prefix_of
from lockstep.checkpoint._reader import has_tables as has_tables
from lockstep.checkpoint._reader import load_by_rows as load_by_rows
from lockstep.checkpoint._reader import load_newest_by_rows as load_newest_by_rows
from lockstep.checkpoint._table_files import TABLES as TABLES
from lockstep.checkpoint._table_files import TableLayout as TableLayout
from lockstep.checkpoint._table_files import TableRecord as TableRecord
from lockstep.checkpoint._table_files import ids_key as ids_key
from lockstep.checkpoint._table_files import initializer_key as initializer_key
from lockstep.checkpoint._table_files import new_directory as new_directory
from lockstep.checkpoint._table_files import values_key as values_key
from lockstep.checkpoint._tables import Tables as Tables
from lockstep.checkpoint._tables import piece_rows as piece_rows
from lockstep.checkpoint._tensorflow import directories as of_tensorflow
from lockstep.checkpoint._tensorflow import names as tensorflow_names
from lockstep.checkpoint._tensorflow import objects as tensorflow_objects
from lockstep.checkpoint._tensorflow.bundle import Bundle as Bundle
from lockstep.checkpoint._tensorflow.bundle import is_bundle as is_bundle

__all__ = [
    "TABLES",
    "Archive",
    "ArrayLayout",
    "Pieces",
    "TableLayout",
    "TableRecord",
    "Tables",
    "atomic",
    "has_tables",
    "ids_key",
    "initializer_key",
    "load_by_rows",
    "load_newest_by_rows",
    "new_directory",
    "piece_rows",
    "values_key",
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
