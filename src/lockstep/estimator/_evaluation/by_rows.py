"""Evaluation and prediction with tables that stay in a checkpoint's files: a batch brings the rows that it looks up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from lockstep._engine.input.source import Source
from lockstep._engine.keras.servers.lookups import Needed, leaks, needed_rows
from lockstep._engine.keras.servers.tables import demand_small
from lockstep._engine.servers.traced_parts import Part, Traced
from lockstep._engine.step.batches import DeviceBatch, Outputs
from lockstep._engine.step.compiler import Compiler
from lockstep.estimator._core import CompiledModelFn
from lockstep.estimator._model_fn.function import Data
from lockstep.estimator._model_fn.lookups import RecordedLookups, Windows
from lockstep.estimator._model_fn.watching import watching
from lockstep.estimator._servers.tables import with_rows
from lockstep.estimator._servers.textless import TextlessProgram
from lockstep.estimator._servers.update import shapes_of
from lockstep.estimator._state import VariableState
from lockstep.estimator._weights import TabledValues

_WHOLE = "a model_fn that does not only look its rows up by ids of the features"


@dataclass
class _Plan:
    """Holds what a step does with batches of one signature.

    Attributes:
        ids: The program of the ids that a batch looks up, by the key of the table.
        programs: The compiled step, by the sizes of the windows.
    """

    ids: Part
    programs: dict[Any, Part] = field(default_factory=dict[Any, Part])


class RowsProgram(TextlessProgram):
    """A step of a model_fn that does not train, with windows in place of tables.

    Args:
        compiled: The model_fn.
        values: The variables.
        example: A batch, which says which tables are only looked up.

    Attributes:
        tables: The keys of the tables whose rows are read batch by batch.
        left_out: Those, and tables and slots that a step does not use: the state has none of them.
    """

    def __init__(self, compiled: CompiledModelFn, values: TabledValues, example: Data) -> None:
        super().__init__(compiled)
        self._entries = compiled.variables.entries
        self._values = values
        self._compiler = Compiler(compiled.replicas)
        self._plans: dict[Any, _Plan] = {}
        self.tables = list(values.by_rows)
        self.tables, unused = self._find_tables(self.prepare(example))
        self.left_out = frozenset((*self.tables, *unused))
        # Slots are as large as their windows: rules compare shapes where a model_fn makes them.
        record = values.tables.record.tables
        self._owners = {key: name for name in self.tables for key in record[name].keys}

    def run(self, state: Mapping[str, Any], placed: DeviceBatch) -> tuple[Outputs, Any]:
        """Runs one step."""
        data = placed.data
        plan = self._plan(data)
        whole = {key: state.get(key, 0) for key in self._entries}
        found = jax.device_get(plan.ids(whole, data))
        needed = {key: needed_rows(self._entries[key].shape[0], found.get(key, ())) for key in self.tables}
        windows = {key: each.window(self._rows(key, each.ids)) for key, each in needed.items()}
        positions = {key: list(each.positions) for key, each in needed.items()}
        outputs, changed = self._step(plan, data, needed)({**whole, **windows}, data, positions)
        return Outputs(outputs, None, lambda value: value), {**state, **changed}

    def _rows(self, key: str, ids: np.ndarray) -> np.ndarray:
        return self._values.tables.rows(key, ids).astype(self._entries[key].dtype, copy=False)

    # ---- Traces ----

    def _find_tables(self, data: Data) -> tuple[list[str], list[str]]:
        """Returns the tables of which a batch needs rows that are known before it, and what it does not use at all.

        Raises:
            UnsupportedError: If it uses another one, which is too large to be held whole.
        """
        seen = RecordedLookups()
        uses: Mapping[str, bool] = {}
        try:
            uses = self._trace_ids(data, seen).uses()[0]
            whole = {key for key in self.tables if key in seen.whole or uses[key]}
        except jax.errors.UnexpectedTracerError as error:
            if not leaks(error):
                raise
            whole = {*seen.whole, *seen.ids} & {*self.tables}
        for key in sorted(whole):
            demand_small(key, self._entries[key].shape, self._entries[key].dtype, _WHOLE)
        left = [key for key in self.tables if key not in whole]
        return [key for key in left if key in seen.ids], [key for key in left if key not in seen.ids]

    def _trace_ids(self, data: Data, seen: RecordedLookups) -> Part:
        def step(state: Any, data: Data) -> dict[str, list[Any]]:
            with watching(seen):
                self._compiled.batch_step(state, data)
            return {key: seen.ids.get(key, []) for key in self.tables}

        return Traced.of(step, shapes_of(self._entries), data).part(lambda ids: ids, self._compiler)

    def _plan(self, data: Data) -> _Plan:
        leaves, structure = jax.tree.flatten(data)
        key = structure, tuple((np.shape(a), str(np.asarray(a).dtype)) for a in leaves)
        if key not in self._plans:
            seen = RecordedLookups()
            self._plans[key] = _Plan(self._trace_ids(data, seen))
            windows = Windows(sorted(self.left_out), {})
            for other in {*seen.whole, *(self.left_out.intersection(seen.ids) - {*self.tables})}:
                windows.note_read(other)
        return self._plans[key]

    def _step(self, plan: _Plan, data: Data, needed: Mapping[str, Needed]) -> Part:
        """Returns the compiled step for windows of these sizes."""
        sizes = {name: each.size for name, each in needed.items()}
        key = tuple(sorted(sizes.items()))
        if key not in plan.programs:
            positions = {name: list(each.positions) for name, each in needed.items()}
            plan.programs[key] = self._compile(data, sizes, positions)
        return plan.programs[key]

    def _compile(self, data: Data, sizes: Mapping[str, int], positions: Mapping[str, Sequence[np.ndarray]]) -> Part:
        sizes = {key: sizes[name] for key, name in self._owners.items()}
        entries = with_rows(self._entries, sizes)

        def step(state: Any, data: Data, positions: Mapping[str, Sequence[Any]]) -> tuple[Any, dict[str, Any]]:
            with watching(Windows(self.tables, sizes, positions)):
                outputs, after = self._compiled.batch_step(state, data)
            # What a step hands on as it is stays where it is.
            return outputs, {k: value for k, value in after.items() if value is not state.get(k)}

        return Traced.of(step, shapes_of(entries), data, positions).part(lambda results: results, self._compiler)


class RowsState(VariableState):
    """The variables of a step with windows, without the tables, which a hook may read whole.

    Args:
        program: The step program.
        values: All variables.
    """

    def __init__(self, program: RowsProgram, values: TabledValues) -> None:
        held: Any = program
        super().__init__(held, {key: values[key] for key in values if key not in program.left_out})
        self._tabled, self._keys = values, program.left_out

    def local(self, keys: Iterable[str]) -> dict[str, Any]:
        """Returns this process' copies of some variables."""
        return {key: self.value(key) for key in keys}

    def value(self, key: str) -> np.ndarray:
        """Returns a variable's value on the host."""
        return np.asarray(self._tabled[key]) if key in self._keys else super().value(key)

    def __contains__(self, key: str) -> bool:
        return key in self._keys or super().__contains__(key)


def program_and_state(
    compiled: CompiledModelFn, values: Mapping[str, Any], source: Source
) -> tuple[Any, VariableState]:
    """Returns the step program for values, and the state; of a checkpoint with tables by rows, with windows.

    Args:
        compiled: The model_fn, on one device.
        values: The first values.
        source: Of the batches, of which the first says how tables are used.
    """
    if not isinstance(values, TabledValues):
        return compiled.program, VariableState(compiled.program, values)
    program = RowsProgram(compiled, values, source.peek())
    return program, RowsState(program, values)
