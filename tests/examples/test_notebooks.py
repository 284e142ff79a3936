"""The notebooks of examples/ run from the first cell to the last, and a kernel's end leaves nothing behind."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.cluster import ROOT, environment

pytest.importorskip("nbclient")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timed,
    # Of the libraries of notebooks.
    *(
        pytest.mark.filterwarnings(f"ignore::{name}")
        for name in ("DeprecationWarning", "UserWarning", "ResourceWarning")
    ),
]

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbclient
    import nbformat

    shutil.copy(path, tmp_path)
    for name in ("TF_CONFIG", "LOCKSTEP_LOG_DIR", "LOCKSTEP_PROGRESS_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOCKSTEP_OFFLINE", "1")
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "notebooks are kept without output"
    settings = {
        name: value for name, value in {**os.environ, **environment(has_packages=True)}.items() if value is not None
    }
    client = nbclient.NotebookClient(notebook, timeout=400, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=settings)
    text = "".join(str(o.get("text", "")) for cell in notebook.cells for o in cell.get("outputs", []))
    expected = {
        "first_steps": ["[worker 0] Epoch 3/3", "ValueError: worker 1 has no data", "caught: worker 1 failed first"],
        "migrate_estimator": ["[worker 0]"],
        "own_loop_recovery": ["killed by signal 9", "Training again"],
    }
    for words in expected[path.stem]:
        assert words in text, text
    assert list(tmp_path.glob("runs/*/report.html"))
