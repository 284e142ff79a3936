"""Each data set is read from where it lies, and damage is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lockstep.datasets import builder
from lockstep.datasets._data_set import Table, fixed_order
from lockstep.datasets._sets import cats_vs_dogs, housing, imdb, mnist
from lockstep.errors import DataNotFoundError, InputError
from tests.datasets import files
from tests.datasets.digits import NAMES, digits, idx, write_idx


def tables(name: str, directory: Path | None = None) -> dict[str, Table]:
    data_set = builder(name, data_dir=directory)
    data_set.download_and_prepare()
    assert data_set._loaded is not None
    return dict(data_set._loaded.tables)


def source(name: str, directory: Path | None = None) -> str | None:
    data_set = builder(name, data_dir=directory)
    data_set.download_and_prepare()
    return data_set.info.source


def decoded(table: Table, feature: str) -> list[np.ndarray]:
    decode = table.decode.get(feature, lambda value: value)
    return [decode(value) for value in table.columns[feature]]


def assert_fashion(found: dict[str, Table]) -> None:
    images, labels, test_images, test_labels = digits()
    np.testing.assert_array_equal(found["train"].columns["image"], images[..., None], strict=True)
    np.testing.assert_array_equal(found["train"].columns["label"], labels.astype(np.int64), strict=True)
    np.testing.assert_array_equal(found["test"].columns["image"], test_images[..., None], strict=True)
    np.testing.assert_array_equal(found["test"].columns["label"], test_labels.astype(np.int64), strict=True)


def test_mnist(tmp_path: Path) -> None:
    assert_fashion(tables("mnist", write_idx(tmp_path)))


@pytest.mark.parametrize("compressed", [False, True])
def test_fashion_mnist(tmp_path: Path, compressed: bool) -> None:
    directory = write_idx(tmp_path / "fashion_mnist", compressed)
    assert_fashion(tables("fashion_mnist", tmp_path))
    assert_fashion(tables("fashion_mnist", directory))
    assert source("fashion_mnist", tmp_path) == f"Fashion-MNIST from {directory}"


def test_files_of_mnist_are_not_taken_for_those_of_fashion_mnist(tmp_path: Path) -> None:
    write_idx(tmp_path)
    with pytest.raises(DataNotFoundError, match=r"in fashion_mnist/\. Received: data_dir=.*or leave data_dir away"):
        tables("fashion_mnist", tmp_path)


def test_fashion_mnist_in_the_cache_of_keras(monkeypatch: pytest.MonkeyPatch, keras_home: Path) -> None:
    content = {f"{name}.gz": idx(array) for name, array in zip(NAMES, digits(), strict=True)}
    published = [files.published(f, content[Path(f.name).name]) for f in mnist.FASHION]
    monkeypatch.setattr(mnist, "FASHION", published)
    files.write(keras_home / "datasets" / "fashion-mnist", content)
    assert_fashion(tables("fashion_mnist"))


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    directory = write_idx(tmp_path / "fashion_mnist")
    (directory / NAMES[0]).write_bytes(idx(np.zeros((12, 27, 28), np.uint8)))
    with pytest.raises(InputError, match=rf"28 x 28. Received: \(12, 27, 28\), in {directory / NAMES[0]}"):
        tables("fashion_mnist", tmp_path)


@pytest.mark.parametrize(("labels", "problem"), [(np.full(12, 10), "from 0 to 9. Received: 10"), (np.zeros(11), "12")])
def test_labels_that_do_not_fit_are_refused(tmp_path: Path, labels: np.ndarray, problem: str) -> None:
    directory = write_idx(tmp_path / "fashion_mnist")
    (directory / NAMES[1]).write_bytes(idx(labels.astype(np.uint8)))
    with pytest.raises(InputError, match=f"{problem}.*{directory}"):
        tables("fashion_mnist", tmp_path)


@pytest.mark.parametrize("below", [".", "cifar10"])
@pytest.mark.parametrize("packed", [False, True])
def test_cifar10(tmp_path: Path, below: str, packed: bool) -> None:
    content = {"cifar-10-binary.tar.gz": files.tar(files.cifar10())} if packed else files.cifar10()
    files.write(tmp_path / below, content)
    found = tables("cifar10", tmp_path)
    pictures = [files.cifar_pictures(3, i) for i in range(6)]
    expected = np.concatenate([images for images, _ in pictures[:5]])
    np.testing.assert_array_equal(found["train"].columns["image"], expected, strict=True)
    np.testing.assert_array_equal(found["test"].columns["image"], pictures[5][0], strict=True)
    np.testing.assert_array_equal(found["test"].columns["label"], pictures[5][1][:, 0].astype(np.int64), strict=True)


def test_cifar100(tmp_path: Path) -> None:
    files.write(tmp_path, {"cifar-100-binary.tar.gz": files.tar(files.cifar100())})
    found = tables("cifar100", tmp_path)
    images, labels = files.cifar_pictures(4, 4)
    np.testing.assert_array_equal(found["train"].columns["image"], images, strict=True)
    np.testing.assert_array_equal(found["train"].columns["coarse_label"], labels[:, 0])
    np.testing.assert_array_equal(found["train"].columns["label"], labels[:, 1])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (files.tar(files.cifar10())[:-20], "no complete .tar.gz archive"),
        (b"<html>", "no complete .tar.gz archive"),
        (files.tar({"data_batch_1.bin": bytes(3073)}), "must hold data_batch_2.bin. Received: data_batch_1.bin"),
        (
            files.tar({**files.cifar10(), "data_batch_3.bin": bytes(3072)}),
            "records of 3073 bytes.*Received: 3072 bytes",
        ),
        (files.tar({**files.cifar10(), "data_batch_3.bin": b""}), "records of 3073 bytes"),
        (files.tar({**files.cifar10(), "test_batch.bin": bytes([10] * 3073)}), "from 0 to 9. Received: 10 in record 0"),
    ],
)
def test_damage_to_cifar_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    files.write(tmp_path, {"cifar-10-binary.tar.gz": content})
    with pytest.raises(InputError, match=problem) as caught:
        tables("cifar10", tmp_path)
    assert str(tmp_path / "cifar-10-binary.tar.gz") in str(caught.value)


@pytest.mark.parametrize("name", ["imdb_reviews", "imdb"])
@pytest.mark.parametrize("packed", [False, True])
def test_reviews_are_mixed_the_same_way_wherever_they_lie(tmp_path: Path, name: str, packed: bool) -> None:
    content = {"aclImdb_v1.tar.gz": files.tar(files.reviews())} if packed else files.reviews()
    files.write(tmp_path, content)
    found = tables(name, tmp_path)
    assert found["train"].columns["label"].tolist() == [[0, 0, 1, 1][i] for i in fixed_order(4)]
    assert found["test"].columns["label"].tolist() == [[0, 1][i] for i in fixed_order(2)]


def test_reviews_are_texts(tmp_path: Path) -> None:
    files.write(tmp_path, files.reviews())
    found = tables("imdb_reviews", tmp_path)
    expected = [b"a bad film", "naïve".encode(), b"A good, good film.<br />Good!", b"the film is good"]
    assert found["train"].columns["text"].tolist() == [expected[i] for i in fixed_order(4)]
    assert found["unsupervised"].columns["text"].tolist() == [b"who knows"]
    assert found["unsupervised"].columns["label"].tolist() == [-1]


def test_reviews_are_numbers_of_words(tmp_path: Path) -> None:
    files.write(tmp_path, files.reviews())
    data_set = builder("imdb", data_dir=tmp_path)
    data_set.download_and_prepare()
    words = data_set.info.features["tokens"].vocabulary
    assert words == ["[PAD]", "[START]", "[UNK]", "[UNUSED]", "good", "film", "a", "bad", "br", "is", "naïve", "the"]
    found = tables("imdb", tmp_path)
    texts = [" ".join(words[i] for i in row) for row in decoded(found["train"], "tokens")]
    expected = ["a bad film", "naïve", "a good good film br good", "the film is good"]
    assert texts == [f"[START] {expected[i]}" for i in fixed_order(4)]
    expected = [[[1, 7], [1, 4, 2]][i] for i in fixed_order(2)]
    assert [row.tolist() for row in decoded(found["test"], "tokens")] == expected


def test_an_archive_without_reviews_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "aclImdb_v1.tar.gz"
    path.write_bytes(files.tar({"aclImdb/train/pos/0_9.txt": b"good"}))
    with pytest.raises(InputError, match=f"{path} must hold reviews.*Received: 1 for training and 0 for testing"):
        tables("imdb_reviews", tmp_path)


def test_reviews_in_the_cache_of_keras(monkeypatch: pytest.MonkeyPatch, keras_home: Path) -> None:
    content = files.tar(files.reviews())
    monkeypatch.setattr(imdb, "PUBLISHED", files.published(imdb.PUBLISHED, content))
    files.write(keras_home / "datasets", {"aclImdb_v1.tar.gz": content})
    assert len(tables("imdb_reviews")["train"]) == 4


@pytest.mark.parametrize(("name", "columns"), [("california_housing", 8), ("boston_housing", 13)])
def test_house_prices_are_divided_as_keras_does(tmp_path: Path, name: str, columns: int) -> None:
    x, y = np.arange(10.0 * columns).reshape(10, columns), np.arange(10.0)
    files.write(tmp_path, {f"{name}.npz": files.npz(x=x, y=y)})
    found = tables(name, tmp_path)
    order = np.arange(10)
    np.random.RandomState(113).shuffle(order)
    for split, rows in (("train", order[:8]), ("test", order[8:])):
        np.testing.assert_array_equal(found[split].columns["features"], x[rows].astype(np.float32), strict=True)
        np.testing.assert_array_equal(found[split].columns["target"], y[rows].astype(np.float32), strict=True)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"PK", "must be a .npz file"),
        (files.npz(x=np.zeros((3, 8))), "must be a .npz file of the arrays x and y"),
        (files.npz(x=np.zeros((3, 7)), y=np.zeros(3)), r"must hold x\(n, 8\).*Received: x\(3, 7\)"),
        (files.npz(x=np.zeros((3, 8)), y=np.zeros(2)), r"and y\(2,\)"),
        (files.npz(x=np.zeros((0, 8)), y=np.zeros(0)), "at least one row"),
        (files.npz(x=np.array([{}], object), y=np.zeros(1)), "must be a .npz file"),
    ],
)
def test_damage_to_house_prices_is_named(tmp_path: Path, content: bytes, problem: str) -> None:
    files.write(tmp_path, {"california_housing.npz": content})
    with pytest.raises(InputError, match=problem) as caught:
        tables("california_housing", tmp_path)
    assert str(caught.value).startswith(str(tmp_path / "california_housing.npz"))


PICTURES = {f"{kind}/{kind}.{i}.jpg": f"{kind} {i}".encode() for kind in ("cat", "dog") for i in range(3)}


@pytest.mark.parametrize("below", [".", "cats_vs_dogs"])
def test_cats_and_dogs_by_split(tmp_path: Path, below: str) -> None:
    files.write(tmp_path / below / "train", PICTURES)
    files.write(tmp_path / below / "test", PICTURES)
    found = tables("cats_vs_dogs", tmp_path)
    assert list(found) == ["train", "test"]
    expected = [str(tmp_path / below / "train" / name) for name in sorted(PICTURES)]
    assert found["train"].columns["image"].tolist() == [expected[i].encode() for i in fixed_order(6)]
    assert found["train"].columns["label"].tolist() == [[0, 0, 0, 1, 1, 1][i] for i in fixed_order(6)]


def pet_images() -> dict[str, bytes]:
    """The files of the archive: one of each kind is no JFIF."""
    kinds = {"Cat": (b"\xff\xd8\xff\xe0\0\x10JFIF", b"\xff\xd8\xff\xe1\0\x10Exif"), "Dog": (b"......JFIF", b"BM")}
    pictures = {f"PetImages/{kind}/{i}.jpg": c for kind, contents in kinds.items() for i, c in enumerate(contents)}
    return {**pictures, "PetImages/Cat/Thumbs.db": b"", "PetImages/../../out.jpg": b"JFIF", "readme[1].txt": b""}


def unpacked() -> dict[str, bytes]:
    return {name: content for name, content in pet_images().items() if ".." not in name}


@pytest.mark.parametrize("below", [".", "cats_vs_dogs"])
def test_cats_and_dogs_as_published(tmp_path: Path, below: str) -> None:
    files.write(tmp_path / below, unpacked())
    found = tables("cats_vs_dogs", tmp_path)
    assert list(found) == ["train"]
    assert sorted(found["train"].columns["image"].tolist()) == [
        str(tmp_path / below / "PetImages" / name).encode() for name in ("Cat/0.jpg", "Dog/0.jpg")
    ]


def test_cats_and_dogs_are_unpacked_once_into_the_cache_of_keras(
    monkeypatch: pytest.MonkeyPatch, keras_home: Path
) -> None:
    content = files.zipped(pet_images())
    monkeypatch.setattr(cats_vs_dogs, "PUBLISHED", files.published(cats_vs_dogs.PUBLISHED, content))
    archive = keras_home / "datasets" / "kagglecatsanddogs_5340.zip"
    files.write(archive.parent, {archive.name: content})
    assert len(tables("cats_vs_dogs")["train"]) == 2
    archive.unlink()
    assert len(tables("cats_vs_dogs")["train"]) == 2
    directory = archive.parent / "cats_vs_dogs"
    assert {path.name for path in directory.iterdir()} == {"PetImages", "PetImages.lock"}
    assert not list(keras_home.rglob("out.jpg"))


def test_an_archive_of_cats_and_dogs_that_is_damaged(monkeypatch: pytest.MonkeyPatch, keras_home: Path) -> None:
    content = files.zipped(pet_images())[:-30]
    monkeypatch.setattr(cats_vs_dogs, "PUBLISHED", files.published(cats_vs_dogs.PUBLISHED, content))
    files.write(keras_home / "datasets", {"kagglecatsanddogs_5340.zip": content})
    with pytest.raises(InputError, match=r"kagglecatsanddogs_5340.zip is no complete .zip archive"):
        tables("cats_vs_dogs")
    assert not list((keras_home / "datasets" / "cats_vs_dogs").glob("PetImages*/"))


def test_a_directory_without_dogs_is_refused(tmp_path: Path) -> None:
    files.write(tmp_path / "train", {"cat/0.jpg": b""})
    with pytest.raises(InputError, match=f"{tmp_path / 'train' / 'dog'} must hold JPEG files"):
        tables("cats_vs_dogs", tmp_path)


def test_a_directory_without_cats_and_dogs_says_what_belongs_there(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match=r"cats_vs_dogs/train/cat/\*.jpg.*cats_vs_dogs/PetImages/Cat/\*.jpg"):
        tables("cats_vs_dogs", tmp_path)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("fashion_mnist", "fashion-mnist/train-images-idx3-ubyte.gz"),
        ("cifar10", "cifar-10-binary.tar.gz"),
        ("cifar100", "cifar-100-binary.tar.gz"),
        ("imdb_reviews", "aclImdb_v1.tar.gz"),
        ("imdb", "aclImdb_v1.tar.gz"),
        ("california_housing", "california_housing.npz"),
        ("boston_housing", "boston_housing.npz"),
        ("cats_vs_dogs", "kagglecatsanddogs_5340.zip"),
    ],
)
def test_data_that_is_nowhere_says_where_it_was_looked_for(keras_home: Path, name: str, file: str) -> None:
    with pytest.raises(DataNotFoundError, match="LOCKSTEP_OFFLINE forbids downloads") as caught:
        tables(name)
    assert str(keras_home / "datasets" / file) in str(caught.value)
    assert f"{name}/" in str(caught.value)
    assert "https://" in str(caught.value)


def test_downloads_can_be_forbidden_for_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKSTEP_OFFLINE")
    with pytest.raises(DataNotFoundError, match="download=False forbids downloads"):
        builder("california_housing").download_and_prepare(download=False)


def test_the_directory_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", str(files.write(tmp_path, files.cifar10())))
    assert len(tables("cifar10")["train"]) == 15


def test_an_argument_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", str(tmp_path / "nothing"))
    assert len(tables("cifar10", files.write(tmp_path, files.cifar10()))["train"]) == 15


def test_only_what_is_published_for_a_file_counts(monkeypatch: pytest.MonkeyPatch, keras_home: Path) -> None:
    content = files.npz(x=np.zeros((10, 8)), y=np.zeros(10))
    name = "california_housing"
    monkeypatch.setitem(housing.PUBLISHED, name, files.published(housing.PUBLISHED[name], content))
    files.write(keras_home / "datasets", {"california_housing.npz": content + b"x"})
    with pytest.raises(DataNotFoundError, match="is not as published"):
        tables("california_housing")
    files.write(keras_home / "datasets", {"california_housing.npz": content})
    assert len(tables("california_housing")["test"]) == 2
