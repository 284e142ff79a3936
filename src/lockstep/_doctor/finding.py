"""A finding of a check: a line of the report, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Level(StrEnum):
    """Severity of a finding; an `error` decides the exit status."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """Finding of a check.

    Attributes:
        section: The subject, such as "memory": findings of one are shown together.
        level: How bad it is.
        text: What was seen.
        advice: What to do; every warning and error has one.
        data: The figures, for `--json`.
    """

    section: str
    level: Level
    text: str
    advice: str = ""
    data: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        """Refuses a problem without a remedy."""
        if self.level in (Level.WARNING, Level.ERROR) and not self.advice:
            raise AssertionError(f"A finding that is a problem must say what to do: {self.text}")


def ok(section: str, text: str, **data: object) -> Finding:
    """Returns a finding that nothing is wrong with."""
    return Finding(section, Level.OK, text, data=data)


def note(section: str, text: str, advice: str = "", **data: object) -> Finding:
    """Returns a finding that is worth a look, and may be meant so."""
    return Finding(section, Level.NOTE, text, advice, data)


def warning(section: str, text: str, advice: str, **data: object) -> Finding:
    """Returns a finding that makes training slow, unsafe, or fail later."""
    return Finding(section, Level.WARNING, text, advice, data)


def error(section: str, text: str, advice: str, **data: object) -> Finding:
    """Returns a finding with which training does not work."""
    return Finding(section, Level.ERROR, text, advice, data)


def size(count: float) -> str:
    """Returns bytes for people, such as "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
