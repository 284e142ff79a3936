"""Writes docs/tensorflow_names.md, the list of TensorFlow's names that are there: python -m tests.compat.names_page."""

from __future__ import annotations

import importlib
import pkgutil
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import lockstep.compat.tensorflow as tf
from lockstep._migrate._differences import difference_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tensorflow_names.md"
# Keras' names are Keras' own to list; tf.python finds names of TensorFlow's inside among these.
_ELSEWHERE = {"keras", "python"}
_HEAD = """\
# TensorFlow's names

This page is generated: `python -m tests.compat.names_page` writes it, and a test compares it with the modules. Names
follow TensorFlow 2.15. One that is not listed raises an AttributeError that says what to use instead;
`lockstep scan` finds the names that a program uses.

`tf.keras` has all of Keras 3's names and Keras 2's ways; `tf.initializers`, `tf.losses`, `tf.metrics` and
`tf.optimizers` are those of `tf.keras`. `tf.experimental.numpy` is `jax.numpy`. `tf.distribute` and its parts have
everything of `lockstep.distribute`; `tf.compat.v1` has everything of `tf`, and its `nn`, `data` and `saved_model` what
those of `tf` have. `tf.compat.v2` is `tf`.
"""


def modules() -> dict[str, ModuleType]:
    """Returns the modules of compat that list names, by TensorFlow's name of them."""
    return {m.__name__.replace("lockstep.compat.tensorflow", "tf"): m for m in _walk(tf)}


def _walk(package: ModuleType) -> Iterator[ModuleType]:
    yield package
    for info in pkgutil.iter_modules(getattr(package, "__path__", [])):
        if not info.name.startswith("_") and info.name not in _ELSEWHERE:
            yield from _walk(importlib.import_module(f"{package.__name__}.{info.name}"))


def page() -> str:
    """Returns the page as Markdown."""
    parts = [_HEAD, _differing(), "## All names\n"]
    parts += [_listed(name, module.__all__) for name, module in modules().items() if module.__all__]
    return "\n".join(parts)


def _differing() -> str:
    """Returns a table of the names that differ from TensorFlow's."""
    by_difference: dict[str, list[str]] = defaultdict(list)
    for name, module in modules().items():
        # What tf.compat.v1 has of tf's is named once.
        for exported in sorted(module.__all__, key=str.lower):
            difference = difference_of(f"{name}.{exported}")
            if difference is not None:
                by_difference[difference].append(f"`{name}.{exported}`")
    rows = "".join(f"| {', '.join(names)} | {text} |\n" for text, names in by_difference.items())
    head = "## Names that differ\n\nIn short; [what differs](tensorflow_differences.md) says more.\n\n"
    return f"{head}| names | in what |\n|---|---|\n{rows}"


def _listed(name: str, names: list[str]) -> str:
    text = f"* `{name}`: " + ", ".join(f"`{n}`" for n in sorted(names, key=str.lower)) + "."
    return textwrap.fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page() + "\n", encoding="utf-8")
