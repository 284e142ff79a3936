"""Update rules: an optimizer as exported programs, which servers run without Keras and without the user's code."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Literal

from lockstep._types import JSON
from lockstep.errors import ArgumentError

# "flat": elements do not depend on each other, variables may be joined and divided at will. "rows": rows do not depend
# on each other. "whole": the variable is updated by one server, whole (Lamb's norms, Adafactor's factors).
Form = Literal["flat", "rows", "whole"]
_MOST_TEXT = 256 << 20


@dataclass(frozen=True)
class Slot:
    """One array of the optimizer's that belongs to a variable, or a scalar that belongs to a program.

    Attributes:
        name: Keras' name of it, without the variable's ("momentum").
        shape: Of the whole slot; `None` for the variable's own shape.
        dtype: NumPy's name of the type.
        initial: The value that it begins with, in all elements.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    initial: float


@dataclass(frozen=True)
class Movement:
    """How rows without gradient move, for an optimizer where they do.

    Attributes:
        rests_when_new: Whether a row that has never had a gradient stays as it is.
        settles: After how many steps without gradient only the slots move, each by a constant factor per step; `None`
            if that is not so, and each step is computed however many there are.
        decays: These factors, by slot.
        follows_rate: Whether a row that has settled moves again where the rate is another than in the step before, and
            then settles within as many steps.
    """

    rests_when_new: bool
    settles: int | None
    decays: tuple[float, ...]
    follows_rate: bool = False


@dataclass(frozen=True)
class Program:
    """The update of one class of variables.

    Attributes:
        form: What may be divided.
        clock: Exported `(iteration, *hyper, *scalars) -> (*rates, *scalars)`: all that depends on the step alone.
        update: Exported `(*rates, value, *slots, gradient) -> (value, *slots)`. Flat: of shape (n,); rows: (n, *row),
            or all their elements, of shape (n,), if `is_elementwise`.
        replay: Exported `(steps, *rates, value, *slots) -> (value, *slots)` for rows that are behind: `steps` of shape
            (n,), rates (n, most steps), values (n, *row). `None` if rows without gradient do not move.
        rates: The dtypes of what the clock gives.
        slots: Arrays beside the value.
        scalars: Scalars that go on from step to step by themselves (Nadam's product).
        movement: How rows without gradient move; `None` if they do not, or are not to (`lazy`).
        is_elementwise: Whether `update` takes rows element by element.
    """

    form: Form
    clock: bytes
    update: bytes
    replay: bytes | None
    rates: tuple[str, ...]
    slots: tuple[Slot, ...]
    scalars: tuple[Slot, ...]
    movement: Movement | None
    is_elementwise: bool = False


@dataclass(frozen=True)
class Rule:
    """An optimizer, for parameter servers.

    Attributes:
        optimizer: The class, for messages.
        hyper: The names of scalars that the chief may change between steps ("learning_rate").
        defaults: Their values when the rule was made.
        programs: By key, which is a hash of the program.
        program_of: By variable, the key of its program. Variables without gradients (kind "delta") have none.
    """

    optimizer: str
    hyper: tuple[str, ...]
    defaults: tuple[float, ...]
    programs: Mapping[str, Program]
    program_of: Mapping[str, str]

    def program(self, name: str) -> Program:
        """Returns the program of a variable."""
        return self.programs[self.program_of[name]]

    @cached_property
    def whole(self) -> frozenset[str]:
        """The variables that may not be divided into row ranges."""
        return frozenset(name for name, key in self.program_of.items() if self.programs[key].form == "whole")

    def digest(self) -> str:
        """Returns a hash that is equal for equal rules."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Returns the rule as text; programs are base64."""
        record = asdict(self)
        for program in record["programs"].values():
            for key in ("clock", "update", "replay"):
                program[key] = None if program[key] is None else base64.b64encode(program[key]).decode()
        return json.dumps(record, separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Rule:
        """Returns the rule that `to_json` wrote.

        Raises:
            ArgumentError: If the text is no rule, or is larger than any.
        """
        if len(text) > _MOST_TEXT:
            raise ArgumentError(f"An update rule has at most {_MOST_TEXT} characters. Received: {len(text)}.")
        try:
            record = json.loads(text)
            return cls(
                str(record["optimizer"]),
                tuple(map(str, record["hyper"])),
                tuple(map(float, record["defaults"])),
                {str(key): _program(value) for key, value in record["programs"].items()},
                {str(name): str(key) for name, key in record["program_of"].items()},
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ArgumentError(
                f"An update rule is the text that Rule.to_json writes. Received: {text[:80]!r} ({error}). Start all "
                "tasks with the same version of lockstep."
            ) from error


def _program(record: JSON) -> Program:
    code = {
        key: None if record[key] is None else base64.b64decode(record[key]) for key in ("clock", "update", "replay")
    }
    movement = record["movement"]
    return Program(
        form=record["form"],
        clock=code["clock"] or b"",
        update=code["update"] or b"",
        replay=code["replay"],
        rates=tuple(map(str, record["rates"])),
        slots=tuple(map(_slot, record["slots"])),
        scalars=tuple(map(_slot, record["scalars"])),
        movement=movement
        and Movement(
            bool(movement["rests_when_new"]),
            None if movement["settles"] is None else int(movement["settles"]),
            tuple(map(float, movement["decays"])),
            bool(movement["follows_rate"]),
        ),
        is_elementwise=bool(record["is_elementwise"]),
    )


def _slot(record: JSON) -> Slot:
    shape = None if record["shape"] is None else tuple(map(int, record["shape"]))
    return Slot(str(record["name"]), shape, str(record["dtype"]), float(record["initial"]))
