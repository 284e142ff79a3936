"""Sides that measure nothing, for tests of what runs them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.processes import gang, wait_for_all


def answer(options: Mapping[str, Any]) -> dict[str, float]:
    """Returns what it was told."""
    print("something for people")
    return {"value": options["value"]}


def fail(options: Mapping[str, Any]) -> dict[str, float]:
    """Raises."""
    raise ValueError(f"no such thing as {options['value']}")


def meet(options: Mapping[str, Any]) -> dict[str, float]:
    """In a worker: says that it is there, and after the others have come too, who was."""
    here = Path(options["path"])
    (here / str(options["worker"])).touch()
    wait_for_all()
    return {"seen": len(list(here.iterdir()))}


def meeting(options: Mapping[str, Any]) -> dict[str, float]:
    """A gang of three."""
    found = gang("tests.benchmarks.sides", "meet", options, [dict(os.environ)] * 3, 200)
    return {str(i): result["seen"] for i, result in enumerate(found)}


def one_fails(options: Mapping[str, Any]) -> dict[str, float]:
    """In a worker: the last fails, the others would wait for it."""
    if options["worker"] == 2:
        sys.exit("I cannot")
    wait_for_all()
    return {}


def broken(options: Mapping[str, Any]) -> dict[str, float]:
    """A gang of three with that one."""
    gang("tests.benchmarks.sides", "one_fails", options, [dict(os.environ)] * 3, 200)
    return {}
