"""The program that each task runs: a script or a module, followed by arguments that are its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from lockstep.errors import ArgumentError

_FLAGS = frozenset({"--evaluator", "--help"})
"""Options of `lockstep run` that take no value."""


def shield_module(arguments: Sequence[str]) -> list[str]:
    """Put `--` before the `-m` of `lockstep run`, so that, as with Python, what follows is not read as options."""
    position = 1
    while position < len(arguments) and arguments[position].startswith("-") and arguments[position] != "--":
        if arguments[position] == "-m":
            return [*arguments[:position], "--", *arguments[position:]]
        position += 1 if arguments[position] in _FLAGS or "=" in arguments[position] else 2
    return list(arguments)


def command_of(program: Sequence[str]) -> list[str]:
    """Return the command of a task, this interpreter running `program`; refuse a program that is not there."""
    if not program:
        raise ArgumentError("A task needs a program to run, received none. Give a script, or -m and a module.")
    if program[0] == "-m":
        _check_module(program)
    elif not Path(program[0]).exists():
        raise ArgumentError(
            f"The script must be an existing file, received {program[0]!r}, looked for in {Path.cwd()}. "
            "Check its path; options of lockstep run come before the script."
        )
    return [sys.executable, *program]


def _check_module(program: Sequence[str]) -> None:
    if len(program) < 2:
        raise ArgumentError("-m must be followed by the name of a module, received nothing. Give -m package.module.")
