"""Import lines of a program, rewritten for lockstep; everything else stays as it is, to the byte."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from lockstep._migrate._coverage import HOMES, answer
from lockstep._migrate._uses import ROOTS, full_name

_FROM = re.compile(r"from(?P<space>[\s\\]+)(?P<module>[\w.]+)")


def rewrite(code: str, text: str) -> str:
    """Returns a program with lockstep's names in its import lines.

    Args:
        code: Python code.
        text: What the file holds, with the same lines; IPython's own are kept.
    """
    lines = text.splitlines(keepends=True)
    # From the end, so that places stay what they are; offsets of ast count bytes of UTF-8.
    for line, start, end, new in sorted(_edits(ast.parse(code), code), reverse=True):
        content = lines[line - 1].encode()
        lines[line - 1] = (content[:start] + new.encode() + content[end:]).decode()
    return "".join(lines)


def _edits(tree: ast.Module, code: str) -> Iterator[tuple[int, int, int, str]]:
    """Yields the line, the first and last byte in it, and the new text of each change."""
    lines = code.splitlines(keepends=True)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                new = _new_alias(alias)
                if new is not None:
                    yield alias.lineno, alias.col_offset, alias.end_col_offset or alias.col_offset, new
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            # In the statement's first line; a module behind a continued line stays, and is reported as a use.
            home = _home(node.module)
            found = _FROM.match(lines[node.lineno - 1].encode()[node.col_offset :].decode())
            if home is not None and found is not None and _has_any(node):
                start = node.col_offset + found.start("module")
                yield node.lineno, start, start + len(node.module), home


def _has_any(node: ast.ImportFrom) -> bool:
    """Returns whether lockstep has one of the names that are imported from a module that it has."""
    # TensorFlow's internal modules are there with their public names alone; the message of a public one says more.
    module = full_name(node.module or "") or ""
    if not module.startswith("tf.python"):
        return True
    return any(a.name == "*" or answer(f"{module}.{a.name}").status != "missing" for a in node.names)


def _new_alias(alias: ast.alias) -> str | None:
    """Returns what stands for `tensorflow.keras as keras` in an import line, or `None` if it stays."""
    home = _home(alias.name)
    if home is None:
        return None
    if alias.asname:
        return f"{home} as {alias.asname}"
    # `import tensorflow.keras` gives the program the name `tensorflow`; modules below it are found when they are used.
    root = alias.name.partition(".")[0]
    return f"{_home(root)} as {root}"


def _home(module: str) -> str | None:
    """Returns lockstep's module for one of TensorFlow's, or `None` if it has none."""
    name = full_name(module)
    if name is None or module.partition(".")[0] not in ROOTS or answer(name).status == "missing":
        return None
    root, dot, rest = name.partition(".")
    return HOMES[root] + dot + rest
