"""`load`: data sets by name, as datasets."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from lockstep import datasets
from lockstep.data import Dataset, Options
from lockstep.datasets import ReadConfig, ReadInstruction, Split, _builder, as_numpy, builder, load, names
from lockstep.errors import ArgumentError, InputError, UnsupportedError
from tests.datasets import files
from tests.datasets.digits import digits, write_idx
from tests.support.cluster import environment

IMAGES, LABELS, TEST_IMAGES, TEST_LABELS = digits()


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A data directory with MNIST."""
    directory = write_idx(tmp_path / "data" / "mnist").parent
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", str(directory))
    return directory


def labels(data: Dataset) -> list[int]:
    return [int(label) for _, label in data]


def test_elements_are_dicts_of_features(root: Path) -> None:
    (first, *others) = load("mnist", split="train")
    assert list(first) == ["image", "label"]
    assert (first["image"].dtype, first["image"].shape) == (np.uint8, (28, 28, 1))
    assert (first["label"].dtype, first["label"].shape) == (np.int64, ())
    np.testing.assert_array_equal(np.stack([e["image"] for e in (first, *others)]), IMAGES[..., None])


def test_elements_are_pairs_if_supervised(root: Path) -> None:
    data = load("mnist", split=Split.TEST, as_supervised=True)
    assert isinstance(data, Dataset)
    assert len(data) == 5
    for (image, label), expected, number in zip(data, TEST_IMAGES, TEST_LABELS, strict=True):
        np.testing.assert_array_equal(image, expected[..., None], strict=True)
        assert label == number


def test_without_a_split_there_are_all(root: Path) -> None:
    data = load("mnist", as_supervised=True)
    assert list(data) == ["train", "test"]
    assert labels(data["train"]) == LABELS.tolist()
    assert labels(data["test"]) == TEST_LABELS.tolist()


def test_slices_and_sums(root: Path) -> None:
    found = labels(load("mnist", "train[:25%]+test+train[-2:]", as_supervised=True))
    assert found == [*LABELS[:3], *TEST_LABELS, *LABELS[-2:]]
    assert labels(load("mnist", ReadInstruction("train", 3, 5), as_supervised=True)) == LABELS[3:5].tolist()


def test_many_splits_have_the_structure_that_was_asked_for(root: Path) -> None:
    found = load("mnist", ["train[:50%]", "train[50%:]"], as_supervised=True)
    assert [labels(data) for data in found] == [LABELS[:6].tolist(), LABELS[6:].tolist()]
    first, rest = load("mnist", ("test[:1]", "test[1:]"), as_supervised=True)
    assert (len(first), len(rest)) == (1, 4)
    assert list(load("mnist", {"x": "test", "y": ["train"]})) == ["x", "y"]


def test_batches(root: Path) -> None:
    sizes = [len(batch["label"]) for batch in load("mnist", "train", batch_size=5)]
    assert sizes == [5, 5, 2]


def test_whole_arrays(root: Path) -> None:
    images, numbers = load("mnist", "train[2:]+test", as_supervised=True, batch_size=-1)
    np.testing.assert_array_equal(images, np.concatenate([IMAGES[2:], TEST_IMAGES])[..., None], strict=True)
    np.testing.assert_array_equal(numbers, np.concatenate([LABELS[2:], TEST_LABELS]).astype(np.int64), strict=True)
    assert load("mnist", "train", batch_size=-1)["image"].shape == (12, 28, 28, 1)


@pytest.mark.parametrize("batch_size", [0, -2, True])
def test_other_sizes_of_batches_are_refused(root: Path, batch_size: int) -> None:
    with pytest.raises(ArgumentError, match=f"at least 1, or -1 for all examples. Received: {batch_size}"):
        load("mnist", "train", batch_size=batch_size)


def test_a_split_without_examples_is_refused(root: Path) -> None:
    with pytest.raises(ArgumentError, match=r"at least one example\. Received: 'train\[:1%\]'"):
        load("mnist", "train[:1%]")


def test_what_is_known(root: Path) -> None:
    data, info = load("mnist", "test", with_info=True)
    assert len(data) == info.splits["test"].num_examples == 5
    assert info.splits["train[:50%]"].num_examples == 6
    assert info.name == "mnist"
    assert info.features["label"].num_classes == 10
    assert info.features.shape == {"image": (28, 28, 1), "label": ()}
    assert info.supervised_keys == ("image", "label")
    assert info.source == f"MNIST from {root / 'mnist'}"


