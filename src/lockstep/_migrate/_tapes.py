"""Gradient tapes in plain Python, which lockstep does not record: it takes derivatives in code that it compiles.

A tape is looked at where it stands: in a function that is decorated with tf.function, given to strategy.run,
tf.function or an Estimator, is a model's train_step, or is called by name from such a one. Any other is in plain
Python, as far as the program's text tells.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence

TAPE = "tf.GradientTape"
# The name under which a tape in plain Python is reported.
PLAIN_TAPE = "tf.GradientTape in plain Python"
ADVICE = (
    "Call the function it is in with strategy.run, or decorate it with tf.function; else take derivatives of "
    "functions: jax.value_and_grad(loss_fn)(weights)."
)
# Methods that Keras calls while it compiles a step.
_STEPS = frozenset({"train_step", "test_step", "call"})
_COMPILES = frozenset({"run", "experimental_run_v2", "function", "Estimator"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def compiled_functions(trees: Sequence[ast.Module]) -> set[str]:
    """Returns the names of functions that are compiled, as far as the text of a program tells."""
    calls: defaultdict[str, set[str]] = defaultdict(set)
    pending: list[str] = []
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, _Function):
                for call in _calls(node):
                    calls[node.name].add(_last_name(call.func) or "")
                if any(_last_name(_callee(d)) == "function" for d in node.decorator_list):
                    pending.append(node.name)
            elif isinstance(node, ast.ClassDef):
                pending += [m.name for m in node.body if isinstance(m, _Function) and m.name in _STEPS]
            elif isinstance(node, ast.Call) and _last_name(node.func) in _COMPILES:
                given = [*node.args[:1], *(k.value for k in node.keywords if k.arg in ("fn", "func", "model_fn"))]
                pending += [name for name in map(_last_name, given) if name]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [other for other in calls[name] if other in calls]
    return found


def plain_tapes(tree: ast.Module, compiled: set[str]) -> set[int]:
    """Returns the lines in which a gradient tape is opened in plain Python."""
    return {line for line, functions in _tapes(tree, ()) if not compiled.intersection(functions)}


def _tapes(node: ast.AST, functions: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yields the lines of tapes, and the functions around each."""
    if isinstance(node, _Function):
        functions = (*functions, node.name)
    if isinstance(node, ast.Attribute | ast.Name) and _last_name(node) == "GradientTape":
        yield node.lineno, functions
    for child in ast.iter_child_nodes(node):
        yield from _tapes(child, functions)


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def _callee(node: ast.expr) -> ast.expr:
    # @tf.function(jit_compile=True) is a call, and so is @partial(tf.function, ...).
    if isinstance(node, ast.Call):
        return node.args[0] if _last_name(node.func) == "partial" and node.args else node.func
    return node


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
