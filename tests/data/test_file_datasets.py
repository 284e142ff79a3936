"""Datasets of files, and of the images in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockstep.data import (
    ArrayRecordDataset,
    CsvDataset,
    Dataset,
    FixedLengthRecordDataset,
    ParquetDataset,
    TextLineDataset,
    TFRecordDataset,
    TFRecordWriter,
    image_dataset_from_directory,
)
from lockstep.data._image.encode import encode_jpeg
from lockstep.errors import ArgumentError, DataNotFoundError, InputError
from tests.data.chains import read


def records(directory: Path, lengths: list[int]) -> list[str]:
    names: list[str] = []
    for i, length in enumerate(lengths):
        names.append(str(directory / f"{i}.records"))
        with TFRecordWriter(names[-1]) as writer:
            for k in range(length):
                writer.write(f"{i}-{k}".encode())
    return names


def test_files_come_one_after_another_or_in_turns(tmp_path: Path) -> None:
    names = records(tmp_path, [2, 0, 3])
    expected = [b"0-0", b"0-1", b"2-0", b"2-1", b"2-2"]
    assert list(TFRecordDataset(names)) == expected
    assert list(TFRecordDataset(Dataset.from_tensor_slices(names))) == expected
    in_turns = [b"0-0", b"2-0", b"0-1", b"2-1", b"2-2"]
    assert list(TFRecordDataset(names, num_parallel_reads=3)) == in_turns
    assert list(TFRecordDataset(Path(names[0]))) == expected[:2]


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    (name,) = records(tmp_path, [3])
    content = Path(name).read_bytes()
    Path(name).write_bytes(content[:-2])
    with pytest.raises(InputError, match=r"0\.records"):
        list(TFRecordDataset(name))
    assert len(list(TFRecordDataset([name, *records(tmp_path / "..", [])]).ignore_errors())) == 2
    with pytest.raises(DataNotFoundError, match="nothing here"):
        list(TextLineDataset(str(tmp_path / "nothing here")))


def test_text_and_csv_and_fixed_length(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("a,b\n1,x\n2,y\n")
    assert list(TextLineDataset(str(path)).skip(1)) == [b"1,x", b"2,y"]
    rows = list(CsvDataset(str(path), [np.int32, "none"], header=True))
    assert [(int(n), t) for n, t in rows] == [(1, b"x"), (2, b"y")]
    only = list(CsvDataset(str(path), [np.int32], header=True, exclude_cols=[1]))
    assert [int(n) for (n,) in only] == [1, 2]
    assert list(FixedLengthRecordDataset(str(path), 4, header_bytes=4)) == [b"1,x\n", b"2,y\n"]


def test_parquet(tmp_path: Path) -> None:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    path = tmp_path / "data.parquet"
    parquet.write_table(arrow.table({"n": [1, 2, 3], "t": ["a", "b", "c"]}), path)
    rows = list(ParquetDataset(str(path)).batch(2))
    assert rows[0]["n"].tolist() == [1, 2]
    assert rows[1]["t"].tolist() == [b"c"]
    assert set(ParquetDataset(str(path), columns=["n"]).element_spec) == {"n"}


def test_array_records_are_read_where_they_are_used(tmp_path: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    path = str(tmp_path / "data.array_record")
    writer = ArrayRecordWriter(path, "group_size:1")
    for i in range(20):
        writer.write(str(i).encode())
    writer.close()
    dataset = ArrayRecordDataset(path)
    assert len(dataset) == 20
    shuffled = dataset.shuffle(seed=1).map(lambda r: int(r)).batch(3, num_parallel_calls=2)
    assert sorted(v for batch in shuffled for v in batch.tolist()) == list(range(20))
    iterator = shuffled.as_numpy_iterator()
    next(iterator)
    position = iterator.get_state()
    rest = read(iterator)
    iterator.set_state(position)
    assert read(iterator) == rest


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for label, kind in enumerate(("cat", "dog")):
        (tmp_path / kind).mkdir()
        for i in range(5):
            colour = np.full((8 + i, 12, 3), 20 * i + 100 * label, np.uint8)
            (tmp_path / kind / f"{i}.jpg").write_bytes(encode_jpeg(colour))
    return tmp_path


def folder(directory: Path, **arguments: Any) -> Any:
    return image_dataset_from_directory(directory, **{"image_size": (6, 4), "batch_size": 4, **arguments})


def test_images_and_labels(pictures: Path) -> None:
    dataset = folder(pictures, shuffle=False)
    assert dataset.class_names == ["cat", "dog"]
    batches = list(dataset)
    assert [len(labels) for _, labels in batches] == [4, 4, 2]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert (images.shape, images.dtype, labels.dtype) == ((10, 6, 4, 3), np.float32, np.int32)
    assert labels.tolist() == [0] * 5 + [1] * 5
    np.testing.assert_allclose(images.mean(axis=(1, 2, 3)), [0, 20, 40, 60, 80, 100, 120, 140, 160, 180], atol=2)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("categorical", [[1.0, 0.0], [0.0, 1.0]]), ("binary", [0.0, 1.0]), ("int", [0, 1]), (None, None)],
)
def test_label_modes(pictures: Path, mode: str | None, expected: Any) -> None:
    dataset = folder(pictures, shuffle=False, label_mode=mode, batch_size=None, color_mode="grayscale")
    elements = list(dataset)
    if mode is None:
        assert elements[0].shape == (6, 4, 1)
    else:
        assert [np.asarray(elements[i][1]).tolist() for i in (0, 9)] == expected


def test_a_split_covers_every_file_once(pictures: Path) -> None:
    arguments = {"validation_split": 0.3, "seed": 3, "label_mode": None, "batch_size": None}
    parts = folder(pictures, subset="both", **arguments)
    alone = [folder(pictures, subset=name, **arguments) for name in ("training", "validation")]
    for part, same in zip(parts, alone, strict=True):
        assert {i.tobytes() for i in part} == {i.tobytes() for i in same}
    assert [len(part) for part in parts] == [7, 3]
    assert len({i.tobytes() for part in parts for i in part}) == 10


def test_cropping_keeps_proportions(pictures: Path) -> None:
    half = np.zeros((8, 32, 3), np.uint8)
    half[:, 12:20] = 200
    (pictures / "cat" / "wide.jpg").write_bytes(encode_jpeg(half))
    plain, cropped = (
        list(folder(pictures, shuffle=False, label_mode=None, batch_size=None, crop_to_aspect_ratio=crop))[5]
        for crop in (False, True)
    )
    assert cropped.mean() > 150 > 100 > plain.mean()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"color_mode": "cmyk"}, "color_mode must be one of"),
        ({"label_mode": "words"}, "label_mode must be one of"),
        ({"subset": "training"}, "go together"),
        ({"subset": "training", "validation_split": 2.0, "seed": 1}, "between 0 and 1"),
        ({"subset": "training", "validation_split": 0.2}, "needs a seed"),
    ],
)
def test_wrong_arguments(pictures: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        folder(pictures, **arguments)


def test_a_broken_picture_is_named(pictures: Path) -> None:
    (pictures / "dog" / "2.jpg").write_bytes(b"no picture")
    with pytest.raises(InputError, match=r"dog/2\.jpg"):
        list(folder(pictures, shuffle=False))
    dataset = folder(pictures, shuffle=False, batch_size=None).ignore_errors()
    assert len(list(dataset)) == 9
    assert dataset.ignored_errors == 1
