"""Makes what the chief opens servers with: layout, update rule, initializers, and the values that they begin with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from lockstep._engine.keras.servers.clipping import nothing_clipped
from lockstep._engine.keras.servers.deferred import Deferred, held_value
from lockstep._engine.keras.servers.held import HeldModel
from lockstep._engine.keras.servers.options import ServerOptions
from lockstep._engine.keras.servers.tables import Table, demand_small
from lockstep._engine.servers.initial_rows import initializer_of
from lockstep._engine.servers.layout import Layout, Variable
from lockstep._engine.servers.requests import JobSpec
from lockstep._engine.servers.rule import Rule
from lockstep._engine.servers.rules import can_be_rows, rule_of
from lockstep._types import Array


def spec_of(model: Any, held: HeldModel, options: ServerOptions) -> JobSpec:
    """Returns what servers need to know of a model.

    Raises:
        UnsupportedError: For an optimizer, or an initializer, that servers cannot follow.
    """
    partitions = {
        v.name: row_ranges(v.shape[0], count)
        for v in held.variables
        if v.kind != "delta" and (count := options.policy.partitions(v.shape, v.dtype)) and count > 1
    }
    layout = Layout.make(held.variables, options.job.num_servers, partitions)
    trained = [v for v in held.variables if v.name in set(held.trainable)]
    named = zip(held.trainable, model.trainable_variables, strict=True)
    constraints = {name: v.constraint for name, v in named if v.constraint is not None}
    with nothing_clipped(model.optimizer):
        rule = rule_of(model.optimizer, trained, lazy=options.lazy, constraints=constraints)
    # Of tables with other values, too: a spec must be equal for servers to keep what they hold.
    initializers = {
        held.trainable[i]: initializer_of(table.initializer, table.shape, str(table.dtype))
        for i in sorted(held.rows)
        for table in [model.trainable_variables[i]]
    }
    return JobSpec(layout, rule, options.mode, options.shares, initializers, options.log_order)


def rows_of_plan(model: Any, rows: Iterable[int]) -> frozenset[int]:
    """Returns the tables, among those that a step looks up by rows, that the optimizer can update by rows, too.

    Raises:
        UnsupportedError: For a table that it cannot, and that is too large to travel whole.
    """
    kept: set[int] = set()
    with nothing_clipped(model.optimizer):
        for place in rows:
            table = model.trainable_variables[place]
            described = Variable(table.path, tuple(table.shape), str(table.dtype), "rows")
            if can_be_rows(model.optimizer, described, table.constraint):
                kept.add(place)
            else:
                name = type(model.optimizer).__name__
                demand_small(table.path, table.shape, table.dtype, f"the optimizer {name}")
    return frozenset(kept)


def row_ranges(rows: int, parts: int) -> list[int]:
    """Returns the sizes of so many ranges of rows; the first ones have one more, as TensorFlow's "div" strategy."""
    parts = min(parts, rows)
    return [rows // parts + (i < rows % parts) for i in range(parts)]


def slots_of(model: Any, held: HeldModel, rule: Rule) -> dict[str, Any]:
    """Returns the optimizer's variables that servers hold, by "name/slot"."""
    optimizer = model.optimizer
    by_name: dict[str, list[Any]] = defaultdict(list)
    for variable in optimizer.variables:
        by_name[variable.name].append(variable)
    found: dict[str, Any] = {}
    for name, variable in zip(held.trainable, model.trainable_variables, strict=True):
        for slot in rule.program(name).slots:
            # Keras names a slot after the path of its variable; of two with the same path they come in order.
            same = by_name.get(f"{variable.path.replace('/', '_')}_{slot.name}")
            if same:
                found[f"{name}/{slot.name}"] = same.pop(0)
    return found


def initial_values(model: Any, held: HeldModel, slots: Mapping[str, Any], is_kept: bool) -> dict[str, Array]:
    """Returns the values that servers begin with.

    Args:
        model: The model.
        held: Its variables.
        slots: The optimizer's variables, by "name/slot".
        is_kept: Whether the servers hold the values that were not assigned to since, so that they stay there.
    """
    names = [*held.trainable, *held.non_trainable]
    variables = dict(zip(names, [*model.trainable_variables, *model.non_trainable_variables], strict=True))
    found: dict[str, Array] = {}
    for name, variable in {**variables, **slots}.items():
        value = held_value(variable)
        if name is None or (isinstance(variable, Table) and variable.is_initial):
            continue
        if isinstance(value, Deferred) and is_kept:
            continue
        found[name] = np.asarray(variable.value)
    found["iterations"] = np.asarray(model.optimizer._iterations.value)
    return found
