"""Event files, read as TensorBoard reads them."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from pathlib import Path

import keras
import numpy as np
import pytest
from tensorboardX.crc32c import crc32c
from tensorboardX.proto.event_pb2 import Event

import lockstep
from lockstep._engine.keras.callbacks import _WRITERS
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.training.callbacks import TensorBoard

Values = dict[str, dict[int, object]]


def masked(content: bytes) -> int:
    crc = crc32c(content)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def events(directory: Path) -> list[Event]:
    """Returns all events of a directory; every checksum must be right."""
    found = []
    for file in sorted(directory.glob("events.out.tfevents.*")):
        rest = file.read_bytes()
        while rest:
            (size,) = struct.unpack("<Q", rest[:8])
            content = rest[12 : 12 + size]
            assert struct.unpack("<I", rest[8:12])[0] == masked(rest[:8])
            assert struct.unpack("<I", rest[12 + size : 16 + size])[0] == masked(content)
            found.append(Event.FromString(content))
            rest = rest[16 + size :]
    return found


def written(directory: Path) -> Values:
    """Returns what each tag has at each step."""
    values: Values = defaultdict(dict)
    for event in events(directory):
        for value in event.summary.value:
            assert event.step not in values[value.tag]
            values[value.tag][event.step] = getattr(value, value.WhichOneof("value"))
    return dict(values)


def make_model() -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="first"), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def fit(callback: TensorBoard, epochs: int = 2, model: keras.Model | None = None) -> keras.callbacks.History:
    model = model or make_model()
    x = np.random.default_rng(2).normal(size=(32, 4)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    return model.fit(*(x, y), batch_size=8, epochs=epochs, validation_data=(x, y), callbacks=[callback], verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [False, True])
def test_epochs(strategy: bool, tmp_path: Path) -> None:
    model = make_model()
    if strategy:
        with lockstep.distribute.MirroredStrategy().scope():
            model = make_model()
    history = fit(TensorBoard(tmp_path), model=model).history
    train, validation = written(tmp_path / "train"), written(tmp_path / "validation")
    assert set(train) == {"keras", "epoch_loss", "epoch_mae", "epoch_learning_rate"}
    assert set(validation) == {
        *("epoch_loss", "epoch_mae"),
        *("evaluation_loss_vs_iterations", "evaluation_mae_vs_iterations"),
    }
    np.testing.assert_allclose(list(train["epoch_loss"].values()), history["loss"], rtol=1e-6)
    np.testing.assert_allclose(list(validation["epoch_mae"].values()), history["val_mae"], rtol=1e-6)
    assert list(train["epoch_loss"]) == [0, 1]
    assert list(validation["evaluation_loss_vs_iterations"]) == [4, 8]
    assert train["epoch_learning_rate"][0] == pytest.approx(0.01)


def test_the_first_event_says_the_version(tmp_path: Path) -> None:
    fit(TensorBoard(tmp_path), 1)
    assert events(tmp_path / "train")[0].file_version == "brain.Event:2"


def test_the_graph_is_the_configuration(tmp_path: Path) -> None:
    model = make_model()
    fit(TensorBoard(str(tmp_path)), 1, model)
    (event,) = [e for e in events(tmp_path / "train") if e.summary.value and e.summary.value[0].tag == "keras"]
    (value,) = event.summary.value
    assert value.metadata.plugin_data.plugin_name == "graph_keras_model"
    assert json.loads(value.tensor.string_val[0])["config"]["name"] == model.name


def test_without_the_graph(tmp_path: Path) -> None:
    fit(TensorBoard(tmp_path, write_graph=False), 1)
    assert "keras" not in written(tmp_path / "train")


@pytest.mark.parametrize(("update_freq", "steps"), [("batch", [1, 2, 3, 4, 5, 6, 7, 8]), (1, range(1, 9)), (3, [3, 6])])
def test_batches(update_freq: object, steps: object, tmp_path: Path) -> None:
    fit(TensorBoard(tmp_path, update_freq=update_freq, write_steps_per_second=True))
    train = written(tmp_path / "train")
    for name in ("batch_loss", "batch_mae", "batch_steps_per_second"):
        assert list(train[name]) == list(steps)
    assert all(value > 0 for value in train["epoch_steps_per_second"].values())


def test_several_batches_in_one_call(tmp_path: Path) -> None:
    model = make_model()
    model.compile("sgd", "mse", steps_per_execution=2)
    fit(TensorBoard(tmp_path, update_freq=3), model=model)
    assert list(written(tmp_path / "train")["batch_loss"]) == [4, 6]


def test_weights(tmp_path: Path) -> None:
    fit(TensorBoard(tmp_path, histogram_freq=2, write_images=True), 3)
    train = written(tmp_path / "train")
    tag = next(name for name in train if name.endswith("first/kernel/histogram"))
    assert list(train[tag]) == [0, 2]
    assert train[tag][0].num == 12
    picture = train[tag.replace("histogram", "image")][2]
    assert (picture.height, picture.width) == (3, 4)


def test_pictures_of_a_convolution(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((4, 4, 1)), keras.layers.Conv2D(2, 3, name="conv"), keras.layers.Flatten()])
    model.compile("sgd", "mse")
    callback = TensorBoard(tmp_path, histogram_freq=1, write_images=True)
    model.fit(np.ones((4, 4, 4, 1)), np.ones((4, 8)), callbacks=[callback], verbose=0)
    assert {name[-7:] for name in written(tmp_path / "train") if "kernel/image" in name} == {"image/0", "image/1"}


def test_an_evaluation_alone(tmp_path: Path) -> None:
    model = make_model()
    model.evaluate(np.ones((4, 4)), np.ones((4, 1)), callbacks=[TensorBoard(tmp_path)], verbose=0)
    assert list(written(tmp_path / "validation")["evaluation_loss_vs_iterations"]) == [0]


def test_two_runs_in_one_directory(tmp_path: Path) -> None:
    for _ in range(2):
        fit(TensorBoard(tmp_path, write_graph=False), 1)
    assert len(list((tmp_path / "train").iterdir())) == 2


def test_a_profile(tmp_path: Path) -> None:
    fit(TensorBoard(tmp_path, profile_batch=(2, 3)), 1)
    assert list((tmp_path / "train" / "plugins" / "profile").glob("*/*.xplane.pb"))


def test_only_the_chief_writes() -> None:
    assert issubclass(TensorBoard, _WRITERS)
    assert issubclass(TensorBoard, keras.callbacks.TensorBoard)


@pytest.mark.parametrize(
    "arguments",
    [
        {"profile_batch": "soon"},
        {"profile_batch": (3, 2)},
        {"profile_batch": -1},
        {"profile_batch": (1, 2, 3)},
        {"update_freq": 0},
        {"update_freq": "often"},
        {"histogram_freq": -1},
        {"histogram_freq": True},
    ],
)
def test_what_is_out_of_range(arguments: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=next(iter(arguments))):
        TensorBoard(tmp_path, **arguments)


@pytest.mark.parametrize("arguments", [{"embeddings_freq": 1}, {"embeddings_metadata": "names.tsv"}])
def test_embeddings_are_refused(arguments: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="projector"):
        TensorBoard(tmp_path, **arguments)


@pytest.mark.parametrize("given", ["2,3", (2, 3), [2, 3], "2, 3"])
def test_forms_of_a_range(given: object, tmp_path: Path) -> None:
    assert TensorBoard(tmp_path, profile_batch=given)._profiled == (2, 3)
