"""The update of a model_fn as servers apply it: a program for each variable, taken out of the traced training step.

Optimizers of Keras, of TensorFlow 1 and of optax are all one jaxpr here. What each variable's new value is computed
from decides what belongs to it: its gradient, its slots, and scalars that go on by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from lockstep._engine.servers.layout import Variable
from lockstep._engine.servers.rule import Program, Rule, Slot
from lockstep._engine.servers.rules import export_program
from lockstep._engine.servers.tracing import Trace
from lockstep._engine.step.jaxprs import open_jaxpr, select_results
from lockstep._types import Array, Jaxpr, PyTree
from lockstep.errors import UnsupportedError
from lockstep.estimator._model_fn.lookups import RecordedLookups, Watch, Windows
from lockstep.estimator._model_fn.records import group
from lockstep.estimator._model_fn.step_parts import StepParts
from lockstep.estimator._model_fn.variables import Entry
from lockstep.estimator._model_fn.watching import watching
from lockstep.estimator._servers.tables import (
    TableOptions,
    candidates,
    demand_dense,
    have_rows_of,
    row_trace,
    slot_name,
    slots_of,
    with_rows,
)

# What `StepParts` has in the input of an update, by the first key of a path: new values of the model_fn's own
# variables, gradients by operation, and numbers that rules take.
_CHANGED, _GRADIENTS = range(2)


@dataclass(frozen=True)
class Places:
    """Names what each leaf of the input of an update is.

    Attributes:
        changed: By key of a variable that the model_fn assigns, the place of its new value.
        gradients: By key of a variable that an optimizer updates, the place of its gradient.
        hyper: The places of numbers that rules take, such as a computed learning rate.
    """

    changed: Mapping[str, int]
    gradients: Mapping[str, int]
    hyper: Sequence[int]


def places_of(parts: StepParts, traced: Sequence[Any]) -> Places:
    """Returns what each leaf is of what `parts.gradients` has returned last.

    Raises:
        UnsupportedError: If two operations update one variable, or a rule takes an array.
    """
    assert parts.step is not None
    call = parts.step.call
    ops = group(call.spec.train_op)
    changed: dict[str, int] = {}
    gradients: dict[str, int] = {}
    hyper: list[int] = []
    for place, path in enumerate(parts.paths):
        part = path[0].idx
        if part == _CHANGED:
            changed[path[1].key] = place
        elif part == _GRADIENTS:
            key = call.scope.key_of(ops[path[1].idx].variables[path[2].idx])
            if key in gradients:
                raise UnsupportedError(
                    "Servers update each variable once in a step. Received: a train_op in which two operations update "
                    f"{key!r}. Add the losses, or use MultiWorkerMirroredStrategy."
                )
            gradients[key] = place
        elif traced[place].shape:
            raise UnsupportedError(
                "Servers take numbers of a batch for an update, such as a learning rate. Received: an array of shape "
                f"{traced[place].shape} that an optimizer uses. Use MultiWorkerMirroredStrategy."
            )
        else:
            hyper.append(place)
    return Places(changed, gradients, hyper)


def shapes_of(entries: Mapping[str, Entry]) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns shapes and dtypes of a model_fn's variables."""
    return {key: jax.ShapeDtypeStruct(e.shape, jnp.dtype(e.dtype)) for key, e in entries.items()}


@dataclass(frozen=True)
class ServedUpdate:
    """The variables and the update of a model_fn, as servers hold them.

    Attributes:
        variables: What servers hold, by the model_fn's keys: what is trained ("dense", tables "rows"), and the rest
            ("delta").
        rule: The update.
        slots: By "variable/slot" of servers, the key.
        scalars: The keys of scalars that updates move without a gradient, such as counts of steps.
        advance: Jitted `(scalars, steps) -> scalars`.
    """

    variables: tuple[Variable, ...]
    rule: Rule
    slots: Mapping[str, str]
    scalars: tuple[str, ...]
    advance: Any

    @property
    def tables(self) -> list[str]:
        """The keys of the tables."""
        return [v.name for v in self.variables if v.kind == "rows"]


def served_update(
    parts: StepParts, entries: Mapping[str, Entry], values: Mapping[str, Any], data: PyTree, options: TableOptions
) -> ServedUpdate:
    """Returns a model_fn's variables and update for servers.

    Args:
        parts: The training step.
        entries: The variables of the model_fn.
        values: Their values, of which scalars begin with these.
        data: A batch, or its shapes and dtypes.
        options: Which variables are tables.

    Raises:
        UnsupportedError: For an update that no server alone can compute.
    """
    seen = RecordedLookups()
    whole = _divide(parts, entries, values, data, seen)
    tables = tables_of(candidates(seen, entries, whole.trained, options), whole, parts, values, data)
    return whole.result({key: export_program("rows", trace, options.lazy) for key, trace in tables.items()})