@pytest.mark.parametrize("name", names())
def test_features_are_what_is_known_of_them(name: str) -> None:
    info = builder(name).info
    assert info.name == name
    assert info.source is None
    assert info.description
    assert set(info.supervised_keys) <= set(info.features)
    assert info.splits["train"].num_examples > 0


def test_random_order(root: Path) -> None:
    everything = sorted(LABELS.tolist())
    once = load("mnist", "train", as_supervised=True, shuffle_files=True, read_config=ReadConfig(shuffle_seed=1))
    again = load("mnist", "train", as_supervised=True, shuffle_files=True, read_config=ReadConfig(shuffle_seed=1))
    first, second = labels(once), labels(once)
    assert sorted(first) == sorted(second) == everything
    assert first != LABELS.tolist()
    assert first != second
    assert labels(again) == first


def test_the_same_random_order_each_time(root: Path) -> None:
    config = ReadConfig(shuffle_seed=1, shuffle_reshuffle_each_iteration=False)
    data = load("mnist", "train", as_supervised=True, shuffle_files=True, read_config=config)
    assert labels(data) == labels(data) != LABELS.tolist()


@pytest.mark.parametrize("shuffle", [False, True])
def test_pipelines_divide_the_examples(root: Path, shuffle: bool) -> None:
    def part(i: int) -> list[int]:
        config = ReadConfig(input_context=SimpleNamespace(num_input_pipelines=2, input_pipeline_id=i))
        arguments = {"as_supervised": True, "shuffle_files": shuffle, "read_config": config}
        found = labels(load("mnist", "train", **arguments))
        whole = load("mnist", "train", batch_size=-1, **arguments)[1].tolist()
        assert sorted(whole) == sorted(found)
        return found

    assert [len(part(0)), len(part(1))] == [6, 6]
    assert sorted(part(0) + part(1)) == sorted(LABELS.tolist())


def test_options_are_those_of_the_dataset(root: Path) -> None:
    options = Options()
    options.deterministic = False
    data = load("mnist", "train", read_config=ReadConfig(options=options))
    assert data.options().deterministic is False


@pytest.mark.parametrize("setting", [{"try_autocache": True}, {"skip_prefetch": False}])
def test_what_would_be_ignored_is_refused(setting: dict[str, bool]) -> None:
    with pytest.raises(UnsupportedError, match=f"Received: {next(iter(setting))}=.*Leave it away"):
        ReadConfig(**setting)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("minst", "mnist"), ("CIFAR10", "cifar10"), ("cats-vs-dogs", "cats_vs_dogs"), ("imdb_review", "imdb_reviews")],
)
def test_an_unknown_name_says_which_there_are(name: str, nearest: str) -> None:
    with pytest.raises(
        ArgumentError, match=f"Received: '{name}'. Take the name of one, nearest first: {nearest}, "
    ) as caught:
        load(name)
    assert all(known in str(caught.value) for known in names())


@pytest.mark.parametrize("name", ["mnist:3.0.1", "imdb_reviews/subwords8k", "mnist/plain_text"])
def test_other_versions_and_configurations_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"Received: '{name}'. Write"):
        load(name)


def test_a_name_that_is_no_text() -> None:
    with pytest.raises(ArgumentError, match=r"is a text\. Received: None"):
        load(None)  # type: ignore[arg-type]


def test_the_configuration_that_there_is() -> None:
    assert builder("imdb_reviews/plain_text").name == "imdb_reviews"


def test_names() -> None:
    assert names() == [
        "boston_housing",
        "california_housing",
        "cats_vs_dogs",
        "cifar10",
        "cifar100",
        "fashion_mnist",
        "imdb",
        "imdb_reviews",
        "mnist",
    ]


def test_the_sample_of_mnist_is_announced_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_builder, "_printed", set())
    for _ in range(2):
        data, info = load("mnist", "train", with_info=True)
    assert len(data) == info.splits["train"].num_examples == 5000
    assert info.source == datasets.load_mnist().source
    assert capsys.readouterr().err == f"lockstep: mnist is {info.source}\n"


def test_processes_that_only_read_announce_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_builder, "_printed", set())
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "the one that the user started")
    load("mnist", "train")
    assert not capsys.readouterr().err


