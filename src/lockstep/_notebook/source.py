"""The program of a function that was defined in a notebook: its source, and all that it uses, as a script.

Source, and not a pickle: nothing is evaluated that was not typed into a cell, tracebacks show the lines, and the script
is a program that runs without the notebook.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import linecache
import symtable
import textwrap
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from lockstep._notebook.values import is_plain
from lockstep.errors import ArgumentError

# The module of what cells define.
_MAIN = "__main__"


class Program:
    """A script in the making.

    Attributes:
        values: Values of the notebook that the function uses, by name: shipped beside the script.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._imports: dict[str, str] = {}
        self._definitions: dict[str, str] = {}
        self._seen: set[str] = set()

    def add(self, name: str, value: Any, user: str) -> None:
        """Adds a name that `user` refers to, and what its definition refers to.

        Raises:
            ArgumentError: If neither source nor a plain value can stand for it.
        """
        if name in self._seen:
            return
        # Before its definition is read: two functions may call each other.
        self._seen.add(name)
        if isinstance(value, ModuleType):
            self._imports[name] = f"import {value.__name__} as {name}"
        elif getattr(value, "__module__", None) == _MAIN and isinstance(value, FunctionType | type):
            self._define(name, value)
        elif (statement := _import_of(name, value)) is not None:
            self._imports[name] = statement
        elif is_plain(value):
            self.values[name] = value
        else:
            raise ArgumentError(
                "A function that is launched may use modules, functions and classes of the notebook, plain values and "
                f"arrays. Received: {user}, which uses {name!r}, a {type(value).__name__}. Make it inside of the "
                "function: each task needs one of its own."
            )

    def text(self) -> str:
        """Returns the lines before the call: imports, lockstep's first, and definitions, each before its users."""
        # Above Keras: lockstep chooses its backend.
        imports = sorted(self._imports.values(), key=lambda line: (not line.startswith("import lockstep"), line))
        return "\n".join([*imports, "", "", *self._definitions.values()])

    def _define(self, name: str, value: FunctionType | type) -> None:
        source = source_of(value)
        scope = _globals_of(value)
        for used in _names_of(source):
            if used in scope and used != name:
                self.add(used, scope[used], name)
        self._definitions[name] = f"{source}\n\n"
        if value.__name__ != name:
            self._definitions[f"{name} ="] = f"{name} = {value.__name__}\n\n"


def check_function(function: Any) -> None:
    """Refuses what cannot be launched.

    Raises:
        ArgumentError: If it is no function with a name and source of its own.
    """
    rule = "launch takes a function that a cell or a module defines with def, outside of other functions."
    if not isinstance(function, FunctionType):
        raise ArgumentError(f"{rule} Received: {function!r:.80}. Give the function itself, without calling it.")
    if function.__name__ == "<lambda>" or "<locals>" in function.__qualname__:
        raise ArgumentError(f"{rule} Received: {function.__qualname__}. Define it in a cell of its own.")


def source_of(value: FunctionType | type) -> str:
    """Returns the source of a function or class that a cell has defined, decorators included.

    Raises:
        ArgumentError: If it has none, as after `exec`.
    """
    for code in _codes_of(value):
        # IPython keeps the text of each cell there, under the name of the code; for classes `inspect` looks elsewhere.
        lines = "".join(linecache.getlines(code.co_filename))
        for node in ast.parse(lines).body if lines else []:
            is_definition = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if is_definition and node.name == value.__name__ and _holds(node, code):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                return "\n".join(lines.splitlines()[first - 1 : node.end_lineno])
    raise ArgumentError(
        f"launch ships the source of {value.__name__!r}, and there is none. Received: a {type(value).__name__} that no "
        "cell and no file defines, such as a class without methods. Put it into a module, and import it."
    )


def program_of(function: Callable[..., Any]) -> Program:
    """Returns the script of a function, up to its call.

    Raises:
        ArgumentError: If it, or something that it uses, cannot be shipped as source.
    """
    check_function(function)
    program = Program()
    program.add(function.__name__, function, function.__name__)
    return program


def _holds(node: ast.stmt, code: CodeType) -> bool:
    return (
        node.end_lineno is not None
        and node.lineno <= code.co_firstlineno + 1
        and code.co_firstlineno <= node.end_lineno
    )


def _codes_of(value: FunctionType | type) -> Iterator[CodeType]:
    if isinstance(value, FunctionType):
        # A decorator may have wrapped it.
        yield inspect.unwrap(value).__code__
        return
    for member in vars(value).values():
        function = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
        if isinstance(function, FunctionType) and function.__module__ == _MAIN:
            yield function.__code__


def _globals_of(value: FunctionType | type) -> Mapping[str, Any]:
    if isinstance(value, FunctionType):
        return inspect.unwrap(value).__globals__
    return vars(importlib.import_module(_MAIN))


def _names_of(source: str) -> list[str]:
    """Returns the global names that a definition refers to, in its body, decorators, bases and defaults."""
    # By scopes, and not every name in the source: a local variable or an argument may have a global's name.
    table = symtable.symtable(textwrap.dedent(source), "<cell>", "exec")
    names = [symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()]
    pending = list(table.get_children())
    while pending:
        scope = pending.pop(0)
        names += [symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()]
        pending += scope.get_children()
    return list(dict.fromkeys(names))


def _import_of(name: str, value: Any) -> str | None:
    """Returns the statement that imports a value of another module by its name there; `None` if there is none."""
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not own or module == _MAIN or "." in own or "<" in own:
        return None
    try:
        found = getattr(importlib.import_module(module), own, None)
    except ImportError:
        return None
    return f"from {module} import {own} as {name}" if found is value else None
