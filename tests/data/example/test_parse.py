from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.data._example import messages
from lockstep.data._example.features import (
    FixedLenFeature,
    FixedLenSequenceFeature,
    RaggedFeature,
    RaggedValue,
    SparseValue,
    VarLenFeature,
)
from lockstep.data._example.parse import parse_example, parse_single_example, parse_single_sequence_example
from lockstep.errors import ArgumentError, InputError


def feature(values: list[Any]) -> Any:
    if values and isinstance(values[0], bytes):
        return messages.Feature(bytes_list=messages.BytesList(value=values))
    if values and isinstance(values[0], float):
        return messages.Feature(float_list=messages.FloatList(value=values))
    return messages.Feature(int64_list=messages.Int64List(value=values))


def features(**held: list[Any]) -> Any:
    return messages.Features(feature={name: feature(values) for name, values in held.items()})


def example(**held: list[Any]) -> bytes:
    return messages.Example(features=features(**held)).SerializeToString()


# TensorFlow 2.15's serialised Example(x=[1.5], t=[b"ab"], n=[-1]), each alone.
TENSORFLOW = {
    "x": "0a0f0a0d0a0178120812060a040000c03f",
    "t": "0a0d0a0b0a017412060a040a026162",
    "n": "0a150a130a016e120e1a0c0a0affffffffffffffffff01",
}


@pytest.mark.parametrize(("name", "values"), [("x", [1.5]), ("t", [b"ab"]), ("n", [-1])])
def test_bytes_are_those_of_tensorflow(name: str, values: list[Any]) -> None:
    assert example(**{name: values}).hex() == TENSORFLOW[name]


def test_messages_print_and_have_tensorflows_names() -> None:
    message = messages.Example.FromString(example(n=[3]))
    assert message.DESCRIPTOR.full_name == "tensorflow.Example"
    assert message.features.feature["n"].int64_list.value == [3]
    assert message.features.feature["n"].WhichOneof("kind") == "int64_list"
    assert "int64_list" in str(message)


int64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(int64), st.lists(st.floats(width=32)), st.lists(st.binary(max_size=5)))
def test_what_was_written_is_parsed(numbers: list[int], floats: list[float], texts: list[bytes]) -> None:
    serialized = example(n=numbers, f=floats, t=texts)
    described = {"n": VarLenFeature(np.int64), "f": RaggedFeature("float32"), "t": VarLenFeature(bytes)}
    if not floats:
        described["f"] = RaggedFeature(np.int64)
    if not texts:
        described["t"] = VarLenFeature(np.int64)
    found = parse_single_example(serialized, described)
    assert found["n"].tolist() == numbers
    np.testing.assert_array_equal(found["f"], np.array(floats, np.float32))
    assert found["t"].tolist() == texts


