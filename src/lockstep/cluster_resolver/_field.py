"""One shape for every message about a cluster: the field and its rule, what was received, a correct example."""

from __future__ import annotations

import json
import reprlib
from dataclasses import dataclass
from typing import Final

from lockstep.errors import ClusterSpecError

_LONGEST = 160  # characters of a received value that a message shows


class _Missing:
    def __repr__(self) -> str:
        return "nothing (it is missing)"


MISSING: Final = _Missing()


@dataclass(frozen=True)
class Field:
    """A value as it was received, with the name under which the user knows it."""

    name: str
    value: object

    def item(self, key: object, value: object) -> Field:
        """Returns what stands under `key` in this field: `cluster["worker"]`, `cluster["worker"][1]`."""
        return Field(f"{self.name}[{_quoted(key)}]", value)

    def error(self, rule: str, example: object) -> ClusterSpecError:
        """Returns the error that says what this field must be.

        Args:
            rule: What holds for the field, as the rest of a sentence that starts with its name.
            example: A correct value, in the notation in which the user writes it.
        """
        return ClusterSpecError(f"{self.name} {rule}.\nReceived: {shown(self.value)}\nCorrect example: {example}")


def shown(value: object) -> str:
    """Returns `repr(value)`, cut to a length that fits a message, whatever the value is."""
    try:
        text = _SHORT.repr(value)
    except Exception:  # repr() of an integer of 5000 digits raises, and so may that of a user's class.
        return f"<{type(value).__name__} that cannot be printed>"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def quoted(text: str) -> str:
    """Returns `text` as both Python and JSON write it."""
    return json.dumps(text)


def listed(names: list[str]) -> str:
    """Returns `names` as a message lists them: "chief", "worker"."""
    return ", ".join(quoted(name) for name in names) or "none"


def _quoted(key: object) -> str:
    return quoted(key) if isinstance(key, str) and len(key) <= _LONGEST else shown(key)


def _short_repr() -> reprlib.Repr:
    short = reprlib.Repr()
    short.maxlevel = 5
    short.maxstring = short.maxother = 100
    short.maxlist = short.maxtuple = short.maxdict = 8
    return short


_SHORT: Final = _short_repr()
