"""Uses of TensorFlow's names in a program, by its syntax: `tf.keras.layers.Dense`, however the program calls it.

Names are followed through `import ... as`, `from ... import`, and assignments such as `layers = tf.keras.layers`, scope
by scope as Python does it. What is only known when the program runs (methods of what a function returns) is left out.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

# Modules that programs import, and what their names are called here.
ROOTS = {"tensorflow": "tf", "tensorflow_datasets": "tfds", "keras": "keras", "tf_keras": "tf.keras"}
# Packages of TensorFlow's that have no counterpart.
OTHERS = frozenset(
    (
        *(
            "tensorflow_addons",
            "tensorflow_federated",
            "tensorflow_hub",
            "tensorflow_io",
            "tensorflow_model_optimization",
        ),
        *("tensorflow_probability", "tensorflow_text", "tensorflow_transform", "tensorflow_model_analysis"),
        *("tensorflow_recommenders", "tensorflow_ranking", "tensorflow_serving", "tensorflow_gan", "tfx", "trax"),
        *("tensorflow_decision_forests", "tensorflow_graphics", "tensorflow_docs", "tensorflow_cloud", "official"),
        *("tensorflow_estimator", "keras_tuner", "keras_nlp", "keras_cv", "keras_hub"),
    )
)
# Internal modules of which the public ones are known: programs import them out of habit.
_INTERNAL = {"tf.python.keras": "tf.keras", "tf.keras.python": "tf.keras", "keras.src": "keras"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True)
class Use:
    """A name of TensorFlow's at a place of a program.

    Attributes:
        name: Its full name, such as "tf.data.Dataset".
        line: From 1.
        is_import: Whether the line imports it.
    """

    name: str
    line: int
    is_import: bool = False


@dataclass
class Scope:
    """Names of a module, function or class: what they stand for, or `None` for something else."""

    parent: Scope | None = None
    names: dict[str, str | None] = field(default_factory=dict[str, str | None])
    imported: set[str] = field(default_factory=set[str])
    is_class: bool = False

    def find(self, name: str) -> str | None:
        """Returns what a name stands for, here or further out."""
        scope: Scope | None = self
        while scope is not None:
            # The body of a class is not around its methods.
            if name in scope.names and (scope is self or not scope.is_class):
                return scope.names[name]
            scope = scope.parent
        return None


def full_name(module: str) -> str | None:
    """Returns the name of a module as it is called here, or `None` if it is none of TensorFlow's."""
    root, dot, rest = module.partition(".")
    if root not in ROOTS:
        return module if root in OTHERS else None
    name = ROOTS[root] + dot + rest
    for internal, public in _INTERNAL.items():
        if name == internal or name.startswith(f"{internal}."):
            return public + name.removeprefix(internal)
    return name


def find_uses(tree: ast.Module, scope: Scope, expand: Callable[[str], Sequence[str]]) -> list[Use]:
    """Returns the uses of names in a module, in order.

    Args:
        tree: The module.
        scope: Its names, which this adds to: cells of a notebook share them.
        expand: Returns the names of a module, for `from tensorflow import *`.
    """
    finder = _Finder(scope, expand)
    finder.bind(tree.body)
    finder.visit(tree)
    # A chain of attributes is met at each of its parts; the longest one counts.
    return finder.uses


class _Finder(ast.NodeVisitor):
    def __init__(self, scope: Scope, expand: Callable[[str], Sequence[str]]) -> None:
        self.uses: list[Use] = []
        self._scope = scope
        self._expand = expand

    def bind(self, body: Sequence[ast.stmt]) -> None:
        """Notes what the names of a scope stand for, before its expressions are looked at."""
        for node in _own_nodes(body):
            self._bind_node(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = full_name(alias.name)
            if name is not None:
                self.uses.append(Use(name, node.lineno, True))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = full_name(node.module or "") if not node.level else None
        for alias in node.names if module else ():
            name = module if alias.name == "*" else f"{module}.{alias.name}"
            self.uses.append(Use(str(name), node.lineno, True))

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._use(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if not self._use(node):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(part)
        self._inside(node.body, Scope(self._scope, is_class=True))

    def _visit_function(self, node: _Function) -> None:
        arguments = node.args
        # Defaults, decorators and annotations belong to the scope around.
        around: list[ast.AST | None] = [*arguments.defaults, *arguments.kw_defaults]
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        around += [argument.annotation for argument in every if argument is not None]
        if not isinstance(node, ast.Lambda):
            around += [*node.decorator_list, node.returns]
        for part in around:
            if part is not None:
                self.visit(part)
        # An argument is whatever a caller gives, also if it is called `tf`.
        names: dict[str, str | None] = {argument.arg: None for argument in every if argument is not None}
        body = [ast.Expr(node.body)] if isinstance(node, ast.Lambda) else node.body
        self._inside(body, Scope(self._scope, names))

    def _inside(self, body: Sequence[ast.stmt], scope: Scope) -> None:
        before, self._scope = self._scope, scope
        self.bind(body)
        for statement in body:
            self.visit(statement)
        self._scope = before

    def _use(self, node: ast.expr) -> bool:
        name = self._name_of(node)
        if name is not None:
            self.uses.append(Use(name, node.lineno))
        return name is not None

    def _name_of(self, node: ast.AST | None) -> str | None:
        """Returns the full name that an expression stands for, or `None`."""
        if isinstance(node, ast.Name):
            return self._scope.find(node.id)
        if isinstance(node, ast.Attribute):
            inner = self._name_of(node.value)
            return None if inner is None else f"{inner}.{node.attr}"
        return None

    def _bind_node(self, node: ast.AST) -> None:
        names = self._scope.names
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                name = full_name(alias.name if alias.asname else bound)
                self._import(bound, name)
        elif isinstance(node, ast.ImportFrom):
            self._bind_from(node)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self._assign(node.targets[0].id, self._name_of(node.value))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.setdefault(node.id, None)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.setdefault(node.name, None)

    def _bind_from(self, node: ast.ImportFrom) -> None:
        module = full_name(node.module or "") if not node.level else None
        for alias in node.names:
            if alias.name == "*":
                for name in self._expand(module) if module else ():
                    self._import(name, f"{module}.{name}")
            else:
                self._import(alias.asname or alias.name, f"{module}.{alias.name}" if module else None)

    def _import(self, name: str, value: str | None) -> None:
        # `try: import tensorflow as tf`, `except ImportError: tf = None`: what TensorFlow is stays.
        if value is not None:
            self._scope.names[name] = value
            self._scope.imported.add(name)
        else:
            self._scope.names.setdefault(name, None)

    def _assign(self, name: str, value: str | None) -> None:
        if name not in self._scope.imported:
            # A name that is assigned twice may be anything: `loss = tf.keras.losses.mse`, `loss = loss(a, b)`.
            same = name not in self._scope.names or self._scope.names[name] == value
            self._scope.names[name] = value if same else None


def _own_nodes(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yields the nodes of a scope in order, without those of functions, classes and comprehensions inside of it."""
    pending: list[ast.AST] = list(reversed(body))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, _Function | ast.ClassDef | _Comprehension):
            pending.extend(reversed(list(ast.iter_child_nodes(node))))