def test_fixed_lengths() -> None:
    serialized = example(n=[7], t=[b"text"], m=[1.0, 2.0, 3.0, 4.0], w=[b"a", b"b"])
    found = parse_single_example(
        serialized,
        {
            "n": FixedLenFeature([], np.int64),
            "t": FixedLenFeature((), "string"),
            "m": FixedLenFeature([2, 2], np.float32),
            "w": FixedLenFeature([2], str),
            "d": FixedLenFeature([2], np.float32, 5),
            "e": FixedLenFeature([], bytes, "none"),
            "s": FixedLenSequenceFeature([2], np.float32, allow_missing=True),
            "r": RaggedFeature(np.float32, "m"),
        },
    )
    assert found["n"].shape == () and found["n"].dtype == np.int64 and found["n"] == 7
    assert found["t"] == b"text" and found["e"] == b"none"
    np.testing.assert_array_equal(found["m"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(found["d"], np.float32([5, 5]))
    assert list(found["w"]) == [b"a", b"b"]
    assert found["s"].shape == (0, 2)
    assert list(found["r"]) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"z": FixedLenFeature([], np.int64)}, "feature 'z' is missing from the example"),
        ({"n": FixedLenFeature([], np.float32)}, "feature 'n' of the example holds 3 values of int64; float32 is"),
        ({"n": FixedLenFeature([2], np.int64)}, r"feature 'n' of the example holds 3 values; 2 are .* shape \[2\]"),
        ({"n": VarLenFeature(bytes)}, "feature 'n' of the example holds 3 values of int64; text is"),
        (
            {"n": FixedLenSequenceFeature([2], np.int64, True)},
            r"feature 'n' of the example holds 3 values, which is no whole number of arrays of shape \[2\]",
        ),
    ],
)
def test_errors_name_the_feature_and_what_it_holds(described: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_single_example(example(n=[1, 2, 3]), described)
    with pytest.raises(InputError, match=message.replace("the example", "example 1")):
        parse_example(np.array([good(described), example(n=[1, 2, 3])], object), described)


def good(described: dict[str, Any]) -> bytes:
    """An example that is as described."""
    name, feature_ = next(iter(described.items()))
    one: Any = {"float32": 1.0, "int64": 1, "object": b"a"}[feature_.dtype.name]
    return example(**{name: [one] * int(np.prod(getattr(feature_, "shape", ())))})


def test_a_batch() -> None:
    batch = np.array([example(n=[1], v=[1, 2], t=[b"a"]), example(n=[2]), example(n=[3], v=[3, 4, 5, 6])], object)
    found = parse_example(
        batch,
        {
            "n": FixedLenFeature([], np.int64),
            "v": VarLenFeature(np.int64),
            "r": RaggedFeature(np.int64, "v"),
            "t": FixedLenFeature([1], bytes, "none"),
        },
    )
    assert found["n"].tolist() == [1, 2, 3] and found["t"].tolist() == [[b"a"], [b"none"], [b"none"]]
    assert found["t"].dtype == object
    dense = [[1, 2, 0, 0], [0, 0, 0, 0], [3, 4, 5, 6]]
    assert isinstance(found["v"], SparseValue) and isinstance(found["r"], RaggedValue)
    assert found["v"].to_dense().tolist() == found["r"].to_dense().tolist() == dense
    assert found["v"].to_dense(-1)[1].tolist() == [-1] * 4
    assert [row.tolist() for row in found["r"].rows()] == [[1, 2], [], [3, 4, 5, 6]]
    assert found["v"].indices.tolist() == [[0, 0], [0, 1], [2, 0], [2, 1], [2, 2], [2, 3]]
    assert found["v"].dense_shape.tolist() == [3, 4]
    assert len(jax.tree.leaves(found["v"])) == 3
    padded = parse_example(batch, {"v": FixedLenSequenceFeature([2], np.int64, True, -1)})["v"]
    assert padded.tolist() == [[[1, 2], [-1, -1]], [[-1, -1]] * 2, [[3, 4], [5, 6]]]


def test_an_empty_batch() -> None:
    found = parse_example([], {"n": FixedLenFeature([2], np.int64), "v": VarLenFeature(bytes)})
    assert found["n"].shape == (0, 2) and found["v"].to_dense().shape == (0, 0)


def test_sequence_examples() -> None:
    def steps(*rows: list[Any]) -> Any:
        return messages.FeatureList(feature=[feature(row) for row in rows])

    lists = {"x": steps([1, 2], [3, 4], [5, 6]), "t": steps([b"a"], [], [b"b", b"c"])}
    serialized = messages.SequenceExample(
        context=features(n=[3]), feature_lists=messages.FeatureLists(feature_list=lists)
    ).SerializeToString()
    context, found = parse_single_sequence_example(
        serialized,
        {"n": FixedLenFeature([], np.int64)},
        {
            "x": FixedLenSequenceFeature([2], np.int64),
            "r": RaggedFeature(np.int64, "x"),
            "none": FixedLenSequenceFeature([2], np.float32, allow_missing=True),
            "v": VarLenFeature(np.float32),
        },
    )
    assert context["n"] == 3
    assert found["x"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert found["r"].row_splits.tolist() == [0, 2, 4, 6]
    assert found["none"].shape == (0, 2) and found["v"].dense_shape.tolist() == [0, 0]
    with pytest.raises(InputError, match="feature 'y' is missing from the sequence example"):
        parse_single_sequence_example(serialized, None, {"y": FixedLenSequenceFeature([], np.int64)})
    with pytest.raises(InputError, match=r"feature 'x' of step 0 .* holds 2 values; 3 are"):
        parse_single_sequence_example(serialized, None, {"x": FixedLenSequenceFeature([3], np.int64)})
    with pytest.raises(ArgumentError, match="FixedLenSequenceFeature"):
        parse_single_sequence_example(serialized, None, {"x": FixedLenFeature([], np.int64)})


def test_what_is_no_example() -> None:
    with pytest.raises(InputError, match="example 0 is no serialised Example"):
        parse_single_example(b"\xff\xff\xff", {})
    with pytest.raises(InputError, match="example 1 is no serialised Example"):
        parse_example([b"", b"\xff\xff\xff"], {})
    for wrong in (3, "text", [b""], np.array([b""], object)):
        with pytest.raises(ArgumentError, match="parse_example"):
            parse_single_example(wrong, {})
    for wrong in (b"one", np.array(b"one", object)):
        with pytest.raises(ArgumentError, match="parse_single_example"):
            parse_example(wrong, {})


def test_wrong_descriptions() -> None:
    for make in (
        lambda: FixedLenFeature([], np.int32),
        lambda: FixedLenFeature([None], np.int64),  # type: ignore[list-item]
        lambda: FixedLenFeature([-1], np.int64),
        lambda: FixedLenFeature(None, np.int64),  # type: ignore[arg-type]
        lambda: VarLenFeature("complex64"),
        lambda: FixedLenSequenceFeature([], np.int64, True, [1, 2]),
        lambda: parse_single_example(example(), {"n": np.int64}),  # type: ignore[dict-item]
        lambda: parse_single_example(example(), {"n": FixedLenSequenceFeature([], np.int64)}),
        lambda: parse_single_example(example(), {"n": FixedLenFeature([2], np.int64, [1, 2, 3])}),
    ):
        with pytest.raises(ArgumentError):
            make()


def test_integers_may_be_scalars_of_any_kind() -> None:
    scalars = [True, np.bool_(True), np.int32(3), np.array(4), jax.numpy.asarray(5)]
    assert list(messages.Int64List(value=scalars).value) == [1, 1, 3, 4, 5]
    with pytest.raises(TypeError):
        messages.Int64List(value=[np.array(1.5)])
