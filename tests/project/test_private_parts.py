"""Private parts of jax and keras: each is as the table says, and the table lists them all."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.project.private_parts import OTHERWISE_NAMED, PARTS
from tests.project.private_uses import attributes_made_by, find_uses


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_as_the_installed_release_has_it(part: str) -> None:
    found = shape_of(part)
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


def shape_of(part: str) -> str:
    """Describes a part of jax or keras: what it is, with its parameters' names; "missing" if it is not there."""
    owner, name = _resolve(part)
    if inspect.isclass(owner) and not hasattr(owner, name):
        made = name in attributes_made_by(f"{owner.__module__}.{owner.__qualname__}")
        return "attribute" if made else "missing"
    if not hasattr(owner, name):
        return "missing"
    value = getattr(owner, name)
    if isinstance(value, ModuleType):
        return "module"
    if not callable(value):
        return "attribute"
    return f"{'class' if inspect.isclass(value) else 'function'} ({_parameters(value)})"


def _resolve(part: str) -> tuple[Any, str]:
    """Returns what holds a part, and the part's name there."""
    names = part.split(".")
    for end in range(len(names) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(names[:end]))
        except ImportError:
            continue
        for name in names[end:-1]:
            owner = getattr(owner, name, None)
        return owner, names[-1]
    return None, names[-1]


def _parameters(value: Any) -> str:
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):  # Written in C++: the names are in the first line of its documentation.
        return ", ".join(re.findall(r"(\w+):", (value.__doc__ or "").strip().partition("\n")[0]))
    return ", ".join(str(p.replace(annotation=p.empty)).partition("=")[0] for p in parameters)
