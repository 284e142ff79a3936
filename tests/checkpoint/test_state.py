"""The file `checkpoint`, as TensorFlow writes and reads it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.checkpoint import CheckpointState, get_checkpoint_state, update_checkpoint_state
from lockstep.checkpoint._state import write_state
from lockstep.errors import ArgumentError

# Written by TensorFlow 2.15.1 for a checkpoint called `we "ird'\näme-1`, with a backslash.
BY_TENSORFLOW = r"""model_checkpoint_path: "/m/we \"ird\'\\n\303\244me-1"
all_model_checkpoint_paths: "/m/a-0"
all_model_checkpoint_paths: "/m/we \"ird\'\\n\303\244me-1"
all_model_checkpoint_timestamps: 1.5
all_model_checkpoint_timestamps: 1760000000.123456
last_preserved_timestamp: 3.0
"""


def test_tensorflows_text_is_read_and_written(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text(BY_TENSORFLOW)
    state = get_checkpoint_state(tmp_path)
    odd = "/m/we \"ird'\\näme-1"
    assert state == CheckpointState(odd, ["/m/a-0", odd], [1.5, 1760000000.123456], 3.0)
    update_checkpoint_state(
        tmp_path, odd, state.all_model_checkpoint_paths, "again", state.all_model_checkpoint_timestamps, 3
    )
    assert (tmp_path / "again").read_text() == BY_TENSORFLOW


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=10).filter(
    lambda name: name not in (".", "..", "checkpoint")
)
# Names of files need not be text.
BYTES = st.binary(min_size=1, max_size=10).map(os.fsdecode).filter(lambda name: not set(name) & {"/", "\0"})


@given(st.lists(NAMES | BYTES.filter(lambda name: name not in (".", ".."))), NAMES, st.floats(0, 1e12))
def test_every_name_comes_back(
    tmp_path_factory: pytest.TempPathFactory, others: list[str], newest: str, time: float
) -> None:
    directory = str(tmp_path_factory.getbasetemp())
    paths = [os.path.join(directory, name) for name in [*others, newest]]
    state = CheckpointState(paths[-1], paths, [time] * len(paths), time)
    write_state(directory, state, "names")
    assert get_checkpoint_state(directory, "names") == state


@pytest.mark.parametrize(
    ("text", "newest", "paths"),
    [
        ('model_checkpoint_path: "a-1"', "a-1", []),
        ("  model_checkpoint_path :'a-1' ; # why\n\n#\n", "a-1", []),
        ('model_checkpoint_path: "a" "-1" all_model_checkpoint_paths: "b"', "a-1", ["b"]),
        (r'model_checkpoint_path: "a\1""0"', "a\x010", []),
        (r'model_checkpoint_path: "a\x41\t\""', 'aA\t"', []),
        ('model_checkpoint_path: "ä-1"', "ä-1", []),
        ('model_checkpoint_path: "a", model_checkpoint_path: "b" later: 5', "b", []),
    ],
)
def test_other_ways_to_write_it(tmp_path: Path, text: str, newest: str, paths: list[str]) -> None:
    (tmp_path / "checkpoint").write_text(text)
    state = get_checkpoint_state(tmp_path)
    assert state is not None
    assert state.model_checkpoint_path == str(tmp_path / newest)
    assert list(state.all_model_checkpoint_paths) == [str(tmp_path / path) for path in paths]


@pytest.mark.parametrize(
    "text", ["", "\0", "nonsense", "model_checkpoint_path: a", 'model_checkpoint_path: ""', 'model_checkpoint_path: "a']
)
def test_a_damaged_one_is_ignored_with_a_warning(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "checkpoint").write_text(text)
    assert get_checkpoint_state(tmp_path) is None
    assert f"{tmp_path}/checkpoint: Checkpoint ignored" in caplog.messages


def test_none_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert get_checkpoint_state(tmp_path) is None
    assert get_checkpoint_state(tmp_path / "nowhere") is None
    assert caplog.messages == []


def test_paths_inside_become_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m").mkdir()
    monkeypatch.chdir(tmp_path)
    update_checkpoint_state("m", "m/a-2", ["m/a-1", str(tmp_path / "m" / "..a-3"), str(tmp_path / "b-1"), "m/a-2"])
    assert (tmp_path / "m" / "checkpoint").read_text().splitlines() == [
        'model_checkpoint_path: "a-2"',
        'all_model_checkpoint_paths: "a-1"',
        'all_model_checkpoint_paths: "..a-3"',
        f'all_model_checkpoint_paths: "{tmp_path}/b-1"',
        'all_model_checkpoint_paths: "a-2"',
    ]
    update_checkpoint_state(tmp_path / "m", "a-3")
    state = get_checkpoint_state("m")
    assert state is not None
    assert state.model_checkpoint_path == "m/a-3"
    assert state.all_model_checkpoint_paths == ["m/a-3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model_checkpoint_path": "checkpoint"}, "cannot be called like the file that lists it"),
        (
            {"model_checkpoint_path": "a", "all_model_checkpoint_timestamps": [1.0, 2.0]},
            "2 timestamps and 1 checkpoints",
        ),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        update_checkpoint_state(tmp_path, **arguments)
    assert list(tmp_path.iterdir()) == []
