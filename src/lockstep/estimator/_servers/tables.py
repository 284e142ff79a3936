"""Tables of a model_fn: variables of which servers hold ranges of rows, and tasks the rows that a batch looks up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lockstep._engine.keras.servers.spec import row_ranges
from lockstep._engine.keras.servers.tables import TablePolicy, demand_small
from lockstep._engine.servers.compiled import load
from lockstep._engine.servers.initial_rows import initializer_of
from lockstep._engine.servers.layout import Variable
from lockstep._engine.servers.probes import is_row_wise
from lockstep._engine.servers.rule import Rule
from lockstep._engine.servers.tracing import Trace
from lockstep._engine.step.jaxprs import constants_of
from lockstep.errors import UnsupportedError
from lockstep.estimator._model_fn.lookups import RecordedLookups
from lockstep.estimator._model_fn.variables import Entry


@dataclass(frozen=True)
class TableOptions:
    """Holds a strategy's options for tables.

    Attributes:
        policy: Which variables are tables.
        lazy: Whether rows without a gradient stay as they are, whatever the optimizer does.
        partitions: By key: into how many ranges of rows the model_fn has a variable divided.
    """

    policy: TablePolicy
    lazy: bool = False
    partitions: Mapping[str, int] = field(default_factory=dict[str, int])

    def is_table(self, entry: Entry) -> bool:
        """Returns whether a variable is a table if its rows are looked up."""
        return self.partitions.get(entry.key, 1) > 1 or self.policy.is_table(entry.shape, entry.dtype)

    def ranges_of(self, variable: Variable) -> list[int] | None:
        """Returns the sizes of the ranges of rows of a table, `None` for even ones over all servers."""
        count = self.partitions.get(variable.name) or self.policy.partitions(variable.shape, variable.dtype)
        return row_ranges(variable.rows, count) if count and count > 1 else None


def candidates(
    seen: RecordedLookups, entries: Mapping[str, Entry], trained: Sequence[str], options: TableOptions
) -> list[str]:
    """Returns the keys of trained variables that a model_fn looks up by rows, and that are large enough for a table.

    Raises:
        UnsupportedError: If one that is too large to travel whole is read otherwise, too.
    """
    found: list[str] = []
    for key in trained:
        entry = entries[key]
        if key not in seen.ids or not entry.shape or not options.is_table(entry):
            continue
        if key in seen.whole:
            demand_small(key, entry.shape, entry.dtype, "a model_fn that reads it otherwise than by lookups")
        else:
            found.append(key)
    return found


def slots_of(key: str, owners: Mapping[str, str]) -> list[str]:
    """Returns the keys of the slots of a variable."""
    return [slot for slot, owner in owners.items() if owner == key]


def slots_in(rule: Rule, tables: Sequence[str], entries: Mapping[str, Entry]) -> dict[str, str]:
    """Returns the slots of tables, which a rule names by `slot_name`, with the table of each."""
    owners = {slot.name: table for table in tables for slot in rule.program(table).slots}
    return {key: owners[slot_name(key)] for key in entries if slot_name(key) in owners}


def slot_name(key: str) -> str:
    """Returns the name of a slot in a rule; a slash would end the variable's name in "variable/slot"."""
    return key.replace("/", ".")


def with_rows(entries: Mapping[str, Entry], sizes: Mapping[str, int]) -> dict[str, Entry]:
    """Returns entries in which some variables have another number of rows."""
    return {k: replace(e, shape=(sizes[k], *e.shape[1:])) if k in sizes else e for k, e in entries.items()}


def have_rows_of(key: str, slots: Sequence[str], entries: Mapping[str, Entry]) -> bool:
    """Returns whether slots have an element for each of a table's, as far as shapes say."""
    return all(entries[slot].shape == entries[key].shape for slot in slots)


def row_trace(
    key: str, trace: Trace, taken: Sequence[str], slots: Sequence[str], entries: Mapping[str, Entry]
) -> Trace | None:
    """Returns the update of a few rows of a table, `None` if rows depend on each other or on anything else."""
    if sorted(taken) != sorted(slots):
        return None
    initial = [constant_of(entries[slot], entries) for slot in taken]
    if any(value is None for value in initial):
        return None
    named = zip(trace.slots, initial, strict=True)
    made = replace(trace, slots=tuple(replace(slot, initial=float(value or 0.0)) for slot, value in named))
    return made if made.shape[0] == 1 or is_row_wise(made) else None


def demand_dense(key: str, entry: Entry) -> None:
    """Raises `UnsupportedError` for a table that is not updated by rows, and is too large to travel whole."""
    demand_small(key, entry.shape, entry.dtype, "an optimizer that does not update it row by row")


class _Zeros(Mapping[str, Any]):
    """The values that a slot's first value may be computed from, traced: all of one number."""

    def __init__(self, entries: Mapping[str, Entry], number: float) -> None:
        self._entries, self._number = entries, number

    def __getitem__(self, key: str) -> Any:
        entry = self._entries[key]
        return jnp.full(entry.shape, self._number, entry.dtype)

    def __iter__(self) -> Any:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def constant_of(entry: Entry, entries: Mapping[str, Entry]) -> float | None:
    """Returns the number that all elements of a slot begin with, whatever the values of variables; `None` if none."""
    ids = np.asarray([0, max(entry.shape[0] - 1, 0)], np.int64)
    seen: set[float] = set()
    for number in (0.0, 1.0):
        rows = _initial_program(entry, _Zeros(entries, number))
        if rows is None:
            return None
        seen.update(np.ravel(np.asarray(load(rows)(ids))).astype(float).tolist())
    return seen.pop() if len(seen) == 1 else None


def row_initializer(entry: Entry, entries: Mapping[str, Entry]) -> bytes | None:
    """Returns the program by which servers make rows of a table, `None` for one whose first values are given."""
    return _initial_program(entry, _Zeros(entries, 0.0))


def _initial_program(entry: Entry, values: Mapping[str, Any]) -> bytes | None:
    def initial(shape: Sequence[int], dtype: str) -> Any:
        del shape
        return jnp.asarray(entry.initial(values)).astype(dtype)

    try:
        closed = jax.make_jaxpr(lambda: initial(entry.shape, entry.dtype))()
        # Values of a checkpoint, or of a model that there was before, are constants of the program.
        if any(
            np.size(constant) > 1 and np.shape(constant)[:1] == entry.shape[:1] for constant in constants_of(closed)
        ):
            return None
        return initializer_of(initial, entry.shape, entry.dtype)
    except (jax.errors.JAXTypeError, UnsupportedError, TypeError):
        # It is computed by NumPy, or the whole is drawn at once: as large as it is, the chief makes it.
        return None