def _divide(
    parts: StepParts, entries: Mapping[str, Entry], values: Mapping[str, Any], data: PyTree, watch: Watch
) -> _Division:
    """Returns the division of an update that is traced with variables of these shapes."""
    with watching(watch):
        state = shapes_of(entries)
        _, traced = jax.eval_shape(parts.gradients, state, data)
        places = places_of(parts, traced)
        return _Division(jax.make_jaxpr(parts.update)(state, traced), places, entries, values)


def tables_of(
    keys: Sequence[str], whole: _Division, parts: StepParts, values: Mapping[str, Any], data: PyTree
) -> dict[str, Trace]:
    """Returns the update of one row of each of those variables that are updated row by row.

    Raises:
        UnsupportedError: For one that is not, and too large to travel whole.
    """
    slots = {key: slots_of(key, whole.owners) for key in keys}
    slots = {key: own for key, own in slots.items() if have_rows_of(key, own, whole.entries)}
    found: dict[str, Trace] = {}
    if slots:
        resized = [*slots, *(slot for own in slots.values() for slot in own)]
        # Of several rows, to see whether they depend on each other; and of one, which is what servers repeat.
        several, one = (_of_rows(rows, list(slots), resized, whole, parts, values, data) for rows in (4, 1))
        for key, own in slots.items():
            if row_trace(key, *several.trace(key, own), own, whole.entries) is not None:
                trace = row_trace(key, *one.trace(key, own), own, whole.entries)
                assert trace is not None
                found[key] = trace
    for key in keys:
        if key not in found:
            demand_dense(key, whole.entries[key])
    return found


def _of_rows(
    rows: int,
    tables: Sequence[str],
    resized: Sequence[str],
    whole: _Division,
    parts: StepParts,
    values: Mapping[str, Any],
    data: PyTree,
) -> _Division:
    sizes = dict.fromkeys(resized, rows)
    return _divide(parts, with_rows(whole.entries, sizes), values, data, Windows(tables, sizes))


