"""A loop of 20 lines gains several steps a dispatch, workers, checkpoints and restarts with at most three more."""

from __future__ import annotations

import difflib
import runpy
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.datasets.digits import write_idx
from tests.support.cluster import ROOT

LOOPS = Path(__file__).parent / "loops"
PLAIN, PROGRAM = ((LOOPS / f"{name}.py").read_text() for name in ("plain", "program"))


def statements(source: str) -> list[str]:
    """The lines that are neither empty nor imports."""
    return [line for line in source.splitlines() if line.strip() and not line.startswith(("import", "from"))]


def test_three_lines() -> None:
    assert len(statements(PLAIN)) == 20
    changes = list(difflib.ndiff(statements(PLAIN), statements(PROGRAM)))
    assert sum(line.startswith("+") for line in changes) <= 3
    assert len(statements(PROGRAM)) <= len(statements(PLAIN))
    page = (ROOT / "docs" / "own_loops.md").read_text()
    for source in (PLAIN, PROGRAM):
        assert source.split("\n\nrng = ")[1] in page


@pytest.mark.slow
def test_they_train_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path / "mnist")
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    states: list[Any] = [runpy.run_path(str(LOOPS / f"{name}.py"))["state"] for name in ("plain", "program", "program")]
    for found in states[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=3e-5), found, states[0])
    assert sorted(p.name for p in (tmp_path / "runs" / "own").iterdir()) == ["checkpoint", "ckpt-3.npz"]
