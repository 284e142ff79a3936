"""Datasets of text files and of windows over a series have the elements of Keras' functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep as ls
import lockstep.compat.tensorflow as tf


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    for name in ("neg", "pos"):
        (tmp_path / name).mkdir()
        for number in range(3):
            (tmp_path / name / f"{number}.txt").write_bytes(f"{name} {number} é\0".encode())
        (tmp_path / name / "notes.md").write_text("not one of them")
    return tmp_path


def test_text_files(reviews: Path) -> None:
    dataset = ls.data.text_dataset_from_directory(reviews, batch_size=4, shuffle=False)
    (texts, labels), (rest, _) = dataset
    assert texts.tolist() == [b"neg 0 \xc3\xa9\0", b"neg 1 \xc3\xa9\0", b"neg 2 \xc3\xa9\0", b"pos 0 \xc3\xa9\0"]
    assert (labels.tolist(), labels.dtype, len(rest)) == ([0, 0, 0, 1], np.int32, 2)
    assert dataset.class_names == ["neg", "pos"]
    cut = ls.data.text_dataset_from_directory(reviews, label_mode=None, batch_size=None, max_length=3, shuffle=False)
    assert list(cut) == [b"neg"] * 3 + [b"pos"] * 3


def test_subsets_are_apart(reviews: Path) -> None:
    options: dict[str, Any] = {"validation_split": 0.34, "seed": 3, "label_mode": "binary", "batch_size": None}
    both = tf.keras.utils.text_dataset_from_directory(reviews, subset="both", **options)
    alone = tf.keras.utils.text_dataset_from_directory(reviews, subset="validation", **options)
    first, second, third = ({text.numpy() for text, _ in dataset} for dataset in (*both, alone))
    assert (len(first), len(second), first & second, third) == (4, 2, set(), second)


def test_what_is_refused(reviews: Path, tmp_path: Path) -> None:
    with pytest.raises(ls.errors.ArgumentError, match="label_mode must be one of int"):
        ls.data.text_dataset_from_directory(reviews, label_mode="ints")
    with pytest.raises(ls.errors.DataNotFoundError, match="there are no text files"):
        (tmp_path / "none").mkdir()
        ls.data.text_dataset_from_directory(tmp_path / "none", labels=None)
    with pytest.raises(ls.errors.ArgumentError, match="sequence_length must be from 1"):
        ls.data.timeseries_dataset_from_array(np.arange(3), None, 3)


# What Keras 2.15 gives for `arange(20) * 10`.
@pytest.mark.parametrize(
    ("targets", "options", "windows", "found"),
    [
        (
            True,
            {"sequence_stride": 4, "sampling_rate": 2},
            [[0, 20, 40], [40, 60, 80], [80, 100, 120], [120, 140, 160]],
            [0, 4, 8, 12],
        ),
        (False, {"sequence_stride": 6, "start_index": 2, "end_index": 12}, [[20, 30, 40], [80, 90, 100]], None),
        (
            True,
            {"sequence_stride": 3, "start_index": 5, "end_index": 14},
            [[50, 60, 70], [80, 90, 100], [110, 120, 130]],
            [5, 8, 11],
        ),
    ],
)
def test_windows_over_a_series(targets: bool, options: Any, windows: Any, found: Any) -> None:
    wanted = np.arange(18) if targets else None
    dataset = ls.data.timeseries_dataset_from_array(np.arange(20) * 10, wanted, 3, batch_size=3, **options)
    parts = list(dataset)
    assert np.concatenate([np.asarray(p[0] if targets else p) for p in parts]).tolist() == windows
    if targets:
        assert np.concatenate([np.asarray(p[1]) for p in parts]).tolist() == found
