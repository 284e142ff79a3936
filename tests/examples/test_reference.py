"""Every public name has an example in the reference, and the examples run as they are."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cluster import ROOT, environment

FILES = sorted((ROOT / "examples" / "reference").glob("*.py"))


# What makes the site's pages.
SITE = ROOT / "scripts" / "site"


def test_every_public_name_has_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SITE))
    reference, snippets = importlib.import_module("reference"), importlib.import_module("snippets")
    modules, examples = reference.public_names(), snippets.by_name()
    shown = [f"{m}.{name}" for m, names in modules.items() for name in reference.documented(m, names, modules)]
    assert len(shown) > 350
    assert [name for name in shown if name not in examples] == [], "add a cell to a file of examples/reference"


@pytest.mark.cluster
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_examples_run(file: Path, tmp_path: Path) -> None:
    settings = environment(has_packages=True, KERAS_HOME=str(tmp_path / "keras"))
    done = subprocess.run(
        [sys.executable, str(file)], cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
