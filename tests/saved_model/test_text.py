"""Text: inputs that the host turns into numbers, serialised examples, and words as outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep import saved_model
from lockstep._text import words
from lockstep.data._example.features import FixedLenFeature, FixedLenSequenceFeature, RaggedFeature, VarLenFeature
from lockstep.data._example.messages import Example
from lockstep.errors import ArgumentError, InputError, UnsupportedError
from lockstep.estimator.feature_column._host import FingerprintHalf, TextBuckets, VocabularyLookup
from lockstep.saved_model import SignatureFunction, VocabularyIds
from tests.saved_model.models import spec


def _text(*shape: int | None) -> Any:
    return spec(*shape, dtype="string")


def _exported(tmp_path: Path, signature: SignatureFunction, variables: Any = None) -> saved_model.LoadedModel:
    saved_model.write(tmp_path / "e", {"serving_default": signature}, variables or {})
    return saved_model.load(tmp_path / "e")


def example(**features: Any) -> bytes:
    """A serialised example of lists of bytes, integers or real numbers."""
    made = Example()
    for name, values in features.items():
        first = values[0] if values else 0
        kind = "bytes_list" if isinstance(first, bytes) else "int64_list" if isinstance(first, int) else "float_list"
        getattr(made.features.feature[name], kind).value.extend(values)
    return made.SerializeToString()


def test_words_are_looked_up_on_the_host(tmp_path: Path) -> None:
    def function(variables: Any, inputs: Any) -> Any:
        word = inputs["word"]
        assert word.shape[1:] == (2,)
        first, second = word.ids(VocabularyIds(["no", "yes"])), word.ids(VocabularyIds([b"yes"], default=7), np.int64)
        return {"first": first, "second": second, "row": variables["table"][first % 2].sum((1, 2)), "again": word}

    table = np.array([[1.0], [10.0]], np.float32)
    model = _exported(tmp_path, SignatureFunction(function, {"word": _text(None, 2)}), {"table": table})
    found = model(word=[["yes", b"no"], ["?", "yes"], ["no", "no"]])
    np.testing.assert_array_equal(found["first"], [[1, 0], [-1, 1], [0, 0]])
    np.testing.assert_array_equal(found["second"], [[0, 7], [7, 0], [7, 7]])
    np.testing.assert_array_equal(found["row"], [11, 20, 2])
    assert found["again"].tolist() == [[b"yes", b"no"], [b"?", b"yes"], [b"no", b"no"]]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ([1, 2], "is text: bytes or str. Received: int, 1"),
        (["a", ["b"]], "is text: bytes or str. Received: list"),
        ("a", r"is string\[\?\]. Received: shape \[\]"),
        (np.array([1.0]), "Received: float"),
    ],
)
def test_text_is_demanded(tmp_path: Path, word: Any, message: str) -> None:
    model = _exported(tmp_path, SignatureFunction(lambda v, i: {"same": i["word"]}, {"word": _text(None)}))
    with pytest.raises(ArgumentError, match=message):
        model(word=word)


def test_numpys_kinds_of_text(tmp_path: Path) -> None:
    model = _exported(tmp_path, SignatureFunction(lambda v, i: {"same": i["word"]}, {"word": _text(None)}))
    for word in (np.array(["ä", "b"]), np.array(["ä".encode(), b"b"]), np.array(["ä", b"b"], object), ["ä", "b"]):
        assert model(word=word)["same"].tolist() == ["ä".encode(), b"b"]
    assert model(word=[b"a\x00"])["same"].tolist() == [b"a\x00"]
    assert model(word=[])["same"].tolist() == []


@pytest.mark.slow
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(vocabulary=st.lists(st.binary(max_size=4), min_size=1, max_size=4, unique=True), count=st.integers(1, 4))
def test_any_words(tmp_path_factory: pytest.TempPathFactory, vocabulary: list[bytes], count: int) -> None:
    function = SignatureFunction(
        lambda v, i: {"word": words(i["id"], vocabulary), "id": i["word"].ids(VocabularyIds(vocabulary))},
        {"id": spec(None, dtype=np.int32), "word": _text(None)},
    )
    directory = tmp_path_factory.mktemp("e")
    ids = np.arange(count, dtype=np.int32) % len(vocabulary)
    found = _exported(directory, function)(id=ids, word=np.array([vocabulary[i] for i in ids], object))
    assert found["word"].tolist() == [vocabulary[i] for i in ids]
    np.testing.assert_array_equal(found["id"], ids)


def test_constant_words(tmp_path: Path) -> None:
    labels = np.array([["no", "yes", "no"]])
    model = _exported(tmp_path, SignatureFunction(lambda v, i: {"labels": labels, "x": i["x"]}, {"x": spec(None)}))
    assert model(x=[1.0])["labels"].tolist() == [[b"no", b"yes", b"no"]]


def test_positions_outside_of_the_vocabulary_are_refused(tmp_path: Path) -> None:
    function = SignatureFunction(lambda v, i: {"w": words(i["id"], ["a", "b"])}, {"id": spec(None, dtype=np.int32)})
    model = _exported(tmp_path, function)
    assert model.signatures["serving_default"].outputs["w"] == saved_model.TensorInfo((None,), "string")
    with pytest.raises(ArgumentError, match=r"vocabulary of 2. Received from the program: positions from 0 to 2"):
        model(id=[0, 2])


def test_a_function_of_the_host_that_is_not_known_is_refused(tmp_path: Path) -> None:
    class Odd:
        def to_json(self) -> Any:
            return {"kind": "os:system", "command": "true"}

    for odd in (len, lambda text: text, Odd()):
        function = SignatureFunction(lambda v, i: {"y": i["w"].ids(odd)}, {"w": _text(None)})  # noqa: B023
        with pytest.raises(UnsupportedError, match="must be known to lockstep, because an export holds no code"):
            _exported(tmp_path, function)


def test_a_function_that_asks_for_something_else_each_time_is_refused(tmp_path: Path) -> None:
    calls: list[int] = []

    def function(variables: Any, inputs: Any) -> Any:
        calls.append(1)
        return {"y": sum(inputs["w"].ids(VocabularyIds(["a"])) for _ in calls)}

    with pytest.raises(ArgumentError, match="must do the same in each call"):
        _exported(tmp_path, SignatureFunction(function, {"w": _text(None)}))


_FEATURES = {
    "age": FixedLenFeature([], np.float32, 1.5),
    "pair": FixedLenFeature([2], np.int64),
    "name": FixedLenFeature([1], "string", b"\xff"),
    "steps": FixedLenSequenceFeature([2], np.float32, allow_missing=True, default_value=9.0),
    "tags": VarLenFeature("string"),
    "counts": VarLenFeature(np.int64),
    "parts": RaggedFeature(np.float32, value_key="p"),
}


def _of_examples(variables: Any, inputs: Any) -> Any:
    found = dict(inputs["examples"])
    found["tags"] = found["tags"].ids(VocabularyIds(["a", "b", ""]))
    return {**found, "double": found["age"] * 2}


def test_serialised_examples(tmp_path: Path) -> None:
    signature = SignatureFunction(_of_examples, {"examples": _text(None)}, {"examples": _FEATURES})
    model = _exported(tmp_path, signature)
    one = example(age=[2.0], pair=[1, 2], name=[b"me"], steps=[1.0, 2.0], tags=[b"b", b"a"], counts=[5], p=[0.5, 0.25])
    other = example(pair=[3, 4])
    found = model(examples=[one, other])
    np.testing.assert_array_equal(found["age"], np.array([2, 1.5], np.float32))
    np.testing.assert_array_equal(found["double"], [4, 3])
    np.testing.assert_array_equal(found["pair"], [[1, 2], [3, 4]])
    assert found["name"].tolist() == [[b"me"], [b"\xff"]]
    np.testing.assert_array_equal(found["steps"], [[[1, 2]], [[9, 9]]])
    np.testing.assert_array_equal(found["tags"], [[1, 0], [2, 2]])
    np.testing.assert_array_equal(found["counts"], [[5], [-1]])
    np.testing.assert_array_equal(found["parts"], [[0.5, 0.25], [0, 0]])
    alone = model(examples=[other])
    np.testing.assert_array_equal(alone["counts"], [[-1]])
    np.testing.assert_array_equal(alone["steps"], [[[9, 9]]])
    np.testing.assert_array_equal(alone["tags"], [[2]])


def test_examples_that_are_none_or_lack_something(tmp_path: Path) -> None:
    signature = SignatureFunction(_of_examples, {"examples": _text(None)}, {"examples": _FEATURES})
    model = _exported(tmp_path, signature)
    with pytest.raises(InputError, match="example 1 is no serialised Example"):
        model(examples=[example(pair=[1, 2]), b"no"])
    with pytest.raises(InputError, match="feature 'pair' is missing from example 0"):
        model(examples=[example(age=[1.0])])


@pytest.mark.parametrize("shape", [(), (None, 1)])
def test_examples_are_a_batch_of_text(tmp_path: Path, shape: Any) -> None:
    signature = SignatureFunction(lambda v, i: i["e"], {"e": _text(*shape)}, {"e": _FEATURES})
    with pytest.raises(ArgumentError, match="Examples to be parsed are an input of text with one dimension"):
        _exported(tmp_path, signature)


def test_unknown_kinds_in_a_description_are_refused(tmp_path: Path) -> None:
    word = SignatureFunction(lambda v, i: {"y": i["w"].ids(VocabularyIds(["a"]))}, {"w": _text(None)})
    parsed = SignatureFunction(lambda v, i: {"y": i["e"]["age"]}, {"e": _text(None)}, {"e": {"age": _FEATURES["age"]}})
    saved_model.write(tmp_path / "e", {"word": word, "parsed": parsed}, {})
    path = tmp_path / "e" / "saved_model.json"
    good = json.loads(path.read_text())
    for change, message in (
        (lambda d: d["word"]["lookups"][0]["function"].update(kind="os:system"), "no function of the kind 'os:system'"),
        (
            lambda d: d["word"]["lookups"][0]["function"].pop("words"),
            "function of the kind 'vocabulary' is not understood",
        ),
        (lambda d: d["word"]["lookups"][0].update(source="v"), "looks up 'v', which is no text"),
        (lambda d: d["parsed"]["parse"]["e"]["age"].update(kind="Path"), "there is no kind 'Path'"),
        (lambda d: d["parsed"]["parse"]["e"]["age"].update(more=1), "more"),
    ):
        bad = json.loads(json.dumps(good))
        change(bad["signatures"])
        path.write_text(json.dumps(bad))
        with pytest.raises(ArgumentError, match=f"is not a usable export: .*{message}"):
            saved_model.load(tmp_path / "e")


@pytest.mark.parametrize(
    "function",
    [TextBuckets(7), FingerprintHalf(True), FingerprintHalf(False), VocabularyLookup([b"a", b"\xff"], -1, 3)],
    ids=["buckets", "upper", "lower", "words"],
)
def test_what_columns_compute_of_text_is_exported(tmp_path: Path, function: Any) -> None:
    dtype = np.uint32 if isinstance(function, FingerprintHalf) else np.int32
    asks = SignatureFunction(lambda v, i: {"y": i["w"].ids(function, dtype)}, {"w": _text(None)})
    model = _exported(tmp_path, asks)
    words = np.array([b"a", b"\xff", b"", b"other"], object)
    np.testing.assert_array_equal(model(w=words)["y"], np.asarray(function(words)).astype(dtype))


def test_a_vocabulary_holds_each_word_once() -> None:
    with pytest.raises(ArgumentError, match="each word once"):
        VocabularyIds(["a", b"a"])


def test_jax_computes_nothing_with_text() -> None:
    """The premise: text must not reach a device."""
    with pytest.raises(TypeError):
        jnp.asarray(np.array(["a"], object))
