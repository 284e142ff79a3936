"""Tables of a training in its checkpoints: servers write and read their rows, and no task holds a table whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

import numpy as np

from lockstep._engine.servers.chief_call import ChiefCall
from lockstep._engine.servers.layout import dtype_of
from lockstep._types import JSON
from lockstep.checkpoint import internal as files
from lockstep.errors import UnsupportedError
from lockstep.estimator._model_fn.variables import Entry
from lockstep.estimator._servers.update import ServedUpdate
from lockstep.estimator._weights import TabledValues

# The file of a checkpoint that is written before servers hold anything.
_OF_CHIEF = "rows_0_of_1.npz"


class SavedTables:
    """The tables of one training, as checkpoints hold them.

    Args:
        update: The tables, with their slots.
        entries: The variables of the model_fn.
        initializers: By table that nobody has touched: the program that makes its rows.
        saved: The values that training goes on from, if they are of a checkpoint with tables by rows.

    Attributes:
        arrays: By table: the keys of its value and its slots, as servers number them.
        restored: The tables whose rows servers take from the checkpoint.
        initializers: By table: the program that makes rows that nobody has touched.
    """

    def __init__(
        self,
        update: ServedUpdate,
        entries: Mapping[str, Entry],
        initializers: Mapping[str, bytes],
        saved: TabledValues | None,
    ) -> None:
        self._update, self._entries, self._saved = update, entries, saved
        slots = {name: update.rule.program(name).slots for name in update.tables}
        self.arrays = {t: [t, *(update.slots[f"{t}/{slot.name}"] for slot in own)] for t, own in slots.items()}
        self.restored = frozenset(t for t in update.tables if saved is not None and self._is_in(saved, t))
        self.initializers = dict(initializers)
        if saved is not None:
            codes = {table: saved.tables.initializer(table) for table in self.restored}
            self.initializers |= {table: code for table, code in codes.items() if code is not None}
        # What was written last, by the name of its checkpoint, and after how many tickets.
        self._written: dict[str, tuple[int, files.TableRecord]] = {}

    def keys(self, is_open: bool) -> frozenset[str]:
        """Returns what a checkpoint holds by rows; before servers are open, not what the chief has whole."""
        tables = self.arrays if is_open else {*self.restored, *self.initializers}
        return frozenset(key for table in tables for key in self.arrays[table])

    def load(self, call: ChiefCall) -> None:
        """Has servers take their rows of the checkpoint that training goes on from."""
        if self._saved is not None and self.restored:
            tables, arrays = self._saved.tables, {table: self.arrays[table] for table in sorted(self.restored)}
            call.load_tables(tables.directory, [name for name, _ in tables.record.files], arrays)

    def save(self, call: ChiefCall | None, prefix: str, step: int, tickets: int) -> dict[str, JSON]:
        """Writes the tables of a checkpoint; returns what it says of them.

        Args:
            call: The call of all tasks; `None` before servers are open.
            prefix: The name of the checkpoint.
            step: Its step.
            tickets: How many updates are applied.

        Raises:
            CheckpointError: If a server cannot write them.
        """
        if not self.keys(call is not None):
            return {}
        prefix = os.path.abspath(prefix)
        known = self._written.get(prefix)
        # The last checkpoint of a call is written again, to say that the call has ended.
        if known is None or known[0] != tickets:
            record = self._record_of_chief(prefix, step) if call is None else self._have_written(call, prefix, step)
            self._written = {prefix: (tickets, record)}
        return {files.TABLES: self._written[prefix][1].to_json()}

    def _have_written(self, call: ChiefCall, prefix: str, step: int) -> files.TableRecord:
        directory = files.new_directory(prefix)
        try:
            infos = call.save_tables(directory, step, self.arrays)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return self._record(directory, [(info.file, info.bytes) for info in infos], self.arrays)

    def _record_of_chief(self, prefix: str, step: int) -> files.TableRecord:
        """Writes tables that nobody has touched, or those of the checkpoint that training goes on from."""
        if self._saved is None or not self.restored:
            return self._write_untouched(prefix, step)
        tables = self._saved.tables
        names = list(tables.record.files)
        if os.path.dirname(tables.directory) == os.path.dirname(prefix) and tables.record.directory.startswith(
            f"{os.path.basename(prefix)}."
        ):
            # The same checkpoint again: its files stay.
            return self._record(tables.directory, names, self.restored)
        directory = files.new_directory(prefix)
        os.makedirs(directory)
        for name, _ in names:
            old, new = os.path.join(tables.directory, name), os.path.join(directory, name)
            with files.naming(new), open(old, "rb") as source, files.replacing(new) as target:
                shutil.copyfileobj(source, target)
        return self._record(directory, names, self.restored)

    def _write_untouched(self, prefix: str, step: int) -> files.TableRecord:
        directory = files.new_directory(prefix)
        path = os.path.join(directory, _OF_CHIEF)
        arrays: dict[str, Any] = {}
        for table, code in self.initializers.items():
            arrays[files.ids_key(table)] = np.empty(0, np.int64)
            for key in self.arrays[table]:
                entry = self._entries[key]
                arrays[files.values_key(key)] = np.empty((0, *entry.shape[1:]), dtype_of(entry.dtype))
            arrays[files.initializer_key(table)] = np.frombuffer(code, np.uint8)
        with files.naming(path):
            os.makedirs(directory)
            files.write(path, step, arrays, {})
            return self._record(directory, [(_OF_CHIEF, os.stat(path).st_size)], self.initializers)

    def _record(self, directory: str, names: list[tuple[str, int]], tables: Any) -> files.TableRecord:
        described = {table: self._describe(table) for table in self.arrays if table in tables}
        return files.TableRecord(os.path.basename(directory), tuple(names), described)

    def _describe(self, table: str) -> files.TableLayout:
        keys = self.arrays[table]
        dtypes = tuple(dtype_of(self._entries[key].dtype) for key in keys)
        slots = self._update.rule.program(table).slots
        initials = (None, *(slot.initial for slot in slots))
        return files.TableLayout(
            files.ArrayLayout(dtypes[0], self._entries[table].shape), tuple(keys), dtypes, initials
        )

    def _is_in(self, saved: TabledValues, table: str) -> bool:
        """Returns whether servers can take a table from a checkpoint.

        Raises:
            UnsupportedError: If rows that nobody has touched would have other slots than before.
        """
        known = saved.tables.record.tables.get(table)
        layouts = saved.tables.layouts
        if known is None or not all(key in known.keys for key in self.arrays[table]):
            return False
        if any(layouts[key].dtype != dtype_of(self._entries[key].dtype) for key in self.arrays[table]):
            return False
        for key, slot in zip(self.arrays[table][1:], self._update.rule.program(table).slots, strict=True):
            before = known.initials[known.keys.index(key)]
            if before != slot.initial:
                raise UnsupportedError(
                    "Rows of a table that no batch has looked up yet have the slots that they begin with, and these "
                    f"stay the same when training goes on. Received: {key!r}, which begins with {slot.initial}; in the "
                    f"checkpoint in {saved.tables.directory} with {before}. Leave the optimizer's initial values as "
                    "they were, or train in another model_dir."
                )
        return True
