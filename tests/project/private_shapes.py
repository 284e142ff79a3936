"""Describes parts of the installed jax and keras: `python -m tests.project.private_shapes NAME...` prints JSON."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from types import ModuleType
from typing import Any

from tests.project.private_uses import attributes_made_by


def shape_of(part: str) -> str:
    """Describes a part of jax or keras: what it is, with its parameters' names; "missing" if it is not there."""
    owner, name = _resolve(part)
    if inspect.isclass(owner) and not hasattr(owner, name):
        made = name in attributes_made_by(f"{owner.__module__}.{owner.__qualname__}")
        return "attribute" if made else "missing"
    if not hasattr(owner, name):
        return "missing"
    value = getattr(owner, name)
    if isinstance(value, ModuleType):
        return "module"
    if not callable(value):
        return "attribute"
    return f"{'class' if inspect.isclass(value) else 'function'} ({_parameters(value)})"


def _resolve(part: str) -> tuple[Any, str]:
    """Returns what holds a part, and the part's name there."""
    names = part.split(".")
    for end in range(len(names) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(names[:end]))
        except ImportError:
            continue
        for name in names[end:-1]:
            owner = getattr(owner, name, None)
        return owner, names[-1]
    return None, names[-1]


def _parameters(value: Any) -> str:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):  # Written in C++: the names are in the first line of its documentation.
        return ", ".join(re.findall(r"(\w+):", (value.__doc__ or "").strip().partition("\n")[0]))
    return ", ".join(str(p.replace(annotation=p.empty)).partition("=")[0] for p in parameters)


if __name__ == "__main__":
    print(json.dumps({name: shape_of(name) for name in sys.argv[1:]}))