def test_texts(tmp_path: Path) -> None:
    files.write(tmp_path, files.reviews())
    pairs = list(load("imdb_reviews", "train", as_supervised=True, data_dir=tmp_path))
    assert {bytes(text): int(label) for text, label in pairs} == {
        b"a bad film": 0,
        "naïve".encode(): 0,
        b"A good, good film.<br />Good!": 1,
        b"the film is good": 1,
    }


def test_numbers_of_words_are_sequences_of_different_lengths(tmp_path: Path) -> None:
    files.write(tmp_path, files.reviews())
    data, info = load("imdb", "train", data_dir=tmp_path, with_info=True)
    vocabulary = info.features["tokens"].vocabulary
    texts = [" ".join(vocabulary[i] for i in e["tokens"]) for e in data]
    assert sorted(texts) == [
        "[START] a bad film",
        "[START] a good good film br good",
        "[START] naïve",
        "[START] the film is good",
    ]
    assert all(e["tokens"].dtype == np.int64 for e in data)
    tokens, _ = load("imdb", "train", data_dir=tmp_path, as_supervised=True, batch_size=-1)
    assert tokens.shape == (4, 7)
    assert (tokens[:, 0] == 1).all()
    assert (tokens[:, -1] == 0).sum() == 3


def test_house_prices(tmp_path: Path) -> None:
    files.write(tmp_path, {"boston_housing.npz": files.npz(x=np.ones((10, 13)), y=np.arange(10.0))})
    features, target = next(iter(load("boston_housing", "train", as_supervised=True, data_dir=tmp_path)))
    assert (features.dtype, features.shape) == (np.float32, (13,))
    assert (target.dtype, target.shape) == (np.float32, ())


@pytest.mark.parametrize("shuffle", [False, True])
def test_pictures_are_decoded(tmp_path: Path, shuffle: bool) -> None:
    data = load("cats_vs_dogs", "train", as_supervised=True, data_dir=files.pictures(tmp_path), shuffle_files=shuffle)
    found = list(data)
    assert all(image.dtype == np.uint8 and label.dtype == np.int64 for image, label in found)
    assert sorted((*image.shape, int(image.max()), int(label)) for image, label in found) == [
        (4, 8, 3, 0, 0),
        (5, 8, 3, 1, 0),
        (6, 8, 3, 2, 0),
        (8, 4, 3, 200, 1),
        (8, 5, 3, 201, 1),
        (8, 6, 3, 202, 1),
    ]


def test_pictures_keep_their_labels_through_a_pipeline(tmp_path: Path) -> None:
    data = load("cats_vs_dogs", "train", as_supervised=True, data_dir=files.pictures(tmp_path))
    mapped: Callable[..., object] = lambda image, label: (image[:4, :4] / 255.0, label)  # noqa: E731
    (images, numbers), *_ = data.map(mapped).shuffle(6, seed=1).batch(6)
    assert (images.dtype, images.shape) == (np.float32, (6, 4, 4, 3))
    assert ((images.mean((1, 2, 3)) > 0.5) == numbers).all()


def test_pictures_of_different_sizes_are_filled_up_in_batches(tmp_path: Path) -> None:
    directory = files.pictures(tmp_path)
    (batch,) = load("cats_vs_dogs", "train", data_dir=directory, batch_size=6)
    whole = load("cats_vs_dogs", "train", data_dir=directory, batch_size=-1)
    assert batch["image"].shape == whole["image"].shape == (6, 8, 8, 3)
    np.testing.assert_array_equal(batch["image"], whole["image"])


def test_a_picture_that_is_none_is_named(tmp_path: Path) -> None:
    directory = files.pictures(tmp_path)
    path = directory / "cats_vs_dogs" / "train" / "dog" / "1.jpg"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match=str(path)):
        list(load("cats_vs_dogs", "train", data_dir=directory))


def test_datasets_as_numpy(root: Path) -> None:
    data = as_numpy({"all": load("mnist", "train"), "pair": (load("mnist", "test", batch_size=-1), [1.5])})
    assert len(data["all"]) == 12
    for _ in range(2):
        assert [int(e["label"]) for e in data["all"]] == LABELS.tolist()
    assert data["pair"][0]["image"].shape == (5, 28, 28, 1)
    assert data["pair"][1][0] == np.asarray(1.5)


def test_importing_is_cheap() -> None:
    program = (
        "import lockstep.datasets, sys; lockstep.datasets.builder('mnist').download_and_prepare(); "
        "assert not {'jax', 'keras', 'cv2'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=environment())
