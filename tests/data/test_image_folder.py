from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from keras.src.utils.dataset_utils import index_directory

from lockstep.data._image_folder import SUFFIXES, list_images
from lockstep.errors import ArgumentError, DataNotFoundError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b/2.jpg", "b/1.PNG", "b/deep/0.gif", "a/x.jpeg", "a/notes.txt", ".hidden/y.jpg", "top.bmp"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"labels": None},
        {"labels": [3, 1, 4, 1, 5, 9]},
        {"class_names": ["b", "a"]},
        {"class_names": ["b"]},
    ],
)
def test_the_same_files_as_keras(folder: Path, arguments: dict[str, Any]) -> None:
    paths, labels, names = list_images(folder, **arguments)
    keras_arguments = {"labels": "inferred", **arguments}
    expected = index_directory(str(folder), formats=SUFFIXES, shuffle=False, verbose=False, **keras_arguments)
    assert [os.path.normpath(path) for path in expected[0]] == paths
    assert names == expected[2]
    assert (None if labels is None else labels.tolist()) == (None if expected[1] is None else list(expected[1]))


def test_wrong_arguments(folder: Path) -> None:
    with pytest.raises(DataNotFoundError, match="no folder"):
        list_images(folder / "none")
    (folder / "empty").mkdir()
    with pytest.raises(DataNotFoundError, match="no images"):
        list_images(folder / "empty")
    wrong: list[dict[str, Any]] = [
        {"class_names": ["a", "c"]},
        {"class_names": ["a", "a"]},
        {"labels": None, "class_names": ["a"]},
        {"labels": [1, 2]},
        {"labels": [0.5] * 6},
        {"labels": "none"},
    ]
    for arguments in wrong:
        with pytest.raises(ArgumentError):
            list_images(folder, **arguments)


def test_links(folder: Path) -> None:
    (folder / "a" / "link").symlink_to(folder / "b")
    assert len(list_images(folder)[0]) == 4
    assert len(list_images(folder, follow_links=True)[0]) == 7
