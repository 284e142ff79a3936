"""Row 56: a server is killed while it writes its part of a cut; what is there can be read."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow
_WRITER = """
import sys
import numpy as np
from lockstep._engine.servers import cut
from lockstep._engine.servers.layout import Layout, Variable
layout = Layout.make([Variable("w", (500_000,), "float32", "dense")], 1)
for step in range(int(sys.argv[2]), 10_000):
    facts = {"version": step}
    cut.write(sys.argv[1], step, 0, layout, facts, {"dense|w|0": np.full(500_000, step, np.float32)}, lambda: None)
    print(step, flush=True)
"""


def test_56_a_file_is_whole_or_absent_whenever_its_server_is_killed(tmp_path: Path) -> None:
    chance, said = random.Random(0), -1
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(tmp_path), str(said + 1)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(3):
            said = int(writer.stdout.readline())
        time.sleep(chance.uniform(0, 0.02))
        writer.kill()
        writer.wait()
        writer.stdout.close()
        files = {int(path.name.split("_")[1]): path for path in tmp_path.glob("step_*.npz")}
        assert set(files) >= set(range(said + 1))
        for step, path in files.items():
            with np.load(path, allow_pickle=False) as arrays:
                assert (arrays["dense|w|0"] == step).all()
        said = max(files)
