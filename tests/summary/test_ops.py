"""Summaries in a model_fn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep import summary as event_files
from lockstep._text import Text, words
from lockstep.errors import ArgumentError, StartupOrderError, UnsupportedError
from lockstep.estimator import summary
from lockstep.estimator._model_fn.records import SummaryOp
from lockstep.estimator._model_fn.scope import ModelScope
from lockstep.estimator._model_fn.variables import Variables


@pytest.fixture
def scope() -> Iterator[ModelScope]:
    with ModelScope(Variables(), "train", {}) as scope:
        yield scope


def test_tags_are_unique_as_in_tensorflow(scope: ModelScope) -> None:
    with keras.name_scope("a"):
        inside = [
            summary.scalar("x y", 1.0),
            summary.scalar("x_y", 1.0),
            summary.scalar("n", 1.0, family="f"),
            summary.scalar("n", 1.0, family="f"),
            summary.scalar("N", 1.0),
            summary.scalar("n", 1.0),
            summary.histogram("/h:1", [1.0, 2.0]),
            summary.text("t", "x"),
        ]
    outside = [summary.scalar(name, 1.0) for name in ("n/m", "n", "n", "n_1", "n", "a/n")]
    assert [op.tag for op in inside] == ["a/x_y", "a/x_y_1", "f/a/f/n", "f/a/f/n_1", "a/N", "a/n_1", "a/h_1", "a/t"]
    assert [op.tag for op in outside] == ["n/m", "n", "n_1", "n_1_1", "n_2", "a/n_2"]
    assert scope.recorded.summaries == [*inside, *outside]


def test_names_that_differ_in_case_alone_are_the_same(scope: ModelScope) -> None:
    assert [summary.scalar(name, 1.0).tag for name in ("loss", "Loss", "LOSS_1")] == ["loss", "Loss_1", "LOSS_1_1"]


def test_a_changed_name_is_logged(scope: ModelScope, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "lockstep"):
        summary.scalar("a b", 1)
    assert caplog.messages == ["Summary name a b is illegal; using a_b instead."]


def test_names_restart_with_each_call() -> None:
    tags = []
    for _ in range(2):
        with ModelScope(Variables(), "train", {}):
            tags.append(summary.scalar("loss", 1.0).tag)
    assert tags == ["loss", "loss"]


def test_collections(scope: ModelScope) -> None:
    assert summary.merge_all() is None
    shown = summary.scalar("shown", 1)
    apart = summary.scalar("apart", 2, collections=["mine"])
    again = summary.scalar("apart", 2, collections=[])
    assert again.tag == "apart_1"
    assert scope.recorded.summaries == [shown]
    assert summary.merge_all() == [shown]
    assert summary.merge_all(key="mine") == [apart]
    assert summary.merge_all(scope="sh") == [shown]
    assert summary.merge_all(scope="own") is None
    assert summary.merge([shown, [apart]]) == [shown, apart]
    summary.merge([apart], collections=["summaries"])
    assert summary.merge_all() == [shown, apart]


@pytest.mark.parametrize(
    "call",
    [
        lambda: summary.scalar("loss", 1.0),
        lambda: summary.histogram("h", [1.0]),
        lambda: summary.image("i", np.zeros((1, 2, 2, 1), "uint8")),
        lambda: summary.text("t", "x"),
        summary.merge_all,
    ],
)
def test_only_inside_of_a_model_fn(call: Callable[[], object]) -> None:
    with pytest.raises(StartupOrderError, match="model_fn"):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: summary.scalar("s", [1.0]), "one number.*'s' of shape \\(1,\\)"),
        (lambda: summary.scalar("s", True), "bool"),
        (lambda: summary.scalar("s", "x"), "summary.text"),
        (lambda: summary.histogram("h", np.zeros(2, "complex64")), "complex64"),
        (lambda: summary.image("i", np.zeros((2, 2, 1), "uint8")), "batch, height, width"),
        (lambda: summary.image("i", np.zeros((1, 2, 2, 2), "uint8")), "1, 3 or 4"),
        (lambda: summary.image("i", np.zeros((1, 2, 2, 1), "int32")), "int32"),
        (lambda: summary.image("i", np.zeros((1, 2, 2, 1), "uint8"), max_outputs=0), "max_outputs.*received 0"),
        (lambda: summary.text("t", 3), "str or bytes.*received 3"),
        (lambda: summary.merge(["x"]), "received 'x'"),
    ],
)
def test_what_cannot_be_shown(call: Callable[[], object], message: str, scope: ModelScope) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()
    assert not scope.recorded.summaries


def test_text_of_features_never_reaches_the_step(scope: ModelScope) -> None:
    text = Text(scope, "features", (2,))
    with pytest.raises(ArgumentError, match="never reaches the step"):
        summary.text("t", text)
    with pytest.raises(ArgumentError, match=r"summary\.text"):
        summary.histogram("t", text)


def test_audio_is_refused(scope: ModelScope) -> None:
    with pytest.raises(UnsupportedError, match="spectrogram"):
        summary.audio("a", np.zeros((1, 10)), 44100)


def test_only_the_images_that_are_shown_leave_the_device(scope: ModelScope) -> None:
    assert summary.image("i", np.zeros((8, 2, 2, 1), "uint8"), max_outputs=2).value.shape == (2, 2, 2, 1)


def test_traced_values_come_out_of_the_step(tmp_path: Path) -> None:
    """What is said while a function is traced is written with what the function computes."""
    said = []

    @jax.jit
    def step(x: jax.Array) -> list[object]:
        with ModelScope(Variables(), "train", {}) as scope:
            weight = keras.Variable(np.ones(3, "float32"), name="w")
            scope.replace_values({**scope.values, "w": x})
            summary.scalar("sum", x.sum())
            summary.scalar("half", x.sum().astype("bfloat16"))
            summary.histogram("weight", weight)
            summary.image("picture", x.reshape(1, 1, 3, 1), max_outputs=1)
            summary.image("pictures", jnp.broadcast_to(x.reshape(1, 1, 3, 1), (4, 1, 3, 1)), max_outputs=2)
            summary.text("note", [["a", b"b"]])
            summary.text("word", words(x[:1].astype("int32"), ["zero", "one"]))
            said[:] = scope.recorded.summaries
            return [op.value for op in said]

    values = step(jnp.array([1.0, 2.0, 4.0]))
    file = event_files.EventFile(tmp_path)
    for op, value in zip(said, values, strict=True):
        summary.write(file, op, value, 7)
    file.close()
    written = {value.tag: value for event in event_files.read_events(tmp_path) for value in event.summary.value}
    assert {event.step for event in event_files.read_events(tmp_path)} == {0, 7}
    assert list(written) == [
        *("sum", "half", "weight", "picture/image", "pictures/image/0", "pictures/image/1", "note", "word"),
    ]
    assert written["sum"].simple_value == written["half"].simple_value == 7.0
    assert (written["weight"].histo.num, written["weight"].histo.max) == (3, 4.0)
    assert written["picture/image"].image.width == 3
    assert list(written["note"].tensor.string_val) == [b"a", b"b"]
    assert [dim.size for dim in written["note"].tensor.tensor_shape.dim] == [1, 2]
    assert written["note"].metadata.plugin_data.plugin_name == "text"
    assert list(written["word"].tensor.string_val) == [b"one"]


def test_some_images_of_a_batch() -> None:
    op = SummaryOp("image", "i", np.zeros((5, 2, 2, 1), "uint8"), max_outputs=2)
    assert [value.tag for value in summary.as_summary(op).value] == ["i/image/0", "i/image/1"]


def test_pixels() -> None:
    from lockstep.data._image.decode import decode_png

    with ModelScope(Variables(), "train", {}):
        op = summary.image("i", np.array([0, 1, 2, 4], "float32").reshape(1, 2, 2, 1))
    (value,) = summary.as_summary(op).value
    assert (value.tag, value.image.height, value.image.width, value.image.colorspace) == ("i/image/0", 2, 2, 1)
    assert np.asarray(decode_png(value.image.encoded_image_string)).ravel().tolist() == [0, 63, 127, 255]
