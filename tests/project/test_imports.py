"""Dependencies point one way, and imports stay cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "lockstep"
# What each part may import: resolvers <- runtime <- step, input <- loop <- keras <- distribute <- estimator <- compat.
ALLOWED: dict[str, set[str]] = {
    "_messages": set(),
    "errors": {"_messages"},
    "_types": set(),
    "_decoded_size": set(),
    "_nest": set(),
    "_text": set(),
    "_backend": set(),
    "cluster_resolver": set(),
    "checkpoint": set(),
    "testing": set(),
    # Records of runs, and pages of them: read by the launcher, so without jax and keras.
    "report": set(),
    "_templates": set(),
    "_doctor": {"_engine.runtime", "checkpoint", "cluster_resolver", "distribute"},
    "_launch": {
        *("__version__", "_doctor", "_engine.runtime", "_messages", "_migrate", "_templates", "cluster_resolver"),
        "report",
    },
    "__main__": {"_launch"},
    "_notebook": {"_launch"},
    "_engine": set(),
    "_engine.runtime": {"cluster_resolver", "report"},
    "_engine.step": {"_engine.runtime"},
    "config": {"_engine.runtime"},
    # Nothing imports _cpu but _platforms, so that it can be removed.
    "_cpu": {"_engine.runtime", "_engine.step"},
    "_platforms": {"_cpu"},
    # The walker of jaxprs, which imports nothing itself.
    "data": {"_decoded_size", "_engine.step", "_nest"},
    "datasets": {"_decoded_size", "data"},
    "summary": {"data"},
    "saved_model": {"_text", "checkpoint"},
    "_engine.input": {"_engine.runtime", "_engine.step", "_nest", "data"},
    "_engine.loop": {"_engine.runtime", "_engine.step"},
    "_engine.servers": {"_engine.input", "_engine.runtime", "_engine.step", "checkpoint", "cluster_resolver"},
    "_engine.keras": {
        *("_engine.input", "_engine.loop", "_engine.runtime", "_engine.servers", "_engine.step", "_nest", "checkpoint"),
    },
    "distribute": {
        *("_engine.input", "_engine.keras", "_engine.runtime", "_engine.servers", "_engine.step"),
        *("_nest", "_platforms", "cluster_resolver", "data"),
    },
    "training": {
        *("_engine.input", "_engine.keras", "_engine.loop", "_engine.runtime", "_engine.step"),
        *("_nest", "checkpoint", "data", "distribute", "summary"),
    },
    "estimator": {
        *("_engine.input", "_engine.keras", "_engine.loop", "_engine.runtime", "_engine.servers", "_engine.step"),
        *("_nest", "_text", "checkpoint", "cluster_resolver", "data", "distribute", "saved_model", "summary"),
    },
    # Nothing imports compat.
    "compat": {
        *("_decoded_size", "_engine.runtime", "_engine.step", "_messages", "_nest", "_text", "checkpoint"),
        *("cluster_resolver", "config", "data", "datasets", "distribute", "estimator", "saved_model"),
        *("summary", "training"),
    },
    # Nothing imports _migrate but the command line, when one of its commands is used.
    "_migrate": {"_messages", "checkpoint", "compat", "saved_model"},
    "__init__": {
        *(
            "_backend",
            "_notebook",
            "checkpoint",
            "cluster_resolver",
            "compat",
            "config",
            "data",
            "datasets",
            "distribute",
        ),
        *("estimator", "report", "saved_model", "summary", "testing", "training"),
    },
}


def _part(names: Sequence[str]) -> str:
    """Returns the part of lockstep that a module belongs to, of the names on its path below `lockstep`."""
    depth = 2 if names[0] == "_engine" and len(names) > 1 and names[1] != "__init__" else 1
    return ".".join(names[:depth])


def _part_of(path: Path) -> str:
    return _part(path.relative_to(SOURCE).with_suffix("").parts)


def _imports(path: Path) -> Iterator[str]:
    """Yields the parts of lockstep that a module imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        else:
            continue
        yield from (_part(n.split(".")[1:]) for n in names if n.startswith("lockstep."))


FILES = [p for p in sorted(SOURCE.rglob("*.py")) if not p.is_symlink()]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_dependencies_point_one_way(path: Path) -> None:
    part = _part_of(path)
    strangers = set(_imports(path)) - ALLOWED[part] - {part, "errors", "_types"}
    assert not strangers, f"{part} must not import {strangers}"


def test_every_part_has_a_place_in_the_order() -> None:
    assert {_part_of(p) for p in FILES} == set(ALLOWED)


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
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
