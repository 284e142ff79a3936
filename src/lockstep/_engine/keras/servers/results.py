"""Passes on what the chief's calls give to the other tasks: values, and the variables that they leave behind."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from lockstep._engine.keras.recovery import pack, unpack
from lockstep._engine.keras.servers.chief import rows_of
from lockstep._engine.keras.servers.tables import Table
from lockstep._engine.servers.call import Call
from lockstep._engine.servers.chief_call import ChiefCall
from lockstep._engine.servers.layout import Layout
from lockstep._types import Array, PyTree

_VALUE = "value"


def end(call: ChiefCall, value: PyTree) -> None:
    """Ends a call with a structure of numbers and arrays."""
    arrays: dict[str, Any] = {}
    facts = pack(jax.tree.map(lambda v: v if isinstance(v, str) else np.asarray(v), value), _VALUE, arrays)
    call.end(facts, {name: np.asarray(array) for name, array in arrays.items()})


def follow(call: Call) -> Any:
    """Returns what the chief has ended a call with."""
    facts, arrays = call.result()
    return jax.tree.map(_plain, unpack(facts, arrays))


def _plain(value: Any) -> Any:
    """Returns a number as Python's, and an array of its own memory."""
    if isinstance(value, str):
        return value
    return np.asarray(value).item() if np.ndim(value) == 0 else np.array(value)


def order_logs(logs: Mapping[str, Any], in_order: Any) -> list[Any]:
    """Returns logs so that their order survives JSON: names, values, and what is returned without `return_dict`."""
    return [list(logs), list(logs.values()), in_order]


def logs_of(found: list[Any], return_dict: bool) -> Any:
    """Returns logs of what `ordered` has made."""
    names, values, in_order = found
    return dict(zip(names, values, strict=True)) if return_dict else in_order


def arrays_of(model: Any) -> dict[str, Array]:
    """Returns the values of a model's variables that tasks hold whole, and of its optimizer's."""
    return {name: np.asarray(v) for name, v in _variables(model).items() if not isinstance(v, Table)}


def follow_training(model: Any, call: Call, layout: Layout | None = None) -> Any:
    """Returns what the chief has ended a training with, and takes its variables over."""
    facts, arrays = call.result()
    names = {} if layout is None else dict(enumerate(v.name for v in layout.variables))
    for name, variable in _variables(model).items():
        if name in arrays:
            variable.assign(arrays[name])
    for place, variable in enumerate(model.trainable_variables):
        if isinstance(variable, Table) and place in names:
            variable.serve(partial(call.read, names[place]), partial(rows_of, call, names[place]))
    return unpack(facts, arrays)


def _variables(model: Any) -> Mapping[str, Any]:
    groups = {
        "trainable": model.trainable_variables,
        "non_trainable": model.non_trainable_variables,
        "optimizer": model.optimizer.variables,
        "metrics": model.metrics_variables,
    }
    return {f"{group}/{i}": v for group, variables in groups.items() for i, v in enumerate(variables)}
