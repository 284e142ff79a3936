"""Public names that are made while their module runs, written as plain source for the reference to read.

Run by the environment that has jax and Keras: `python scripts/site/inspected.py FOLDER`. The reference itself reads
source and runs nothing, so it cannot see a function that another function returns.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reference

import lockstep  # noqa: F401  It chooses Keras' backend for what is imported below.

PACKAGE = "lockstep_inspected"


def module_file(module: str) -> str:
    """Returns the name of the module of stubs for a public module."""
    return module.replace(".", "_")


def _parses(text: str) -> bool:
    try:
        ast.parse(f"def f({text}): ...")
    except SyntaxError:
        return False
    return True


def _parameter(parameter: inspect.Parameter) -> str:
    plain = parameter.replace(annotation=inspect.Parameter.empty)
    unknown = plain.replace(default=...) if plain.default is not inspect.Parameter.empty else plain
    variadic = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return next(t for t in map(str, (parameter, plain, unknown)) if _parses(t) or variadic)


def _signature(value: Callable[..., Any]) -> str:
    parts, seen_star = [], False
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            seen_star = True
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not seen_star:
            parts.append("*")
            seen_star = True
        parts.append(_parameter(parameter))
    return ", ".join(parts)


def _stub(name: str, value: Any) -> str:
    text = inspect.getdoc(value) or ""
    body = "".join(f"    {line}\n" if line else "\n" for line in f'"""{text}\n"""'.splitlines())
    body = body.replace("\\", "\\\\")
    if inspect.isclass(value):
        return f"class {name}:\n{body}"
    return f"def {name}({_signature(value)}):\n{body}"


def main(folder: Path) -> None:
    """Writes a module of stubs for each public module."""
    package = folder / PACKAGE
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    modules = reference.public_names()
    for module, names in modules.items():
        found = importlib.import_module(module)
        values = {n: getattr(found, n) for n in reference.documented(module, names, modules)}
        stubs = [_stub(n, v) for n, v in values.items() if inspect.isclass(v) or inspect.isroutine(v)]
        (package / f"{module_file(module)}.py").write_text("\n\n".join(stubs), encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
