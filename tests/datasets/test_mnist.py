"""MNIST: where it is looked for, in which order, and what is refused."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from lockstep.datasets import Mnist, _download, _mnist, load_mnist
from lockstep.errors import DataNotFoundError, InputError
from tests.datasets.digits import NAMES, digits, idx, npz, write_idx
from tests.support.cluster import environment

LARGEST_SAMPLE = 1_500_000


def assert_digits(mnist: Mnist) -> None:
    read = (mnist.train_images, mnist.train_labels, mnist.test_images, mnist.test_labels)
    for array, expected in zip(read, digits(), strict=True):
        np.testing.assert_array_equal(array, expected, strict=True)


def publish(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    """Makes `content` the file that Keras publishes."""
    checksum = hashlib.sha256(content).hexdigest()
    file = _download.PublishedFile("mnist.npz", "http://127.0.0.1:9/mnist.npz", checksum)
    monkeypatch.setattr(_mnist, "_PUBLISHED", file)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("below", [".", "mnist"])
def test_the_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, below: str, compressed: bool) -> None:
    directory = write_idx(tmp_path / "data" / below, compressed)
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", str(tmp_path / "data"))
    mnist = load_mnist()
    assert_digits(mnist)
    assert mnist.source == f"MNIST from {directory}"


def test_a_data_directory_below_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_idx(tmp_path / "data")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", "~/data")
    assert_digits(load_mnist())


def test_a_data_directory_without_the_data_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", str(tmp_path))
    with pytest.raises(DataNotFoundError, match=f"Received: LOCKSTEP_DATA_DIR={tmp_path}") as caught:
        load_mnist()
    for name in NAMES:
        assert f"{tmp_path / 'mnist' / name}, " in str(caught.value)
        assert f"{tmp_path / name}" in str(caught.value)


def test_the_file_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (write_idx(tmp_path / "mnist") / NAMES[3]).unlink()
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", str(tmp_path))
    with pytest.raises(DataNotFoundError, match=f"without .gz: {tmp_path / 'mnist' / NAMES[3]}. Put"):
        load_mnist()


@pytest.mark.parametrize(
    ("file", "array", "problem"),
    [
        (0, np.zeros((12, 27, 28), np.uint8), r"uint8\(12, 27, 28\) and uint8\(12,\), in MNIST from"),
        (1, np.zeros(11, np.uint8), r"training data.*uint8\(12, 28, 28\) and uint8\(11,\)"),
        (3, np.full(5, 10, np.uint8), "test labels of MNIST must be from 0 to 9. Received: 10, in MNIST from"),
    ],
)
def test_files_that_are_not_mnist_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: int, array: np.ndarray, problem: str
) -> None:
    (write_idx(tmp_path) / NAMES[file]).write_bytes(idx(array))
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", str(tmp_path))
    with pytest.raises(InputError, match=problem):
        load_mnist()


def test_no_images_at_all_are_refused() -> None:
    images, labels = np.zeros((0, 28, 28), np.uint8), np.zeros(0, np.uint8)
    with pytest.raises(InputError, match="at least one"):
        Mnist(images, labels, images, labels, "nowhere")


def test_the_cache_of_keras(monkeypatch: pytest.MonkeyPatch, keras_home: Path) -> None:
    publish(monkeypatch, npz())
    path = keras_home / "datasets" / "mnist.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(npz())
    mnist = load_mnist()
    assert_digits(mnist)
    assert mnist.source == f"MNIST from {path}"


def test_the_cache_below_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    publish(monkeypatch, npz())
    monkeypatch.delenv("KERAS_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / ".keras" / "datasets" / "mnist.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(npz())
    assert load_mnist().source == f"MNIST from {path}"


def test_the_data_directory_comes_before_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keras_home: Path
) -> None:
    test_the_cache_of_keras(monkeypatch, keras_home)
    monkeypatch.setenv("LOCKSTEP_DATA_DIR", str(write_idx(tmp_path / "data")))
    assert load_mnist().source == f"MNIST from {tmp_path / 'data'}"


def test_a_damaged_cache_is_not_used(monkeypatch: pytest.MonkeyPatch, keras_home: Path) -> None:
    publish(monkeypatch, npz())
    path = keras_home / "datasets" / "mnist.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(npz()[:-1])
    mnist = load_mnist()
    assert mnist.source.startswith("a sample of MNIST")
    assert f"{path} is not as published; LOCKSTEP_OFFLINE forbids downloads" in mnist.source


def test_the_sample_is_mnist_in_small() -> None:
    mnist = load_mnist()
    assert mnist.source == (
        "a sample of MNIST, 5,000 training and 1,000 test images, that comes with lockstep "
        "(LOCKSTEP_OFFLINE forbids downloads)"
    )
    assert mnist.train_images.shape == (5000, 28, 28)
    assert mnist.test_images.shape == (1000, 28, 28)
    assert np.bincount(mnist.train_labels).tolist() == [500] * 10
    assert np.bincount(mnist.test_labels).tolist() == [100] * 10
    images = np.concatenate([mnist.train_images, mnist.test_images])
    assert len({image.tobytes() for image in images}) == 6000
    assert (images.min(), images.max()) == (0, 255)


def test_the_sample_is_small_and_the_one_that_its_licence_describes() -> None:
    directory = resources.files("lockstep.datasets") / "sample"
    licence = (directory / "LICENSE.md").read_text()
    files = [file.read_bytes() for file in (directory / "mnist").iterdir()]
    assert len(files) == 4
    assert sum(map(len, files)) <= LARGEST_SAMPLE
    for content in files:
        assert hashlib.sha256(content).hexdigest() in licence


@pytest.mark.parametrize("module", ["jax", "keras"])
def test_loading_needs_no(module: str) -> None:
    program = f"import lockstep, sys; lockstep.datasets.load_mnist(); assert {module!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, env=environment())
