"""Splits: what they mean is what tensorflow_datasets says, and slices that adjoin are a partition."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lockstep.datasets import ReadInstruction, Split
from lockstep.datasets._info import Splits
from lockstep.datasets._split import Part, resolve
from lockstep.errors import ArgumentError, UnsupportedError

SIZES = {"train": 60_000, "test": 10_000}


def bounds(split: object, size: int) -> tuple[int, int]:
    (part,) = resolve(split, {"train": size})  # type: ignore[arg-type]
    return part.start, part.stop


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("train", (0, 999)),
        ("train[:80%]", (0, 799)),
        ("train[80%:]", (799, 999)),
        ("train[100:200]", (100, 200)),
        ("train[-10%:]", (899, 999)),
        ("train[:-10%]", (0, 899)),
        ("train[-5:]", (994, 999)),
        ("train[:-5]", (0, 994)),
        ("train[10%:-10%]", (100, 899)),
        ("train[:]", (0, 999)),
        ("train[0:50%]", (0, 500)),
        ("train[1_0:2_0]", (10, 20)),
        (" train[ 10 : 20 ] ", (10, 20)),
        ("train[20:10]", (20, 20)),
        (Split.TRAIN, (0, 999)),
        (ReadInstruction("train", to=12.5, unit="%"), (0, 125)),
        (ReadInstruction("train", 10, 20), (10, 20)),
        (ReadInstruction("train", 10, 20, unit="%", rounding="pct1_dropremainder"), (90, 180)),
        (ReadInstruction("train", -10, unit="%", rounding="pct1_dropremainder"), (909, 999)),
    ],
)
def test_slices(split: object, expected: tuple[int, int]) -> None:
    assert bounds(split, 999) == expected


@pytest.mark.parametrize(("percent", "size", "expected"), [(50, 1, 0), (50, 3, 2), (50, 5, 2), (10, 5, 0), (30, 5, 2)])
def test_halves_are_rounded_to_even_as_tensorflow_datasets_does(percent: int, size: int, expected: int) -> None:
    assert bounds(f"train[:{percent}%]", size) == (0, expected)


CUTS = st.lists(st.integers(0, 100), max_size=8).map(lambda cuts: [0, *sorted(cuts), 100])


@given(size=st.integers(0, 100_000), cuts=CUTS)
def test_adjoining_slices_in_percent_hold_every_example_once(size: int, cuts: list[int]) -> None:
    parts = [bounds(f"train[{a}%:{b}%]", size) for a, b in itertools.pairwise(cuts)]
    assert parts[0][0] == 0
    assert parts[-1][1] == size
    assert all(left[1] == right[0] for left, right in itertools.pairwise(parts))
    assert all(start <= stop for start, stop in parts)


@given(size=st.integers(0, 1000), data=st.data())
def test_slices_in_examples_mean_what_they_mean_in_python(size: int, data: st.DataObject) -> None:
    start, stop = (data.draw(st.none() | st.integers(-size, size)) for _ in range(2))
    text = f"train[{'' if start is None else start}:{'' if stop is None else stop}]"
    found = bounds(text, size)
    assert list(range(*found)) == list(range(size))[start:stop]


@given(size=st.integers(1, 5000), cut=st.integers(0, 100))
def test_before_and_after_a_cut_is_everything(size: int, cut: int) -> None:
    before, after = resolve(f"train[:{cut}%]+train[{cut}%:]", {"train": size})
    assert [*range(before.start, before.stop), *range(after.start, after.stop)] == list(range(size))


@example(text="0+0")
@given(text=st.text(alphabet="train[]:%+-0123456789 shard_", max_size=20))
def test_any_text_is_a_split_or_an_error_that_quotes_it(text: str) -> None:
    try:
        parts = resolve(text, {"train": 100})
    except ArgumentError as error:
        assert repr(text) in str(error) or "no split" in str(error) or "bound of" in str(error) or "%" in str(error)
    else:
        assert all(0 <= part.start <= part.stop <= 100 for part in parts)


def test_sums() -> None:
    expected = [Part("train", 0, 60_000), Part("test", 0, 10)]
    assert resolve("train + test[:10]", SIZES) == expected
    assert resolve("train" + ReadInstruction("test", to=10), SIZES) == expected
    assert resolve(ReadInstruction("train") + "test[:10]", SIZES) == expected
    assert resolve("train" + (ReadInstruction("test", to=5) + ReadInstruction("test", 5, 10)), SIZES) == [
        Part("train", 0, 60_000),
        Part("test", 0, 5),
        Part("test", 5, 10),
    ]
    assert resolve(ReadInstruction.from_spec("train+test[:10]"), SIZES) == expected


def test_all_is_every_split() -> None:
    assert resolve(Split.ALL, SIZES) == [Part("train", 0, 60_000), Part("test", 0, 10_000)]


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("validation", "Received: 'validation', which names 'validation'. Take one of 'train', 'test', or 'all'"),
        ("train[5]", "no such thing: 'train\\[5\\]'"),
        ("train[:5", "no such thing"),
        ("train++test", "no such thing: ''"),
        ("", "no such thing: ''"),
        ("train[:12.5%]", "no bound of a slice: '12.5%'"),
        ("train[:101%]", "from -100 to 100. Received: 101%"),
        ("train[10:50%]", "same unit"),
        ("train[0%:50]", "same unit"),
        ("train[:60_001]", "bound of 60001 in 'train', which has 60000 examples"),
        ("train[-60_001:]", "bound of -60001"),
        (7, "Received: 7. Pass a text"),
        (None, "Received: None"),
    ],
)
def test_what_is_no_split_is_explained(split: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        resolve(split, SIZES)  # type: ignore[arg-type]


@pytest.mark.parametrize("split", ["train[:1shard]", "all[:10%]"])
def test_what_lockstep_cannot_slice_by(split: str) -> None:
    with pytest.raises(UnsupportedError, match="train\\[:"):
        resolve(split, SIZES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unit": "shard"}, "unit must be one of 'abs', '%'"),
        ({"rounding": "up"}, "rounding must be one of"),
        ({"to": 101, "unit": "%"}, "from -100 to 100"),
        ({"to": 1.5}, "whole numbers"),
    ],
)
def test_instructions_that_mean_nothing_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ReadInstruction("train", **arguments)  # type: ignore[arg-type]


def test_dropping_the_remainder_needs_a_hundred_examples() -> None:
    with pytest.raises(ArgumentError, match="fewer than 100"):
        bounds(ReadInstruction("train", to=10, unit="%", rounding="pct1_dropremainder"), 99)


def test_the_sizes_of_slices() -> None:
    splits = Splits(SIZES)
    assert splits["train"].num_examples == 60_000
    assert splits["train[:10%]+test"].num_examples == 16_000
    assert splits.total_num_examples == 70_000
    assert list(splits) == ["train", "test"]
    assert "validation" not in splits
    assert splits.get("validation") is None
