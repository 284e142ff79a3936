"""Finds uses of private parts of jax and keras in the source, by its syntax alone."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "lockstep"
_PACKAGES = ("jax", "jaxlib", "keras")
# Modules without a promise of compatibility. `jax.interpreters` is only what jax has not taken away yet.
_PRIVATE = ("jax._src", "jax.interpreters", "jaxlib", "keras.src")
# Classes of Keras whose objects pass through lockstep: an underscore attribute of one of them is private, too.
_CLASSES = (
    "keras.src.trainers.trainer.Trainer",
    "keras.src.backend.jax.trainer.JAXTrainer",
    "keras.src.layers.layer.Layer",
    "keras.src.models.model.Model",
    "keras.src.models.sequential.Sequential",
    "keras.src.backend.common.variables.Variable",
    "keras.src.optimizers.base_optimizer.BaseOptimizer",
    "keras.src.optimizers.loss_scale_optimizer.LossScaleOptimizer",
    "keras.src.trainers.compile_utils.CompileLoss",
    "keras.src.trainers.compile_utils.CompileMetrics",
    "keras.src.trainers.data_adapters.array_data_adapter.ArrayDataAdapter",
    "keras.src.callbacks.callback.Callback",
    "keras.src.callbacks.model_checkpoint.ModelCheckpoint",
    "keras.src.callbacks.backup_and_restore.BackupAndRestore",
    "keras.src.callbacks.callback_list.CallbackList",
    "keras.src.metrics.metric.Metric",
    "keras.src.backend.jax.core.JaxVariable",
    "keras.src.layers.normalization.batch_normalization.BatchNormalization",
    "keras.src.optimizers.multi_optimizer.MultiOptimizer",
    "keras.src.optimizers.rmsprop.RMSprop",
)


# What lockstep keeps on objects of others.
_MARK = "_lockstep"
# Underscore names of Python's own that are documented.
_OF_PYTHON = {"_asdict", "_current_frames", "_exit", "_fields", "_getframe", "_replace"}


@cache
def find_uses(source: Path = SOURCE) -> dict[str, set[str]]:
    """Returns the files that use each private part: a dotted name, or `._name` for an attribute of an object."""
    files = {path.relative_to(source).as_posix(): _nodes(path.read_text()) for path in source.rglob("*.py")}
    made = {path: set(_made(nodes)) for path, nodes in files.items()}
    ours = set().union(*made.values()) | _OF_PYTHON
    uses: dict[str, set[str]] = defaultdict(set)
    for path, nodes in files.items():
        aliases = _renamed(nodes, dict(_imports(nodes)))
        attributes = {f".{name}" for name in _foreign_attributes(nodes, aliases, made[path], ours)}
        for name in _private_names(nodes, aliases) | attributes:
            uses[name].add(path)
    return dict(uses)


def _nodes(source: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source)))


def _private_names(nodes: Sequence[ast.AST], aliases: dict[str, str]) -> set[str]:
    chains = {chain for node in nodes if (chain := _dotted(node, aliases)) and _is_private(chain)}
    imported = {name for name in aliases.values() if _is_private(name)}
    # A part of a chain is a use of its own only where nothing longer is used.
    return {a for a in chains | imported if not any(b.startswith(f"{a}.") for b in chains)}


def _imports(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yields each local name with the dotted name that it stands for."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in _PACKAGES:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] in _PACKAGES:
                    top = alias.name.split(".")[0]
                    yield (alias.asname, alias.name) if alias.asname else (top, top)


def _renamed(nodes: Sequence[ast.AST], aliases: dict[str, str]) -> dict[str, str]:
    """Returns `aliases` with those of `module: Any = image`, which is how a module's parts are replaced."""
    parameters = {node.arg for node in nodes if isinstance(node, ast.arg)}
    more = {
        node.target.id: aliases[node.value.id]
        for node in nodes
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if isinstance(node.value, ast.Name) and node.value.id in aliases
        if node.target.id not in parameters  # Somewhere in the file it is something else.
    }
    return aliases | more


def _dotted(node: ast.AST, aliases: dict[str, str]) -> str | None:
    """Returns the dotted name that an expression spells, with `getattr` and `import_module` of constants."""
    match node:
        case ast.Name(id=name):
            return aliases.get(name)
        case ast.Attribute(value=value, ctx=ast.Store()):  # What is put there need not have been there.
            return _dotted(value, aliases)
        case ast.Attribute(value=value, attr=name):
            return f"{start}.{name}" if (start := _dotted(value, aliases)) else None
        case ast.Call(
            func=ast.Name(id="getattr" | "hasattr" | "setattr"), args=[value, ast.Constant(value=str(name)), *_]
        ):
            return f"{start}.{name}" if (start := _dotted(value, aliases)) else None
        case ast.Tuple(elts=[value, ast.Constant(value=str(name))]):  # A table of what is replaced.
            return f"{start}.{name}" if (start := _dotted(value, aliases)) else None
        case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name))]):
            return name if name.split(".")[0] in _PACKAGES else None
        case _:
            return None


def _is_private(name: str) -> bool:
    inside = any(name == start or name.startswith(f"{start}.") for start in _PRIVATE)
    return inside or any(_has_underscore(part) for part in name.split(".")[1:])


def _has_underscore(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _foreign_attributes(
    nodes: Sequence[ast.AST], aliases: dict[str, str], here: set[str], ours: set[str]
) -> Iterator[str]:
    """Yields underscore attributes that lockstep makes nowhere, or Keras' objects have and this file does not make."""
    formatted = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name) if name in keras_attributes():
                yield name
            case ast.ClassDef(bases=bases, body=body) if any(_is_of_keras(base, aliases) for base in bases):
                names = (line.name for line in body if isinstance(line, ast.FunctionDef))
                yield from (name for name in names if name in keras_attributes())
            case ast.Attribute(attr=name) if _has_underscore(name) and not _is_listed(node, aliases):
                is_unknown = name not in ours and not name.startswith(_MARK)
                if is_unknown or (name in keras_attributes() and name not in here):
                    yield name
            case ast.Constant(value=str(name)) if id(node) not in formatted and name in keras_attributes():
                yield name
            case _:
                pass


def _is_listed(node: ast.AST, aliases: dict[str, str]) -> bool:
    """Says if an expression is a dotted name, which is listed as such."""
    return _is_private(_dotted(node, aliases) or "")


def _is_of_keras(base: ast.expr, aliases: dict[str, str]) -> bool:
    return (_dotted(base, aliases) or "").startswith("keras.")


@cache
def keras_attributes() -> set[str]:
    """Returns the underscore attributes of the objects of Keras' classes that pass through lockstep."""
    return set().union(*map(attributes_made_by, _CLASSES))


@cache
def attributes_made_by(dotted: str) -> frozenset[str]:
    """Returns the underscore attributes that a class of Keras, or one below it, makes anywhere in its source."""
    module, _, name = dotted.rpartition(".")
    bases = getattr(importlib.import_module(module), name).__mro__
    sources = [inspect.getsource(base) for base in bases if base.__module__.startswith("keras.")]
    return frozenset(made for source in sources for made in _made(_nodes(source)))


def _made(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yields underscore names that are defined: functions, `self._x = ...`, and `_x` of classes."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) if _has_underscore(name):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()) if _has_underscore(name):
                yield name
            case ast.ClassDef(body=body):
                for line in body:
                    targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
                    yield from (t.id for t in targets if isinstance(t, ast.Name) and _has_underscore(t.id))
            case _:
                pass
