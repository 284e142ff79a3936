"""Private parts of jax and keras: each is as the table says, and the table lists them all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.private_parts import OTHERWISE_NAMED, PARTS
from tests.project.private_uses import find_uses


@pytest.fixture(scope="module")
def shapes() -> dict[str, str]:
    """Describes the parts as they are in a process without lockstep, which replaces some of them."""
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    command = [sys.executable, "-m", "tests.project.private_shapes", *PARTS]
    root = Path(__file__).resolve().parents[2]
    return json.loads(subprocess.check_output(command, cwd=root, env=environment, text=True).splitlines()[-1])


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_as_the_installed_release_has_it(part: str, shapes: dict[str, str]) -> None:
    found = shapes[part]
    assert found in PARTS[part].split(" or "), (
        f"{part} has changed: it was {PARTS[part]!r}, and is {found!r}. Mend what uses it, {_files_of(part)}, then "
        "its row in tests/project/private_parts.py."
    )


def test_what_the_source_uses_is_listed() -> None:
    uses = find_uses()
    missing = {name: files for name, files in uses.items() if not _is_listed(name)}
    assert not missing, f"Use a public part instead, or add a row to tests/project/private_parts.py: {missing}"


def test_what_is_listed_is_used() -> None:
    stale = [part for part in PARTS if not _files_of(part)]
    assert not stale, f"Delete these rows of tests/project/private_parts.py: {stale}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from jax._src import core\ncore.trace_state_clean()", "jax._src.core.trace_state_clean"),
        ("import jax\njax._src.core.f()", "jax._src.core.f"),
        ("import jax\njax.devices()[0]._client", "._client"),
        ("import importlib\nimportlib.import_module('jaxlib._jax').f", "jaxlib._jax.f"),
        ("def f():\n    from keras.src.tree import flatten as g", "keras.src.tree.flatten"),
        ("import keras\nclass A(keras.Model):\n    def _symbolic_build(self): pass", "._symbolic_build"),
        ("def f(model):\n    return getattr(model, '_compile_loss')", "._compile_loss"),
        ("from keras.src import saving as s\nx = [(s, 'saving_lib')]", "keras.src.saving.saving_lib"),
    ],
)
def test_a_use_of_any_kind_is_found(source: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(source)
    assert find_uses(tmp_path) == {expected: {"a.py"}}


def _files_of(part: str) -> set[str]:
    uses = find_uses()
    return uses.get(part, set()) | uses.get(f".{part.rpartition('.')[2]}", set())


def _is_listed(use: str) -> bool:
    if not use.startswith("."):
        return use in PARTS
    return use[1:] in OTHERWISE_NAMED or any(part.endswith(use) for part in PARTS)
