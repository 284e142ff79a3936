"""How many source files one batch of `fit` crosses: somebody who follows it should not have to open more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "files_of_a_batch"
MOST = 25


@pytest.mark.slow
def test_a_batch_crosses_few_files() -> None:
    crossed = json.loads(subprocess.check_output([sys.executable, str(SCRIPT), "--json"], text=True, timeout=300))
    assert sorted(crossed) == ["arrays", "dataset"]
    for source, files in crossed.items():
        # A few must be there: a window in which nothing was noted would pass any limit.
        assert {"_engine/keras/fit.py", "_engine/step/program.py"} <= set(files), source
        assert len(files) <= MOST, f"a batch of {source} crosses {len(files)} files: {', '.join(files)}"
