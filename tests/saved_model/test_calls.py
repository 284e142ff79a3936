"""What a loaded model computes, for any number of examples, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep import saved_model
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.saved_model import SignatureFunction
from tests.saved_model.models import MLP, mlp, mlp_inputs, mlp_variables, spec

Variables = dict[str, Any]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> saved_model.LoadedModel:
    directory = tmp_path_factory.mktemp("export") / "model"
    saved_model.write(directory, {"serving_default": MLP}, mlp_variables())
    return saved_model.load(directory)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_any_number_of_examples_gives_what_the_function_gives(model: saved_model.LoadedModel, count: int) -> None:
    x = mlp_inputs(count)
    expected = mlp(mlp_variables(), {"x": x})
    found = model(x=x)
    assert set(found) == {"probabilities", "class"}
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-6, rtol=0)
    np.testing.assert_array_equal(found["class"], expected["class"])


def test_no_examples_give_no_rows(model: saved_model.LoadedModel) -> None:
    found = model(x=np.zeros((0, 4), np.float32))
    assert found["probabilities"].shape == (0, 3)
    assert found["class"].shape == (0,)
    assert found["class"].dtype == np.int32


def test_no_examples_are_refused_where_an_output_is_of_all(tmp_path: Path) -> None:
    mean = SignatureFunction(lambda v, i: {"mean": i["x"].mean()}, {"x": spec(None)})
    saved_model.write(tmp_path / "e", {"serving_default": mean}, {})
    loaded = saved_model.load(tmp_path / "e")
    assert loaded(x=np.array([1, 2, 6], np.float32))["mean"] == 3
    with pytest.raises(ArgumentError, match="at least one example, for its output 'mean'"):
        loaded(x=np.zeros(0, np.float32))


def test_inputs_by_keyword_or_as_a_dict_or_both(model: saved_model.LoadedModel) -> None:
    x = mlp_inputs(2)
    expected = model(x=x)["class"]
    np.testing.assert_array_equal(model({"x": x})["class"], expected)
    np.testing.assert_array_equal(model.signatures["serving_default"](x=x.tolist())["class"], expected)
    np.testing.assert_array_equal(model(x=jnp.asarray(x))["class"], expected)


def test_a_signature_says_what_it_takes_and_gives(model: saved_model.LoadedModel) -> None:
    signature = model.signatures["serving_default"]
    assert signature.inputs == {"x": saved_model.TensorInfo((None, 4), "float32")}
    assert signature.outputs["probabilities"] == saved_model.TensorInfo((None, 3), "float32")
    assert signature.method_name == saved_model.PREDICT_METHOD_NAME
    assert repr(signature) == (
        "Signature('serving_default': x: float32[?, 4] -> probabilities: float32[?, 3], class: int32[?])"
    )
    np.testing.assert_array_equal(model.variables["dense/kernel"], mlp_variables()["dense/kernel"])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, r"takes x: float32\[\?, 4\]. Received: nothing"),
        ({"y": 1}, r"takes x: float32\[\?, 4\]. Received: y"),
        ({"x": np.zeros((1, 4), np.float32), "y": 1}, "Received: x, y"),
        ({"x": np.zeros((1, 5), np.float32)}, r"is float32\[\?, 4\]. Received: shape \[1, 5\]"),
        ({"x": np.zeros(4, np.float32)}, r"Received: shape \[4\]"),
        ({"x": np.zeros((1, 4))}, "is of type float32. Received: float64. Convert it"),
        ({"x": np.zeros((1, 4), np.int64)}, "Received: int64"),
        ({"x": [["a"] * 4]}, "Received: text"),
        ({"x": [[1, 2, 3, 4], [1]]}, "all its rows have the same length"),
        ({"x": None}, "Received: text or mixed values"),
    ],
)
def test_wrong_inputs_are_named(model: saved_model.LoadedModel, inputs: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        model(inputs)


def test_the_only_input_needs_no_name(model: saved_model.LoadedModel, tmp_path: Path) -> None:
    x = mlp_inputs(2)
    np.testing.assert_array_equal(model(x)["class"], model(x=x)["class"])
    with pytest.raises(ArgumentError, match=r"Received: ndarray without a name.*Example: model\(x=...\)"):
        model(x, x=x)
    two = SignatureFunction(lambda v, i: {"sum": i["a"] + i["b"]}, {"a": spec(None), "b": spec(None)})
    saved_model.write(tmp_path / "e", {"serving_default": two}, {})
    with pytest.raises(ArgumentError, match=r"Received: ndarray without a name.*Example: model\(a=...\)"):
        saved_model.load(tmp_path / "e")(x)


def test_numbers_become_an_inputs_type_only_without_loss(tmp_path: Path) -> None:
    inputs = {"i": spec(None, dtype=np.uint8), "f": spec(None), "l": spec(None, dtype=np.int64)}
    function = SignatureFunction(lambda v, i: {"sum": i["i"] + i["f"] + i["l"]}, inputs)
    saved_model.write(tmp_path / "e", {"serving_default": function}, {})
    model = saved_model.load(tmp_path / "e")
    assert model.signatures["serving_default"].inputs["l"].dtype == "int64"
    assert model(i=[255], f=[0.5], l=[1])["sum"] == [256.5]
    assert model(i=[255], f=np.array([1], np.float16), l=np.array([1], np.int32))["sum"] == [257]
    with pytest.raises(ArgumentError, match="'i' of the signature 'serving_default' is of type uint8"):
        model(i=[256], f=[1.0], l=[1])
    with pytest.raises(ArgumentError, match="'i'"):
        model(i=[1.0], f=[1.0], l=[1])
    with pytest.raises(ArgumentError, match="computes with int32"):
        model(i=[1], f=[1.0], l=[2**40])


def test_inputs_hold_the_same_number_of_examples(tmp_path: Path) -> None:
    function = SignatureFunction(lambda v, i: {"sum": i["a"] + i["b"]}, {"a": spec(None), "b": spec(None)})
    saved_model.write(tmp_path / "e", {"serving_default": function}, {})
    with pytest.raises(ArgumentError, match=r"the same number of examples. Received: 2 of 'a', 3 of 'b'"):
        saved_model.load(tmp_path / "e")(a=np.zeros(2, np.float32), b=np.zeros(3, np.float32))


def test_a_fixed_number_of_examples(tmp_path: Path) -> None:
    fixed = SignatureFunction(lambda v, i: {"y": i["x"] * int(i["x"].shape[0])}, {"x": spec(3)})
    saved_model.write(tmp_path / "e", {"serving_default": fixed}, {})
    model = saved_model.load(tmp_path / "e")
    np.testing.assert_array_equal(model(x=np.ones(3, np.float32))["y"], [3, 3, 3])
    with pytest.raises(ArgumentError, match=r"Received: shape \[2\]"):
        model(x=np.ones(2, np.float32))


def test_without_inputs(tmp_path: Path) -> None:
    saved_model.write(tmp_path / "e", {"step": SignatureFunction(lambda v, i: {"s": v["step"] + 1}, {})}, {"step": 4})
    assert saved_model.load(tmp_path / "e")()["s"] == 5


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "bool", "int8", "complex64"])
def test_variables_keep_their_types(tmp_path: Path, dtype: str) -> None:
    value = np.array([1, 0, 1], jnp.dtype(dtype))
    function = SignatureFunction(lambda v, i: {"y": i["x"] * v["w"].astype(np.float32)}, {"x": spec(None, 3)})
    if dtype == "complex64":
        function = SignatureFunction(lambda v, i: {"y": (i["x"] * v["w"]).real}, {"x": spec(None, 3)})
    saved_model.write(tmp_path / "e", {"serving_default": function}, {"w": value, "b/0": np.float32(2)})
    model = saved_model.load(tmp_path / "e")
    assert model.variables["w"].dtype == jnp.dtype(dtype)
    np.testing.assert_array_equal(model.variables["w"], value)
    assert model.variables["b/0"].shape == ()
    np.testing.assert_array_equal(model(x=np.full((2, 3), 3, np.float32))["y"], [[3, 0, 3]] * 2)


def test_outputs_of_types_that_are_not_numpys(tmp_path: Path) -> None:
    function = SignatureFunction(lambda v, i: {"y": i["x"].astype(jnp.bfloat16)}, {"x": spec(None)})
    saved_model.write(tmp_path / "e", {"serving_default": function}, {})
    model = saved_model.load(tmp_path / "e")
    assert model(x=[1.0, 2.0])["y"].dtype == ml_dtypes.bfloat16
    assert model(x=np.zeros(0, np.float32))["y"].dtype == ml_dtypes.bfloat16


def test_64_bits_are_kept_where_the_model_has_them(tmp_path: Path) -> None:
    double = SignatureFunction(lambda v, i: {"y": i["x"] * v["w"]}, {"x": spec(None, dtype=np.float64)})
    with jax.enable_x64(True):
        saved_model.write(tmp_path / "e", {"serving_default": double}, {"w": np.float64(1 / 3)})
    found = saved_model.load(tmp_path / "e")(x=np.array([1.0]))["y"]
    assert found.dtype == np.float64
    assert found[0] == 1 / 3


@pytest.mark.parametrize("value", [np.array(["a"]), np.array([None]), np.array([1], ml_dtypes.int4)])
def test_variables_are_numbers(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"array of numbers of whole bytes. Received: 'w'"):
        saved_model.write(tmp_path / "e", {"serving_default": MLP}, {"w": value})


def test_a_default_signature_is_called_and_others_by_name(tmp_path: Path) -> None:
    double = SignatureFunction(lambda v, i: {"y": i["x"] * 2}, {"x": spec(None)})
    triple = SignatureFunction(lambda v, i: {"y": i["x"] * 3}, {"x": spec(None)}, method="m")
    saved_model.write(tmp_path / "e", {"serving_default": double, "a:b/c": triple, "a_b/c": double}, {})
    model = saved_model.load(tmp_path / "e")
    assert model(x=[2.0])["y"] == [4]
    assert model.signatures["a:b/c"](x=[2.0])["y"] == [6]
    assert model.signatures["a_b/c"](x=[2.0])["y"] == [4]
    assert model.signatures["a:b/c"].method_name == "m"
    # One function, one program.
    assert sorted(p.name for p in (tmp_path / "e" / "programs").iterdir()) == ["a_b_c.jax", "serving_default.jax"]


def test_without_a_default_signature_a_name_is_demanded(tmp_path: Path) -> None:
    saved_model.write(tmp_path / "e", {"one": MLP, "other": MLP}, mlp_variables())
    with pytest.raises(ArgumentError, match=r"This one has 'one', 'other'. Call model.signatures"):
        saved_model.load(tmp_path / "e")(x=mlp_inputs(1))


def test_tags_choose_a_part(tmp_path: Path) -> None:
    evaluation = SignatureFunction(lambda v, i: {"loss": i["x"].mean()}, {"x": spec(None)}, tags=("eval",))
    saved_model.write(tmp_path / "e", {"serving_default": MLP, "eval": evaluation}, mlp_variables())
    assert set(saved_model.load(tmp_path / "e").signatures) == {"serving_default"}
    assert set(saved_model.load(tmp_path / "e", "eval").signatures) == {"eval"}
    assert saved_model.load(tmp_path / "e", ["eval"])(x=[1.0, 3.0])["loss"] == 2
    with pytest.raises(ArgumentError, match=r"has parts with the tags .*and none with \['train'\]"):
        saved_model.load(tmp_path / "e", "train")


def test_another_platform_is_named(model: saved_model.LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax.export.default_export_platform", lambda: "rocm")
    with pytest.raises(UnsupportedError, match=r"was exported for cpu, cuda, tpu. Received: a call on rocm"):
        model(x=mlp_inputs(1))


_SHAPES = st.lists(st.integers(1, 3), max_size=2)
_INFOS = st.tuples(_SHAPES, st.sampled_from(["float32", "int32", "uint8", "bool", "float16"]))


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    inputs=st.dictionaries(st.text("ab/ :#", min_size=1, max_size=4), _INFOS, min_size=1, max_size=3),
    count=st.integers(1, 5),
    data=st.data(),
)
def test_whatever_the_inputs_and_outputs_are_called(
    tmp_path_factory: pytest.TempPathFactory, inputs: Any, count: int, data: st.DataObject
) -> None:
    """Values go through unchanged, under their names, with their shapes and dtypes."""
    outputs = {data.draw(st.text(min_size=1, max_size=3).filter(str.isprintable)): name for name in inputs}
    function = SignatureFunction(
        lambda v, i: {out: i[name] for out, name in outputs.items()},
        {name: spec(None, *shape, dtype=dtype) for name, (shape, dtype) in inputs.items()},
    )
    directory = tmp_path_factory.mktemp("e") / "e"
    saved_model.write(directory, {"serving_default": function}, {})
    given_values = {
        n: (np.arange(count * int(np.prod(s))).reshape(count, *s) % 2).astype(d) for n, (s, d) in inputs.items()
    }
    found = saved_model.load(directory)(given_values)
    assert list(found) == list(outputs)
    for out, name in outputs.items():
        np.testing.assert_array_equal(found[out], given_values[name], strict=True)
