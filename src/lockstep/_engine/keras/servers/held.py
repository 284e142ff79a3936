"""A model's variables as servers hold them: names, kinds, and which of them each step needs or changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lockstep._engine.keras.replica_step import is_seed
from lockstep._engine.keras.servers.tables import Table
from lockstep._engine.servers.layout import Variable
from lockstep.errors import MismatchError, UnsupportedError

_ADVICE = "Make and compile the same model on every task: the same layers with the same settings."


@dataclass(frozen=True)
class HeldModel:
    """The variables of a model on servers, in Keras' order.

    Attributes:
        trainable: The names of the trainable variables.
        non_trainable: Those of the others; `None` for a random generator's state, which tasks compute.
        rows: The places, among the trainable variables, of tables that are looked up by rows.
        variables: All that servers hold.
    """

    trainable: tuple[str, ...]
    non_trainable: tuple[str | None, ...]
    rows: frozenset[int]
    variables: tuple[Variable, ...]

    @classmethod
    def of(cls, model: Any, rows: Iterable[int]) -> HeldModel:
        """Describes the variables of a built model, of which those tables are looked up by rows.

        Raises:
            UnsupportedError: If a variable holds what servers cannot add up.
        """
        rows = frozenset(rows)
        names = unique_names([v.path for v in (*model.trainable_variables, *model.non_trainable_variables)])
        held: list[Variable] = []
        for place, variable in enumerate(model.trainable_variables):
            held.append(_describe(names[place], variable, "rows" if place in rows else "dense"))
        others: list[str | None] = []
        for name, variable in zip(names[len(held) :], list(model.non_trainable_variables), strict=True):
            others.append(None if is_seed(variable) else name)
            if not is_seed(variable):
                _demand_number(variable)
                held.append(_describe(name, variable, "delta"))
        return cls(tuple(names[: len(model.trainable_variables)]), tuple(others), rows, tuple(held))

    def check_same(self, theirs: Sequence[Variable], task: str) -> None:
        """Raises `MismatchError` unless the chief's model has these variables, too; names may be numbered otherwise."""
        mine = [(v.kind, v.dtype, v.shape) for v in self.variables]
        chiefs = [(v.kind, v.dtype, v.shape) for v in theirs]
        if mine == chiefs:
            return
        place = next(
            (i for i, (a, b) in enumerate(zip(mine, chiefs, strict=False)) if a != b), min(len(mine), len(chiefs))
        )
        raise MismatchError(
            f"All tasks must have the same variables of the model. Variable {place} is {_shown(theirs, place)} on the "
            f"chief, and {_shown(self.variables, place)} on {task}. {_ADVICE}"
        )

    def renamed(self, theirs: Sequence[Variable]) -> HeldModel:
        """Returns the same variables under the chief's names: Keras numbers layers, and a task may have made others."""
        chiefs = {mine.name: other.name for mine, other in zip(self.variables, theirs, strict=True)}
        others = tuple(None if name is None else chiefs[name] for name in self.non_trainable)
        return HeldModel(tuple(chiefs[name] for name in self.trainable), others, self.rows, tuple(theirs))


def unique_names(paths: Sequence[str]) -> list[str]:
    """Returns paths of variables, with numbers after those that are there more than once."""
    count, seen, names = Counter(paths), Counter[str](), list[str]()
    for path in paths:
        seen[path] += 1
        names.append(path if count[path] == 1 else f"{path}#{seen[path]}")
    return names


def seeds_of(model: Any) -> list[np.ndarray]:
    """Returns the states of a model's random generators."""
    return [np.asarray(v) for v in model.non_trainable_variables if is_seed(v)]


def tables_of(model: Any) -> dict[int, Table]:
    """Returns the tables among the trainable variables of a model, by their places."""
    return {place: v for place, v in enumerate(model.trainable_variables) if isinstance(v, Table)}


def _describe(name: str, variable: Any, kind: Any) -> Variable:
    return Variable(name, tuple(variable.shape), str(np.dtype(variable.dtype)), kind)


def _demand_number(variable: Any) -> None:
    if str(variable.dtype) in ("bool", "string"):
        raise UnsupportedError(
            "What a step changes besides weights is added up on the servers, so it must be a number. Received: "
            f"{variable.path!r} of {variable.dtype}. Use an integer, or MultiWorkerMirroredStrategy."
        )


def _shown(variables: Sequence[Variable], place: int) -> str:
    if place >= len(variables):
        return "missing"
    one = variables[place]
    return f"{one.name!r} ({one.kind}, {one.dtype}{list(one.shape)})"
