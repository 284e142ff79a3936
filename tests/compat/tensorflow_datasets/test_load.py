"""Programs that import tensorflow_datasets run with another import line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
import lockstep.compat.tensorflow_datasets as tfds
from lockstep.datasets import _download, names
from lockstep.errors import ArgumentError, UnsupportedError
from tests.datasets.digits import digits, write_idx
from tests.datasets.files import pictures

IMAGES, LABELS, TEST_IMAGES, TEST_LABELS = digits()


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A data directory with MNIST."""
    directory = write_idx(tmp_path / "data" / "mnist").parent
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", str(directory))
    return directory


def test_the_program_of_the_tutorials() -> None:
    tfds.disable_progress_bar()
    data, info = tfds.load(name="mnist", with_info=True, as_supervised=True)
    train, test = data["train"], data["test"]
    assert info.splits["train"].num_examples == 12

    def scale(image, label):  # type: ignore[no-untyped-def]
        image = tf.cast(image, tf.float32)
        image /= 255
        return image, label

    (images, labels), *_ = train.map(scale).cache().batch(12)
    np.testing.assert_allclose(images.numpy(), IMAGES[..., None] / 255.0, rtol=1e-6)
    np.testing.assert_array_equal(labels.numpy(), LABELS)
    assert len(list(test)) == 5
    tfds.enable_progress_bar()


def test_elements_are_tensors() -> None:
    data = tfds.load("mnist", split=tfds.Split.TRAIN)
    assert isinstance(data, tf.data.Dataset)
    element = next(iter(data))
    assert element["image"].numpy().shape == (28, 28, 1)
    assert element["label"].dtype == tf.int64
    assert element["label"].numpy() == LABELS[0]


def test_many_splits() -> None:
    first, rest = tfds.load("mnist", split=["train[:25%]", "train[25%:]"], as_supervised=True)
    assert [int(label.numpy()) for _, label in first] == LABELS[:3].tolist()
    assert len(rest) == 9


def test_whole_tensors() -> None:
    images, labels = tfds.load("mnist", split="test", batch_size=-1, as_supervised=True)
    np.testing.assert_array_equal(images.numpy(), TEST_IMAGES[..., None])
    np.testing.assert_array_equal(tfds.as_numpy(labels), TEST_LABELS)


def test_pictures_are_mapped_one_by_one(root: Path) -> None:
    pictures(root)

    def crop(image, label):  # type: ignore[no-untyped-def]
        return tf.cast(image[:4, :4], tf.float32) / 255.0, label

    data = tfds.load("cats_vs_dogs", split=tfds.Split.TRAIN, as_supervised=True)
    (images, labels), *_ = data.map(crop).shuffle(1024).batch(6)
    assert (images.dtype, tuple(images.shape)) == (tf.float32, (6, 4, 4, 3))
    assert ((images.numpy().mean((1, 2, 3)) > 0.5) == labels.numpy()).all()
    assert sorted(labels.numpy()) == [0, 0, 0, 1, 1, 1]


def test_numpy_elements() -> None:
    elements = list(tfds.as_numpy(tfds.load("mnist", split="test")))
    assert all(isinstance(e["image"], np.ndarray) for e in elements)
    assert [int(e["label"]) for e in elements] == TEST_LABELS.tolist()


def test_a_builder() -> None:
    builder = tfds.builder("mnist")
    assert isinstance(builder, tfds.core.DatasetBuilder)
    assert (builder.name, builder.info.splits["train"].num_examples) == ("mnist", 60_000)
    builder.download_and_prepare()
    assert builder.info.splits["train"].num_examples == 12
    data = builder.as_dataset(split=tfds.core.ReadInstruction("train", to=50, unit="%"), as_supervised=True)
    assert [int(label.numpy()) for _, label in data] == LABELS[:6].tolist()
    assert list(builder.as_dataset()) == ["train", "test"]
    assert isinstance(builder.info.features["label"], tfds.features.ClassLabel)


def test_arguments_of_as_dataset() -> None:
    config = tfds.ReadConfig(shuffle_seed=1)
    arguments = {"split": "train", "shuffle_files": True, "read_config": config, "as_supervised": True}
    data = tfds.load("mnist", as_dataset_kwargs=arguments)
    labels = [int(label.numpy()) for _, label in data]
    assert labels != LABELS.tolist()
    assert sorted(labels) == sorted(LABELS.tolist())


@pytest.mark.parametrize("arguments", [{"try_gcs": False}, {"decoders": None}, {"builder_kwargs": {}}])
def test_arguments_that_ask_for_nothing_are_accepted(arguments: dict[str, object]) -> None:
    assert len(tfds.load("mnist", split="test", **arguments)) == 5


@pytest.mark.parametrize(
    "arguments",
    [{"try_gcs": True}, {"decoders": {"image": 1}}, {"as_dataset_kwargs": {"decoders": {"image": 1}}}],
)
def test_arguments_that_cannot_be_honoured_are_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(UnsupportedError, match=r"cannot honour '(try_gcs|decoders)'"):
        tfds.load("mnist", split="test", **arguments)


def test_arguments_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ArgumentError, match="load has no argument 'splits'"):
        tfds.load("mnist", splits="test")


def test_a_download_directory_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="cannot honour 'download_dir'"):
        tfds.builder("mnist").download_and_prepare(download_dir="here")


def test_the_data_sets_are_those_of_lockstep() -> None:
    assert tfds.list_builders() == names()
    with pytest.raises(ArgumentError, match="Received: 'coco'"):
        tfds.load("coco")


def test_progress_bars_are_switched() -> None:
    tfds.display_progress_bar(False)
    assert _download._Settings.is_shown is False
    tfds.display_progress_bar()
    assert _download._Settings.is_shown is True


@pytest.mark.parametrize(
    ("name", "advice"), [("as_dataframe", "make a table"), ("even_splits", "percent"), ("laod", "It has ReadConfig")]
)
def test_a_name_that_is_not_there_says_what_to_do(name: str, advice: str) -> None:
    with pytest.raises(AttributeError, match=f"has no '{name}'.*{advice}"):
        getattr(tfds, name)


def test_a_version() -> None:
    assert tfds.__version__.startswith("4.")
