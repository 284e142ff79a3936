"""The texts of lockstep's errors, read from the source: the sites that make an error, and the page of each."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep._messages.pages import page_of

# Of the installed package: its texts are those that this release raises.
_PACKAGE = Path(__file__).resolve().parents[1]
# Values in a message are shown by the last name of their expression.
_NAMES_ERROR = re.compile(r"Error|Preempted|\berror\(|Exception")
_LAST_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Message:
    """The text of one place of the source that makes an error: its class, its module, and the page that it leads to."""

    text: str
    kind: str
    module: str
    page: str


def _classes(files: Iterable[Sequence[ast.AST]]) -> dict[str, type[BaseException]]:
    """Returns stand-ins for the error classes of the source, by name, without importing what uses jax."""
    bases: dict[str, list[str]] = {}
    for nodes in files:
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, [ast.unparse(b) for b in node.bases])
    made: dict[str, type[BaseException]] = {"LockstepError": type("LockstepError", (Exception,), {})}
    while True:
        new = {
            name: next(made[base] for base in of if base in made)
            for name, of in bases.items()
            if name not in made and any(base in made for base in of)
        }
        if not new:
            return made
        made |= {name: type(name, (base,), {}) for name, base in new.items()}


def _shown(node: ast.expr) -> str:
    """Returns the text of a message with its values as <names>, or "" if another function words it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = _shown(node.left), _shown(node.right)
        return "".join(parts) if any(parts) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(v.value) if isinstance(v, ast.Constant) else _value(v) for v in node.values)
    return ""


def _texts(node: ast.expr, assigned: dict[str, list[str]]) -> Iterator[str]:
    """Yields the texts that an argument may be: its own, or those that its module assigns to a variable of its name."""
    texts = assigned.get(node.id, []) if isinstance(node, ast.Name) else [_shown(node)]
    yield from (text for text in texts if text)


def _value(node: ast.expr) -> str:
    names = _LAST_NAME.findall(ast.unparse(node.value)) if isinstance(node, ast.FormattedValue) else []
    names = [n for n in names if n not in {"repr", "str", "map", "join", "sorted", "self", "type", "r", "f", "format"}]
    return f"<{names[-1].strip('_').lower() or 'value'}>" if names else "<value>"


def messages() -> Iterator[Message]:
    """Yields every error whose text stands where it is made, in the order of the source."""
    paths = (path for path in sorted(_PACKAGE.rglob("*.py")) if not path.is_symlink())
    # A file's tree is walked once: that takes most of the time.
    files = {
        path: list(ast.walk(ast.parse(text)))
        for path in paths
        if _NAMES_ERROR.search(text := path.read_text(encoding="utf-8"))
    }
    classes = _classes(files.values())
    for path, nodes in files.items():
        module = ".".join(path.relative_to(_PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        # Imports under another name: `from lockstep.errors import ArgumentError as _ArgumentError`.
        names = {a.asname or a.name: a.name for n in nodes if isinstance(n, ast.ImportFrom) for a in n.names}
        assigned: dict[str, list[str]] = defaultdict(list)
        for node in (n for n in nodes if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)):
            assigned[ast.unparse(node.targets[0])].append(_shown(node.value))
        for call in (n for n in nodes if isinstance(n, ast.Call)):
            if isinstance(call.func, ast.Attribute):
                called = call.func.attr
            elif isinstance(call.func, ast.Name):
                called = call.func.id
            else:
                continue
            kind, start = names.get(called, called), ""
            if called == "error" and module.startswith("lockstep.cluster_resolver"):
                kind, start = "ClusterSpecError", "<field> "
            for text in _texts(call.args[0], assigned) if kind in classes and call.args else ():
                yield Message(start + " ".join(text.split()), kind, module, page_of(classes[kind], module))
