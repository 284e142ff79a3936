from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lockstep.data._files.stream import matching_files
from lockstep.errors import ArgumentError, DataNotFoundError


def test_matching_files(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", ".c.txt", "d.bin"):
        (tmp_path / name).touch()
    folder = f"{tmp_path}/"
    assert matching_files(folder + "*.txt") == [folder + name for name in (".c.txt", "a.txt", "b.txt")]
    assert matching_files([folder + "[^a].txt", tmp_path / "d.bin"]) == [folder + "b.txt", folder + "d.bin"]
    assert matching_files(np.array([(folder + "?.txt").encode()], object)) == [folder + "a.txt", folder + "b.txt"]
    assert matching_files((folder + "a.txt").encode()) == [folder + "a.txt"]


def test_nothing_found(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"'.*none\*'"):
        matching_files(str(tmp_path / "none*"))
    with pytest.raises(ArgumentError, match="at least one"):
        matching_files([])
