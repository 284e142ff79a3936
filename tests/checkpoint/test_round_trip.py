"""What was saved is what is read, to the bit, with numpy's reader too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.checkpoint import CheckpointStore, list_variables, load, load_checkpoint, load_variable
from lockstep.checkpoint._format import dtype_of, member_of, text_of
from lockstep.errors import ArgumentError, CheckpointError

OF_NUMPY = [
    *("?", "i1", "u1", "<i2", ">u2", "<i4", "<u4", ">i8", "<u8", "<f2", ">f2", "<f4", ">f4", "<f8", "g"),
    *("<c8", ">c16", "S3", "<U2", ">U2", "<M8[ns]", "<m8[25s]", "<M8[D]"),
]
OF_ML_DTYPES = [
    *("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn", "float6_e3m2fn"),
    *("int2", "int4", "uint2", "uint4"),
]
DTYPES = [np.dtype(code) for code in OF_NUMPY] + [np.dtype(getattr(ml_dtypes, name)) for name in OF_ML_DTYPES]

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
NAMES = st.one_of(
    st.text(st.characters(), max_size=12),
    st.text("a/.:%\\ \0\n\ud800é", max_size=8),
    st.sampled_from(
        ["", "/", "dense/kernel", "../up", "metadata.json", "a.npy", "a:0", "%41", "%00", "\0", "global_step", "con"]
    ),
)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    dtype, shape = draw(st.sampled_from(DTYPES)), draw(SHAPES)
    count = int(np.prod(shape)) * dtype.itemsize
    array = np.frombuffer(draw(st.binary(min_size=count, max_size=count)), np.uint8)
    if dtype.kind in "bU" or "int2" in dtype.name or "int4" in dtype.name:  # Not all bits are values of these.
        array = (array[: int(np.prod(shape))] % 2).astype(dtype)
    array = array.view(dtype).reshape(shape) if array.size else np.zeros(shape, dtype)
    return draw(st.sampled_from([array, array.T, np.asfortranarray(array)]))


def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


@given(st.dictionaries(NAMES, arrays(), max_size=5))
def test_everything_comes_back(
    tmp_path_factory: pytest.TempPathFactory, saved: dict[str, np.ndarray[Any, Any]]
) -> None:
    directory = tmp_path_factory.mktemp("m")
    with CheckpointStore(directory) as store:
        prefix = store.save(7, saved)
    found = load(prefix)
    assert list(found.arrays) == list(saved)
    assert all(same(found.arrays[name], saved[name]) for name in saved)
    assert all(array.flags.writeable and array.flags.c_contiguous for array in found.arrays.values())
    assert list_variables(prefix) == sorted((name, list(array.shape)) for name, array in saved.items())
    reader = load_checkpoint(prefix)
    assert reader.get_variable_to_dtype_map() == {name: array.dtype for name, array in saved.items()}
    assert all(same(reader.get_tensor(name), saved[name]) for name in saved)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(), max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.integers(0, 2**62), st.dictionaries(st.text(), JSON, max_size=3))
def test_step_and_extra_come_back(tmp_path_factory: pytest.TempPathFactory, step: int, extra: dict[str, Any]) -> None:
    with CheckpointStore(tmp_path_factory.mktemp("m")) as store:
        prefix = store.save(step, {}, extra)
    found = load(prefix)
    assert (found.prefix, found.step, found.extra, found.arrays) == (prefix, step, extra, {})


def test_numpy_reads_the_file(tmp_path: Path) -> None:
    saved = {"dense/kernel": np.arange(6.0).reshape(2, 3), "b": np.array([1.5, -2], ml_dtypes.bfloat16), "": np.int8(3)}
    with CheckpointStore(tmp_path) as store:
        prefix = store.save(1, saved)
    with np.load(f"{prefix}.npz") as found:
        assert set(found.files) == {"dense/kernel", "b", "", "metadata.json"}
        assert same(found["dense/kernel"], saved["dense/kernel"])
        assert found[""] == 3
        assert found["b"].dtype == np.uint16
        assert same(found["b"].view(ml_dtypes.bfloat16), saved["b"])


def test_jax_arrays_and_plain_numbers(tmp_path: Path) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()), "d")
    spread = jax.device_put(jnp.arange(8), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d")))
    with CheckpointStore(tmp_path) as store:
        prefix = store.save(
            jnp.int32(3), {"half": jnp.ones((2,), jnp.bfloat16), "spread": spread, "plain": 5, "f": 0.5}
        )
    found = load(prefix).arrays
    assert found["half"].dtype == jnp.bfloat16
    assert found["half"].tolist() == [1, 1]
    assert found["spread"].tolist() == list(range(8))
    assert (found["plain"], found["f"]) == (5, 0.5)
    assert prefix == str(tmp_path / "model.ckpt-3")


def test_a_single_part_larger_than_the_pieces(tmp_path: Path) -> None:
    large = np.random.default_rng(0).integers(0, 255, (3 << 20) + 5, np.uint8)
    with CheckpointStore(tmp_path) as store:
        prefix = store.save(1, {"large": large})
    assert np.array_equal(load_variable(prefix, "large"), large)


@pytest.mark.parametrize("text", [text_of(dtype) for dtype in DTYPES])
def test_dtypes_are_their_texts(text: str) -> None:
    assert text_of(dtype_of(text)) == text


@pytest.mark.parametrize(
    "text", ["O", "|O8", "<f4,<f4", "V8", "<f3", "(2,)<f4", "int", "", None, 4, "<U0", "T", "<f99"]
)
def test_other_texts_are_no_dtypes(text: Any) -> None:
    with pytest.raises(ValueError, match="is not a dtype"):
        dtype_of(text)


@given(st.lists(NAMES, unique=True))
def test_different_names_are_different_parts(names: list[str]) -> None:
    assert len({member_of(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("a", object(), "'a' has dtype object"),
        ("a", np.array([None, 1]), "'a' has dtype object"),
        ("a", np.zeros(2, "i4,f4"), "'a' has dtype"),
        ("a", [[1], [2, 3]], "'a' cannot be copied"),
        ("a", jax.random.key(0), "'a' cannot be copied"),
        (5, 1.0, "names, which are text; 5 is int"),
        (b"a", 1.0, "names, which are text"),
        ("é" * 40_000, 1.0, "at most 65535 bytes"),
    ],
)
def test_what_cannot_be_kept_is_refused(tmp_path: Path, name: Any, value: Any, message: str) -> None:
    with CheckpointStore(tmp_path) as store:
        with pytest.raises(ArgumentError, match=message):
            store.save(1, {name: value})
        store.save(2, {"fine": 1.0})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint", "model.ckpt-2.npz"]


def test_an_array_that_was_donated_is_named(tmp_path: Path) -> None:
    gone = jnp.ones(3)
    gone.delete()
    with CheckpointStore(tmp_path) as store, pytest.raises(ArgumentError, match=r"'w' cannot be copied.*donated"):
        store.save(1, {"w": gone})


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"a": {1: 2}}, r"extra\['a'\] has the key 1"),
        ({"a": [1, {2}]}, r"extra\['a'\]\[1\] is \{2\} of type set"),
        ({"a": np.float32(1)}, r"extra\['a'\] is .* of type float32"),
        ([1], "is a dict of JSON values; got"),
    ],
)
def test_extra_is_json(tmp_path: Path, extra: Any, message: str) -> None:
    with CheckpointStore(tmp_path) as store, pytest.raises(ArgumentError, match=message):
        store.save(1, {}, extra)


def test_extra_that_contains_itself(tmp_path: Path) -> None:
    extra: dict[str, Any] = {}
    extra["a"] = extra
    with CheckpointStore(tmp_path) as store, pytest.raises(ArgumentError, match="contains itself"):
        store.save(1, {}, extra)


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"There is no checkpoint .*model\.ckpt-1\.npz"):
        load(tmp_path / "model.ckpt-1")
