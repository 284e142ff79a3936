from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.checkpoint import CheckpointStore
from lockstep.errors import ArgumentError, DataNotFoundError, LockstepError
from lockstep.estimator._warm_start import VocabInfo, WarmStartSettings, _remap_rows, warm_start_values

OLD = {
    "global_step": np.array(7),
    "dense/kernel": np.full((2, 3), 1.5, np.float32),
    "dense/bias": np.full((3,), 2.5, np.float32),
    "dense/kernel/Adam": np.full((2, 3), 3.5, np.float32),
    "emb/embeddings": np.arange(8, dtype=np.float32).reshape(4, 2),
    "norm/moving_mean": np.full((3,), 4.5, np.float32),
}
TRAINABLE = {"dense/kernel", "dense/bias", "emb/embeddings"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    with CheckpointStore(tmp_path / "old") as store:
        return store.save(7, OLD)


def zeros() -> dict[str, Any]:
    return {name: np.zeros_like(value) for name, value in OLD.items()}


def changed(settings: WarmStartSettings, initial: dict[str, Any] | None = None) -> set[str]:
    initial = zeros() if initial is None else initial
    found = warm_start_values(initial, TRAINABLE, settings)
    assert list(found) == list(initial)
    return {name for name in found if not np.array_equal(found[name], initial[name])}


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (".*", TRAINABLE),
        ("dense", {"dense/kernel", "dense/bias"}),
        (".*kernel", {"dense/kernel"}),
        ("kernel", set()),
        ("dense/kernel:0$", {"dense/kernel"}),
        ([".*"], set(OLD)),
        (["dense", "norm"], {"dense/kernel", "dense/bias", "dense/kernel/Adam", "norm/moving_mean"}),
        (("dense/kernel$", ".*Adam"), {"dense/kernel", "dense/kernel/Adam"}),
        (None, set()),
        ([], set()),
    ],
)
def test_which_variables(checkpoint: str, patterns: Any, expected: set[str]) -> None:
    assert changed(WarmStartSettings(checkpoint, patterns)) == expected


def test_values_come_from_the_checkpoint(checkpoint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lockstep"):
        found = warm_start_values(zeros(), TRAINABLE, WarmStartSettings(tmp_path / "old"))
    for name in TRAINABLE:
        np.testing.assert_array_equal(found[name], OLD[name])
        assert found[name].dtype == OLD[name].dtype
    assert caplog.messages == [
        f"Warm-starting from: {tmp_path / 'old'}",
        "Warm-starting variables only in TRAINABLE_VARIABLES.",
        "Warm-started 3 variables.",
    ]


def test_a_pattern_that_fits_nothing_is_said(checkpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    changed(WarmStartSettings(checkpoint, ["dense", "missing"]))
    assert "'missing'" in caplog.text


def test_another_name_in_the_checkpoint(checkpoint: str) -> None:
    initial = {"new/kernel": np.zeros((2, 3), np.float64), "new/bias": np.zeros(3)}
    settings = WarmStartSettings(checkpoint, ".*kernel", var_name_to_prev_var_name={"new/kernel": "dense/kernel"})
    found = warm_start_values(initial, set(initial), settings)
    np.testing.assert_array_equal(found["new/kernel"], OLD["dense/kernel"])
    assert found["new/kernel"].dtype == np.float64
    assert not found["new/bias"].any()


def test_two_variables_from_one(checkpoint: str) -> None:
    initial = {"a": np.zeros(3), "b": np.zeros(3)}
    names = {"a": "dense/bias", "b": "dense/bias"}
    found = warm_start_values(initial, set(initial), WarmStartSettings(checkpoint, var_name_to_prev_var_name=names))
    assert found["a"].tolist() == found["b"].tolist() == OLD["dense/bias"].tolist()


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"var_name_to_prev_var_name": {"dense/kernal": "dense/kernel"}}, "dense/kernal"),
        ({"var_name_to_prev_var_name": {"norm/moving_mean": "norm"}}, "norm/moving_mean"),
        ({"var_name_to_vocab_info": {"emb": VocabInfo("new", 1, 0, "old")}}, "emb"),
    ],
)
def test_names_that_are_not_used(checkpoint: str, settings: dict[str, Any], names: str) -> None:
    with pytest.raises(ArgumentError, match=f"Received: {names}.*There are dense/kernel, dense/bias"):
        changed(WarmStartSettings(checkpoint, **settings))


def test_a_variable_that_the_checkpoint_lacks(checkpoint: str) -> None:
    with pytest.raises(DataNotFoundError, match=r"other/kernel cannot be .* has no other/kernel. It has dense/bias"):
        warm_start_values({"other/kernel": np.zeros(3)}, {"other/kernel"}, WarmStartSettings(checkpoint))


def test_a_variable_of_another_shape(checkpoint: str) -> None:
    with pytest.raises(ArgumentError, match=r"dense/bias cannot be .* shape \(4,\), and \(3,\) in the checkpoint"):
        warm_start_values({"dense/bias": np.zeros(4)}, {"dense/bias"}, WarmStartSettings(checkpoint))


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(LockstepError, match="nowhere"):
        changed(WarmStartSettings(tmp_path / "nowhere"))


@pytest.mark.parametrize("path", ["", None, 3])
def test_a_checkpoint_must_be_named(path: Any) -> None:
    with pytest.raises(ArgumentError, match="ckpt_to_initialize_from must be"):
        WarmStartSettings(path)


@pytest.mark.parametrize("patterns", [3, ["a", 3], "[", ["("], [keras.Variable(1.0)]])
def test_patterns_must_be_expressions(patterns: Any) -> None:
    with pytest.raises(ArgumentError, match="vars_to_warm_start must be"):
        WarmStartSettings("x", patterns)


