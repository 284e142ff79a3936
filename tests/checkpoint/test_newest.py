"""Which checkpoint is the newest, also in a directory where something is missing or broken."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from lockstep.checkpoint import (
    CheckpointStore,
    all_checkpoints,
    checkpoint_exists,
    get_checkpoint_mtimes,
    get_checkpoint_state,
    latest_checkpoint,
    list_variables,
    load_checkpoint,
    load_newest,
    load_variable,
    remove_checkpoint,
    step_of,
    update_checkpoint_state,
)
from lockstep.errors import ArgumentError, CheckpointError


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory of three checkpoints, 8, 9 and 10; `w` is ten times the step."""
    directory = tmp_path / "m"
    with CheckpointStore(directory) as store:
        for step in (8, 9, 10):
            store.save(step, {"w": np.full(1000, 10.0 * step)})
    return directory


def newest_step(directory: Path) -> int:
    found = load_newest(directory)
    assert found is not None
    assert (found.arrays["w"] == 10.0 * found.step).all()
    return found.step


def test_without_any(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        assert latest_checkpoint(path) is None
        assert load_newest(path) is None
        assert all_checkpoints(path) == []
    assert caplog.messages == []
    with pytest.raises(ArgumentError, match="Couldn't find 'checkpoint' file or checkpoints in given directory"):
        load_checkpoint(tmp_path)


def test_the_file_says_it(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert latest_checkpoint(directory) == f"{directory}/model.ckpt-10"
    assert all_checkpoints(directory) == [f"{directory}/model.ckpt-{step}" for step in (8, 9, 10)]
    assert newest_step(directory) == 10
    # To go back, a program (or a person) names an earlier one.
    update_checkpoint_state(directory, "model.ckpt-9")
    assert latest_checkpoint(directory) == f"{directory}/model.ckpt-9"
    assert newest_step(directory) == 9
    assert load_variable(directory, "w")[0] == 90
    assert [record.levelname for record in caplog.records if record.levelname == "WARNING"] == []


def test_without_the_file(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    (directory / "checkpoint").unlink()
    assert latest_checkpoint(directory) == f"{directory}/model.ckpt-10"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"{directory}/checkpoint is missing" in caplog.text
    assert newest_step(directory) == 10


def test_a_damaged_file(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    (directory / "checkpoint").write_bytes(b"\0\0\0")
    assert latest_checkpoint(directory) == f"{directory}/model.ckpt-10"
    assert f"{directory}/checkpoint cannot be read (line 1 is not" in caplog.text


def test_another_file(directory: Path) -> None:
    update_checkpoint_state(directory, "model.ckpt-8", latest_filename="best")
    assert latest_checkpoint(directory, "best") == f"{directory}/model.ckpt-8"


def test_what_is_named_is_missing(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    remove_checkpoint(directory / "model.ckpt-10")
    assert latest_checkpoint(directory) == f"{directory}/model.ckpt-9"
    assert f"{directory}/model.ckpt-10 is passed over: There is no checkpoint" in caplog.text
    assert newest_step(directory) == 9


def test_what_is_named_was_cut_off(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = directory / "model.ckpt-10.npz"
    file.write_bytes(file.read_bytes()[:5000])
    assert latest_checkpoint(directory) == f"{directory}/model.ckpt-9"
    assert (
        f"{directory}/model.ckpt-10 is passed over: {file} is not a usable checkpoint: it is no whole zip"
        in caplog.text
    )
    assert all_checkpoints(directory) == [f"{directory}/model.ckpt-8", f"{directory}/model.ckpt-9"]
    assert [name for name, _ in list_variables(directory)] == ["w"]


def test_wrong_values_are_passed_over_when_they_are_read(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in (9, 10):
        file = directory / f"model.ckpt-{step}.npz"
        data = bytearray(file.read_bytes())
        data[data.index(np.float64(10.0 * step).tobytes()) + 800] ^= 1
        file.write_bytes(data)
    assert newest_step(directory) == 8
    assert all(f"model.ckpt-{step} is passed over" in caplog.text for step in (9, 10))
    assert "checksum" in caplog.text


def test_nothing_is_good(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    for file in directory.glob("*.npz"):
        file.write_bytes(b"")
    assert latest_checkpoint(directory) is None
    assert load_newest(directory) is None
    assert caplog.text.count("is passed over") == 6


def test_steps_count_not_names_or_times(tmp_path: Path) -> None:
    with CheckpointStore(tmp_path, keep_max=None) as store:
        for step in (100, 9, 20):
            store.save(step, {})
    assert [step_of(prefix) for prefix in all_checkpoints(tmp_path)] == [9, 20, 100]
    assert latest_checkpoint(tmp_path) == f"{tmp_path}/model.ckpt-20"
    (tmp_path / "checkpoint").unlink()
    assert latest_checkpoint(tmp_path) == f"{tmp_path}/model.ckpt-100"


def test_absolute_paths_are_read(directory: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "checkpoint").write_text(f'model_checkpoint_path: "{directory}/model.ckpt-9"\n')
    assert latest_checkpoint(other) == f"{directory}/model.ckpt-9"
    assert newest_step(other) == 9


def test_a_directory_can_be_copied_and_continued(directory: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere" / "copy"
    shutil.copytree(directory, copy)
    with CheckpointStore(copy, keep_max=3) as store:
        store.save(11, {"w": np.full(1000, 110.0)})
    assert newest_step(copy) == 11
    assert [step_of(prefix) for prefix in all_checkpoints(copy)] == [9, 10, 11]
    assert [step_of(prefix) for prefix in all_checkpoints(directory)] == [8, 9, 10]
    shutil.rmtree(directory)
    copy.rename(directory)
    assert latest_checkpoint(directory) == f"{directory}/model.ckpt-11"


def test_paths_are_as_they_were_given(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(directory.parent)
    assert latest_checkpoint("m") == "m/model.ckpt-10"
    assert latest_checkpoint("./m/") == "./m/model.ckpt-10"
    assert all_checkpoints(Path("m"))[0] == "m/model.ckpt-8"
    state = get_checkpoint_state("m")
    assert state is not None
    assert state.model_checkpoint_path == "m/model.ckpt-10"
    monkeypatch.chdir(directory)
    assert latest_checkpoint("") == "model.ckpt-10"
    with CheckpointStore("") as store:
        assert store.save(11, {}) == "model.ckpt-11"
    assert latest_checkpoint(".") == "./model.ckpt-11"


def test_names_of_checkpoints(directory: Path) -> None:
    prefix = str(directory / "model.ckpt-9")
    assert step_of(prefix) == step_of(f"{prefix}.npz") == 9
    assert checkpoint_exists(prefix)
    assert not checkpoint_exists(directory / "model.ckpt-11")
    remove_checkpoint(prefix)
    remove_checkpoint(prefix)
    assert not checkpoint_exists(prefix)
    times = get_checkpoint_mtimes([prefix, directory / "model.ckpt-10"])
    assert times == [(directory / "model.ckpt-10.npz").stat().st_mtime]


@pytest.mark.parametrize("name", ["model.ckpt", "model.ckpt-", "model-1.ckpt", "7", "", "a-1\n", "a-" + "9" * 5000])
def test_names_without_a_step(name: str) -> None:
    with pytest.raises(ArgumentError, match="name ends with its step"):
        step_of(name)


@pytest.mark.parametrize("path", ["gs://bucket/model", "s3://b", "hdfs://host/x"])
def test_other_storage_is_refused(path: str) -> None:
    for use in (latest_checkpoint, load_newest, CheckpointStore, list_variables, get_checkpoint_state):
        with pytest.raises(ArgumentError, match=r"Checkpoints lie in a file system.*Mount"):
            use(path)


def test_what_is_no_path() -> None:
    with pytest.raises(ArgumentError, match="named by a path, not by 5"):
        latest_checkpoint(5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no null characters"):
        load_newest("a\0b")
    with pytest.raises(CheckpointError, match=r"cannot be read: .*name too long"):
        all_checkpoints("a" * 5000)


def test_a_file_instead_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert latest_checkpoint(tmp_path / "f") is None
    with pytest.raises(CheckpointError, match="There is no checkpoint"):
        load_checkpoint(tmp_path / "f")