class _Division:
    """Divides the traced update `(state, traced) -> state` of all variables into one for each."""

    def __init__(self, update: Jaxpr, places: Places, entries: Mapping[str, Entry], values: Mapping[str, Any]) -> None:
        self._update, self._places, self.entries, self._values = update, places, entries, values
        self._body = open_jaxpr(update)
        # As jax.tree flattens the state.
        self._keys = tuple(sorted(entries))
        self._gradient_places = {len(self._keys) + place: key for key, place in places.gradients.items()}
        self._hyper_places = [len(self._keys) + place for place in places.hyper]
        self._used = {key: frozenset(select_results(update, [n])[1]) for n, key in enumerate(self._keys)}
        self.trained = [key for key in self.entries if key in places.gradients]
        self.owners = self._find_owners()

    def result(self, tables: Mapping[str, tuple[str, Program]]) -> ServedUpdate:
        """Returns the update, of tables by these programs, which have a name each."""
        owners, trained = self.owners, self.trained
        programs: dict[str, Program] = {}
        program_of: dict[str, str] = {}
        slots: dict[str, str] = {}
        for key in trained:
            own = slots_of(key, owners)
            trace, slot_keys = self.trace(key, own)
            name, program = tables[key] if key in tables else export_program("whole", trace, True)
            programs[name], program_of[key] = program, name
            slots |= {f"{key}/{slot.name}": k for slot, k in zip(trace.slots, slot_keys, strict=True)}
        held = {*owners, *self._scalars}
        others = [k for k, e in self.entries.items() if k not in held and k not in trained and not e.is_seed]
        variables = [self._variable(key, "rows" if key in tables else "dense") for key in trained]
        variables += [self._variable(key, "delta") for key in others]
        hyper = tuple(f"hyper_{i}" for i in range(len(self._hyper_places)))
        rule = Rule("the train_op of a model_fn", hyper, (0.0,) * len(hyper), programs, program_of)
        return ServedUpdate(tuple(variables), rule, slots, tuple(self._scalars), self._advance())

    def _variable(self, key: str, kind: Any) -> Variable:
        entry = self.entries[key]
        if kind == "delta" and entry.dtype in ("bool", "string"):
            raise UnsupportedError(
                "What a model_fn changes besides weights is added up on the servers, so it must be a number. Received: "
                f"{key!r} of {entry.dtype}. Use an integer, or MultiWorkerMirroredStrategy."
            )
        return Variable(key, entry.shape, entry.dtype, kind)

    def _find_owners(self) -> dict[str, str]:
        """Returns the trained variable that each slot belongs to, by the gradient that moves it."""
        owners: dict[str, str] = {}
        self._scalars: list[str] = []
        for place, key in enumerate(self._keys):
            if key in self._places.gradients or self.entries[key].is_seed:
                continue
            if key in self._places.changed or self._body.outvars[place] is self._body.invars[place]:
                continue
            of = {self._gradient_places[p] for p in self._used[key] if p in self._gradient_places}
            if len(of) > 1:
                raise self._needs_all(key, of)
            if of:
                owners[key] = of.pop()
            else:
                self._demand_free_scalar(key)
                self._scalars.append(key)
        return owners

    def _needs_all(self, key: str, of: set[str]) -> UnsupportedError:
        return UnsupportedError(
            "Each server has the gradients of some variables. Received: an update whose "
            f"{key!r} depends on those of {', '.join(sorted(of)[:4])}. Clip by the global norm in the model_fn, where "
            "compute_gradients returns all gradients, or use MultiWorkerMirroredStrategy."
        )

    def _demand_free_scalar(self, key: str) -> None:
        uses_data = any(p >= len(self._keys) for p in self._used[key])
        if self.entries[key].shape or uses_data:
            raise UnsupportedError(
                "What an update moves without a gradient is a number that depends on the step alone. Received: "
                f"{key!r} of shape {self.entries[key].shape}"
                f"{', which depends on a value of the batch' if uses_data else ''}. Use MultiWorkerMirroredStrategy."
            )

    def trace(self, key: str, slots: Sequence[str]) -> tuple[Trace, list[str]]:
        """Returns the update of a variable with its slots, and the keys of what it takes as slots."""
        place_of = {k: n for n, k in enumerate(self._keys)}
        moved = [key, *slots]
        used = frozenset().union(*(self._used[k] for k in moved))
        foreign = {self._gradient_places[p] for p in used if p in self._gradient_places} - {key}
        if foreign:
            raise self._needs_all(key, {key, *foreign})
        read = [self._keys[p] for p in sorted(used) if p < len(self._keys) and self._keys[p] not in moved]
        for other in read:
            if other in self._places.gradients or other in self._places.changed:
                raise UnsupportedError(
                    "An update depends on its own variable, its slots and the step. Received: that of "
                    f"{key!r}, which reads {other!r}, too. Use MultiWorkerMirroredStrategy."
                )
        # Scalars whose own next value depends on others take those along.
        scalars = [k for k in read if k in self._scalars or not self.entries[k].shape]
        for scalar in scalars:
            scalars += [self._keys[p] for p in sorted(self._used[scalar]) if self._keys[p] not in scalars]
        # Arrays that are only read stay with the variable, as slots that do not move.
        taken = [*slots, *(k for k in read if k not in scalars)]
        outputs = [place_of[k] for k in (*scalars, key, *taken)]
        closed, inputs = select_results(self._update, outputs)
        call = jaxpr_as_fun(closed)
        gradient = len(self._keys) + self._places.gradients[key]
        order = [*(place_of[k] for k in (*scalars, key, *taken)), gradient]
        apply = partial(_apply, call, inputs, self._hyper_places, order, self._hyper_dtypes())
        entry = self.entries[key]
        return (
            Trace(
                apply,
                len(self._hyper_places),
                tuple(Slot(k, (), self.entries[k].dtype, float(np.asarray(self._values[k]))) for k in scalars),
                tuple(Slot(slot_name(k), self.entries[k].shape, self.entries[k].dtype, 0.0) for k in taken),
                entry.shape,
                entry.dtype,
            ),
            list(taken),
        )

    def _hyper_dtypes(self) -> list[Any]:
        return [self._body.invars[n].aval.dtype for n in self._hyper_places]

    def _advance(self) -> Any:
        """Returns the function that moves scalars by some steps."""
        places = [self._keys.index(k) for k in self._scalars]
        closed, inputs = select_results(self._update, places)
        call = jaxpr_as_fun(closed)
        # What scalars read and nothing moves.
        fixed = {n: jnp.asarray(self._values[self._keys[n]]) for n in inputs if n not in places}

        def advance(scalars: Sequence[Array], steps: int) -> Any:
            def body(_: Array, now: list[Array]) -> list[Array]:
                given = {**fixed, **dict(zip(places, now, strict=True))}
                new = call(*(given[n] for n in inputs))
                return [jnp.asarray(a, b.dtype) for a, b in zip(new, now, strict=True)]

            return jax.lax.fori_loop(0, steps, body, list(scalars))

        return jax.jit(advance)


def _apply(
    call: Any,
    inputs: Sequence[int],
    hyper: Sequence[int],
    order: Sequence[int],
    dtypes: Sequence[Any],
    *arguments: Array,
) -> tuple[Array, ...]:
    """Computes `(iteration, *hyper, *scalars, value, *slots, gradient) -> (*scalars, value, *slots)`."""
    count = 1 + len(hyper)
    given = {n: jnp.asarray(a, d) for n, a, d in zip(hyper, arguments[1:count], dtypes, strict=True)}
    given |= dict(zip(order, arguments[count:], strict=True))
    results = call(*(given[n] for n in inputs))
    return tuple(jnp.asarray(r, a.dtype) for r, a in zip(results, arguments[count:-1], strict=True))