# Vocabularies.


@pytest.fixture
def vocabulary(tmp_path: Path) -> Callable[..., str]:
    def write(name: str, *words: str) -> str:
        (tmp_path / name).write_text("".join(f"{word}\n" for word in words))
        return str(tmp_path / name)

    return write


def test_rows_move_with_their_words(checkpoint: str, vocabulary: Callable[..., str]) -> None:
    old, new = vocabulary("old.txt", "a", "b", "c", "d"), vocabulary("new.txt", "d", "x", "a")
    settings = WarmStartSettings(
        checkpoint,
        None,
        var_name_to_vocab_info={
            "emb/embeddings": VocabInfo(new, 3, 2, old, backup_initializer=keras.initializers.Constant(9.0))
        },
    )
    initial = {**zeros(), "emb/embeddings": np.zeros((5, 2), np.float32)}
    found = warm_start_values(initial, TRAINABLE, settings)
    assert found["emb/embeddings"].tolist() == [[6, 7], [9, 9], [0, 1], [9, 9], [9, 9]]
    assert not found["dense/kernel"].any()


def test_part_of_a_vocabulary(checkpoint: str, vocabulary: Callable[..., str]) -> None:
    old, new = vocabulary("old.txt", "a", "b", "c", "d", "e"), vocabulary("new.txt", "d", "b", "z")
    info = VocabInfo(new, 2, 0, old, old_vocab_size=3)
    settings = WarmStartSettings(checkpoint, ".*emb", {"emb/embeddings": info})
    found = warm_start_values({"emb/embeddings": np.zeros((2, 2))}, TRAINABLE, settings)
    assert found["emb/embeddings"].tolist() == [[0, 0], [2, 3]]


@pytest.mark.parametrize(("name", "axis"), [("dense/kernel", 1), ("dense/bias", 0)])
def test_classes_of_an_output_layer(vocabulary: Callable[..., str], tmp_path: Path, name: str, axis: int) -> None:
    values = {"dense/kernel": np.arange(6, dtype="f").reshape(2, 3), "dense/bias": np.arange(3, dtype="f")}
    with CheckpointStore(tmp_path / "old") as store:
        prefix = store.save(1, values)
    old, new = vocabulary("old.txt", "a", "b", "c"), vocabulary("new.txt", "c", "new", "a", "b")
    shape = (2, 4) if axis else (4,)
    settings = WarmStartSettings(prefix, name, {name: VocabInfo(new, 4, 0, old, axis=axis)})
    found = warm_start_values({name: np.zeros(shape)}, {name}, settings)[name]
    np.testing.assert_array_equal(np.take(found, [2, 3, 0], axis), values[name])
    assert not np.take(found, 1, axis).any()


@given(
    st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1),
    st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1),
    st.integers(0, 2),
)
def test_each_word_keeps_its_row(
    tmp_path_factory: pytest.TempPathFactory, old: list[str], new: list[str], buckets: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "old.txt").write_text("\n".join(old))
    (folder / "new.txt").write_text("\n".join(new))
    rows = np.arange(1.0, len(old) * 2 + 1).reshape(len(old), 2)
    info = VocabInfo(folder / "new.txt", len(new), buckets, folder / "old.txt")
    found = _remap_rows("v", rows, np.zeros((len(new) + buckets, 2)), info)
    expected = [rows[old.index(word)].tolist() if word in old else [0, 0] for word in new]
    assert found.tolist() == expected + [[0, 0]] * buckets


@pytest.mark.parametrize(
    ("shape", "info", "what"),
    [
        ((3, 2), {"new_vocab_size": 2}, "2 words and 0 buckets"),
        ((3, 2), {"new_vocab_size": 4}, "it speaks of 4 words"),
        ((3, 3), {}, r"shape \(3, 3\), and \(4, 2\)"),
        ((3,), {"axis": 1}, r"shape \(3,\)"),
        ((3, 2), {"old_vocab": "long.txt"}, "the old vocabulary has 5 words"),
        ((3, 2), {"old_vocab": "twice.txt"}, "a word twice"),
        ((3, 2), {"old_vocab": "nowhere.txt"}, "cannot be read"),
    ],
)
def test_vocabularies_that_do_not_fit(
    checkpoint: str, vocabulary: Callable[..., str], tmp_path: Path, shape: Any, info: dict[str, Any], what: str
) -> None:
    vocabulary("new.txt", "d", "x", "a")
    vocabulary("old.txt", "a", "b", "c", "d")
    vocabulary("long.txt", "a", "b", "c", "d", "e")
    vocabulary("twice.txt", "a", "b", "a", "d")
    given = {"new_vocab": "new.txt", "new_vocab_size": 3, "num_oov_buckets": 0, "old_vocab": "old.txt", **info}
    given = {k: tmp_path / v if k.endswith("vocab") else v for k, v in given.items()}
    settings = WarmStartSettings(checkpoint, ".*emb", {"emb/embeddings": VocabInfo(**given)})
    with pytest.raises(LockstepError, match=f"emb/embeddings cannot be warm-started.*{what}"):
        warm_start_values({"emb/embeddings": np.zeros(shape)}, TRAINABLE, settings)


@pytest.mark.parametrize("wrong", [{"axis": 2}, {"new_vocab_size": 0}, {"num_oov_buckets": -1}])
def test_numbers_out_of_range(wrong: dict[str, int]) -> None:
    given: dict[str, Any] = {"new_vocab": "n", "new_vocab_size": 1, "num_oov_buckets": 0, "old_vocab": "o", **wrong}
    with pytest.raises(ArgumentError, match="Received"):
        VocabInfo(**given)
