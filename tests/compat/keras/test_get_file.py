"""`get_file` against the paths that TensorFlow 2.15.1 gives and leaves."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError

PHOTOS = ["photos", "photos/a", "photos/a/x.txt"]
# Arguments, the path that is returned, and what lies in the cache afterwards.
CASES: list[tuple[dict[str, Any], str, list[str]]] = [
    ({"origin": "photos.tar.gz", "untar": True}, "datasets/photos", [*PHOTOS, "photos.tar.gz"]),
    ({"origin": "photos.tgz", "untar": True}, "datasets/photos.tgz", [*PHOTOS, "photos.tgz.tar.gz"]),
    ({"fname": "photos", "origin": "photos.tgz", "untar": True}, "datasets/photos", [*PHOTOS, "photos.tar.gz"]),
    ({"origin": "photos.tar.gz", "extract": True}, "datasets/photos.tar.gz", [*PHOTOS, "photos.tar.gz"]),
    ({"fname": "z.zip", "origin": "z.zip", "extract": True}, "datasets/z.zip", ["z.zip", "zz", "zz/x.txt"]),
    ({"fname": "q", "origin": "z.zip"}, "datasets/q", ["q"]),
]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("published")
    (root / "photos" / "a").mkdir(parents=True)
    (root / "photos" / "a" / "x.txt").write_text("x")
    for name in ("photos.tar.gz", "photos.tgz"):
        with tarfile.open(root / name, "w:gz") as archive:
            archive.add(root / "photos", "photos")
    with zipfile.ZipFile(root / "z.zip", "w") as archive:
        archive.write(root / "photos" / "a" / "x.txt", "zz/x.txt")
    return root


@pytest.mark.parametrize(("arguments", "path", "left"), CASES)
def test_paths_are_those_of_keras_2(
    published: Path, tmp_path: Path, arguments: dict[str, Any], path: str, left: list[str]
) -> None:
    arguments = {**arguments, "origin": f"file://{published}/{arguments['origin']}"}
    for _ in range(2):
        found = tf.keras.utils.get_file(cache_dir=str(tmp_path), **arguments)
        assert found == str(tmp_path / path)
        base = tmp_path / "datasets"
        assert sorted(str(p.relative_to(base)) for p in base.rglob("*")) == sorted(left)


def test_an_absolute_name_is_where_the_file_is_saved(published: Path, tmp_path: Path) -> None:
    target = tmp_path / "there" / "z.zip"
    found = tf.keras.utils.get_file(target, f"file://{published}/z.zip", extract=True, cache_dir=tmp_path / "cache")
    assert found == str(target)
    assert target.exists()
    assert (tmp_path / "cache" / "datasets" / "zz" / "x.txt").exists()


def test_what_is_no_archive_warns(published: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="is no archive"):
        tf.keras.utils.get_file(origin=f"file://{published}/photos/a/x.txt", extract=True, cache_dir=str(tmp_path))
    with pytest.raises(ArgumentError, match="origin="):
        tf.keras.utils.get_file("x.txt")
