"""A machine without MNIST and without network."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def keras_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Keras' own directory, empty, on a machine that must not download."""
    home = tmp_path / "keras"
    monkeypatch.setenv("KERAS_HOME", str(home))
    monkeypatch.setenv("LOCKSTEP_OFFLINE", "1")
    return home
