"""Archives: a change in one never goes unnoticed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.datasets._location import read_members
from lockstep.errors import InputError
from tests.datasets import files

FILES = {"a/one.txt": b"one", "a/two.bin": bytes(range(256)) * 8, "b/one.txt": b""}
ARCHIVE = files.tar(FILES)


def test_what_is_wanted_is_read() -> None:
    assert read_members(ARCHIVE, lambda name: True, "it") == FILES
    assert read_members(ARCHIVE, lambda name: name.endswith(".txt"), "it") == {"a/one.txt": b"one", "b/one.txt": b""}


@settings(deadline=None)
@given(position=st.integers(0, len(ARCHIVE) - 1), value=st.integers(0, 255))
def test_a_changed_byte_is_noticed_or_changes_nothing(position: int, value: int) -> None:
    changed = bytearray(ARCHIVE)
    changed[position] = value
    try:
        found = read_members(bytes(changed), lambda name: True, "the-archive")
    except InputError as error:
        assert str(error).startswith("the-archive is no complete .tar.gz archive")
    else:
        assert found == FILES


@settings(deadline=None)
@given(length=st.integers(0, len(ARCHIVE) - 1))
def test_a_part_is_refused(length: int) -> None:
    with pytest.raises(InputError, match="the-archive is no complete"):
        read_members(ARCHIVE[:length], lambda name: True, "the-archive")
