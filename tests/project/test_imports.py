"""Dependencies point one way, and imports stay cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "lockstep"
# What each part may import of the others; DESIGN: cluster <- runtime <- step, feed <- loop <- keras <- distribute.
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "_types": set(),
    "_decoded_size": set(),
    "_nest": set(),
    "cluster_resolver": set(),
    "_runtime": {"cluster_resolver"},
    "_step": {"_runtime"},
    "_cpu": {"_runtime", "_step"},
    "_platforms": {"_cpu"},
    "data": {"_decoded_size", "_nest"},
    "_feed": {"_nest", "_runtime", "_step", "data"},
    "_loop": {"_runtime", "_step", "_feed"},
    "checkpoint": set(),
    "_keras": {"_nest", "_runtime", "_step", "_feed", "_loop", "checkpoint"},
    "distribute": {"_nest", "cluster_resolver", "data", "_platforms", "_runtime", "_step", "_feed", "_keras"},
    "datasets": {"_decoded_size", "data"},
    "_model_fn": {"_nest", "_runtime", "_step", "_keras"},
    "summary": {"data", "_model_fn"},
    "callbacks": {"data", "summary", "checkpoint"},
    "_function": {"_nest", "distribute", "_keras"},
    "random": {"distribute", "_step"},
    "train": {
        *(
            "_model_fn",
            "_nest",
            "checkpoint",
            "callbacks",
            "data",
            "distribute",
            "_runtime",
            "_step",
            "_feed",
            "_loop",
            "_keras",
        ),
    },
    "metrics": {"_model_fn"},
    "losses": {"_model_fn"},
    "feature_column": {"_model_fn", "checkpoint", "data"},
    "saved_model": {"_model_fn", "data", "checkpoint"},
    "estimator": {
        *("cluster_resolver", "distribute", "data", "checkpoint", "summary", "train", "metrics", "feature_column"),
        *("saved_model", "_nest", "_runtime", "_step", "_feed", "_loop", "_model_fn"),
    },
    "compat": {
        "_decoded_size",
        *("cluster_resolver", "callbacks", "checkpoint", "config", "data", "datasets", "distribute", "estimator"),
        *("feature_column", "losses", "metrics", "saved_model", "summary", "train", "_model_fn", "_nest", "_runtime"),
    },
    "config": {"_runtime"},
    "_backend": {"_runtime"},
    "_launch": {"cluster_resolver"},
    "testing": set(),
    "__init__": {
        *(
            "_backend",
            "_function",
            "cluster_resolver",
            "callbacks",
            "checkpoint",
            "compat",
            "config",
            "data",
            "datasets",
        ),
        *(
            "distribute",
            "estimator",
            "feature_column",
            "losses",
            "metrics",
            "random",
            "saved_model",
            "summary",
            "testing",
            "train",
        ),
    },
}


def _part(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def _imports(path: Path) -> Iterator[str]:
    """The parts of lockstep that a module imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{a.name}" for a in node.names] if node.module == "lockstep" else [node.module]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        else:
            continue
        yield from (n.split(".")[1] for n in names if n.startswith("lockstep."))


FILES = [p for p in sorted(SOURCE.rglob("*.py")) if not p.is_symlink()]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_dependencies_point_one_way(path: Path) -> None:
    part = _part(path)
    strangers = set(_imports(path)) - ALLOWED[part] - {part, "errors", "_types"}
    assert not strangers, f"{part} must not import {strangers}"


def test_every_part_has_a_place_in_the_order() -> None:
    assert {_part(p) for p in FILES} == set(ALLOWED)


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["lockstep", "lockstep._launch.cli"])
def test_import_loads_neither_jax_nor_keras(module: str) -> None:
    loaded = _loaded_by(f"import {module}")
    assert module in loaded
    assert not loaded & {"jax", "keras", "tensorflow", "torch", "grain"}


def test_nothing_reads_or_writes_pickles() -> None:
    for path in FILES:
        names = {a.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Import) for a in n.names}
        assert not names & {"pickle", "cloudpickle", "dill", "marshal", "shelve"}, path
