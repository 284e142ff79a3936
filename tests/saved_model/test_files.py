"""The files of an export: written whole or not at all, damaged, made to do harm, and read while others write."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockstep import saved_model
from lockstep.errors import ArgumentError, CheckpointError, LockstepError
from lockstep.saved_model import SignatureFunction, _directories
from tests.saved_model.models import MLP, mlp_inputs, mlp_variables, spec

FUNCTIONS = {"serving_default": MLP}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("exported") / "model"
    saved_model.write(directory, FUNCTIONS, mlp_variables())
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture
def model_dir(tmp_path: Path, exported: dict[str, bytes]) -> Path:
    for name, data in exported.items():
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "model"


def test_what_is_there(model_dir: Path) -> None:
    names = sorted(str(p.relative_to(model_dir)) for p in model_dir.rglob("*") if p.is_file())
    assert names == ["programs/serving_default.jax", "saved_model.json", "variables.npz"]
    assert saved_model.contains_saved_model(model_dir)
    assert saved_model.maybe_saved_model_directory(str(model_dir))
    assert not saved_model.contains_saved_model(model_dir.parent)
    document = json.loads((model_dir / "saved_model.json").read_text())
    signature = document["signatures"]["serving_default"]
    assert signature["inputs"] == {"x": {"shape": [None, 4], "dtype": "float32"}}
    assert signature["programs"][0]["platforms"] == ["cpu", "cuda", "tpu"]
    assert signature["outputs"]["class"]["shape"] == [None]


def test_nothing_says_where_it_was_made(exported: dict[str, bytes]) -> None:
    for name, data in exported.items():
        for place in (str(Path(__file__).parents[2]), sys.prefix, "site-packages", Path(__file__).name, "models.py"):
            assert place.encode() not in data, (name, place)


def test_a_used_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    saved_model.write(tmp_path / "empty", FUNCTIONS, mlp_variables())
    with pytest.raises(ArgumentError, match="needs a directory of its own"):
        saved_model.write(tmp_path / "empty", FUNCTIONS, mlp_variables())
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError, match="needs a directory of its own"):
        saved_model.write(tmp_path / "file", FUNCTIONS, mlp_variables())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "file"]


@pytest.mark.parametrize("functions", [{}, {"": MLP}, {1: MLP}])
def test_signatures_have_names(tmp_path: Path, functions: Any) -> None:
    with pytest.raises(ArgumentError):
        saved_model.write(tmp_path / "e", functions, mlp_variables())
    assert list(tmp_path.iterdir()) == []


def test_assets_are_copied(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("a\nb\n")
    assets = {"words.txt": str(tmp_path / "words"), "more/w": tmp_path / "words"}
    directory = saved_model.write(tmp_path / "e", FUNCTIONS, mlp_variables(), assets)
    assert (tmp_path / "e/assets.extra/more/w").read_text() == "a\nb\n"
    assert saved_model.load(directory).assets == {n: f"{directory}/assets.extra/{n}" for n in ("more/w", "words.txt")}


@pytest.mark.parametrize(
    ("assets", "message"),
    [
        ({"../w": __file__}, "relative path inside of the export. Received: '../w'"),
        ({"/w": __file__}, "Received: '/w'"),
        ({"w": "/nowhere"}, "Received for 'w': /nowhere, no file"),
    ],
)
def test_assets_are_files_and_stay_inside(tmp_path: Path, assets: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        saved_model.write(tmp_path / "e", FUNCTIONS, mlp_variables(), assets)
    assert list(tmp_path.iterdir()) == []


def test_programs_as_text(tmp_path: Path) -> None:
    saved_model.write(tmp_path / "e", FUNCTIONS, mlp_variables(), as_text=True)
    text = (tmp_path / "e/programs/serving_default.mlir").read_text()
    assert "stablehlo.dot_general" in text
    assert saved_model.load(tmp_path / "e")(x=mlp_inputs(1))["class"].shape == (1,)


def test_names_that_no_file_may_have(tmp_path: Path) -> None:
    twice = SignatureFunction(lambda v, i: {"y": i["x"] * 2}, {"x": spec(None)})
    thrice = SignatureFunction(lambda v, i: {"y": i["x"] * 3}, {"x": spec(None)})
    saved_model.write(tmp_path / "e", {"../../up": twice, "../..\\up": thrice, "UP": thrice, "ä" * 300: twice}, {})
    model = saved_model.load(tmp_path / "e")
    assert [model.signatures[n](x=[1.0])["y"][0] for n in model.signatures] == [2, 3, 3, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["e"]


def test_versions_are_times_unique_and_ascending(tmp_path: Path) -> None:
    before = int(time.time())
    made = [Path(_directories.create_version(tmp_path, lambda d: (d / "f").touch())) for _ in range(5)]
    numbers = [int(path.name) for path in made]
    assert numbers == sorted(set(numbers))
    assert before <= numbers[0] <= int(time.time())
    assert [len(path.name) for path in made] == [10] * 5
    assert _directories.versions(tmp_path) == made


def test_versions_stay_ascending_when_the_clock_goes_back(tmp_path: Path) -> None:
    (tmp_path / "4000000000").mkdir()
    (tmp_path / "not a version").mkdir()
    (tmp_path / "5000000000").touch()
    assert _directories.create_version(tmp_path, lambda d: (d / "f").touch()).endswith("4000000001")


def test_versions_by_several_at_once(tmp_path: Path) -> None:
    def fill(directory: Path) -> None:
        (directory / "f").touch()

    threads = [threading.Thread(target=lambda: _directories.create_version(tmp_path, fill)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(_directories.versions(tmp_path)) == 8
    assert all((path / "f").exists() for path in _directories.versions(tmp_path))


def test_write_version(tmp_path: Path) -> None:
    directory = saved_model.write_version(tmp_path / "new" / "base", FUNCTIONS, mlp_variables())
    assert [str(p) for p in _directories.versions(tmp_path / "new" / "base")] == [directory]
    assert saved_model.load(directory)(x=mlp_inputs(2))["class"].shape == (2,)
    second = saved_model.write_version(os.fsencode(tmp_path / "new" / "base"), FUNCTIONS, mlp_variables())
    assert saved_model.maybe_saved_model_directory(os.fsencode(second))
    assert saved_model.load(os.fsencode(second)).directory == second > directory


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    def fill(directory: Path) -> None:
        (directory / "half").touch()
        raise OSError("disk full")

    with pytest.raises(CheckpointError, match=f"An export in {tmp_path} could not be written: disk full"):
        _directories.create_version(tmp_path, fill)
    assert list(tmp_path.iterdir()) == []


_KILLED = """
import os, pathlib, signal, sys
from lockstep.saved_model import _directories
def fill(directory):
    (directory / "half").touch()
    print("writing", flush=True)
    signal.pause()
_directories.create_version(sys.argv[1], fill)
"""


@pytest.mark.slow
def test_who_is_killed_leaves_no_half_export_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _KILLED, str(tmp_path)], stdout=subprocess.PIPE, env=os.environ)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    assert _directories.versions(tmp_path) == []
    first = _directories.create_version(tmp_path, lambda d: (d / "f").touch())
    assert len(list(tmp_path.iterdir())) == 2, "what another one is writing must stay"
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    process.stdout.close()
    second = _directories.create_version(tmp_path, lambda d: (d / "f").touch())
    assert sorted(map(str, tmp_path.iterdir())) == [first, second]


def test_loading_while_exports_appear_and_vanish(tmp_path: Path, exported: dict[str, bytes]) -> None:
    """A server that always loads the newest version sees whole ones only."""

    def fill(directory: Path) -> None:
        for name, data in exported.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_bytes(data)

    stop, goes_on = threading.Event(), threading.Event()
    goes_on.set()

    def write() -> None:
        while not stop.is_set():
            _directories.create_version(tmp_path, fill)
            for old in _directories.versions(tmp_path)[:-3]:
                _directories.remove(old)
            goes_on.wait(60)

    _directories.create_version(tmp_path, fill)
    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen: set[str] = set()
        while len(seen) < 8:
            newest = _directories.versions(tmp_path)[-1]
            try:
                model = saved_model.load(newest)
            except ArgumentError:
                # It may be gone again, but it was not half there.
                assert not newest.exists()
                goes_on.clear()  # The writer may be so much faster that no version ever stays for long enough.
            else:
                seen.add(model.directory)
                goes_on.set()
    finally:
        stop.set()
        goes_on.set()
        thread.join(60)
    assert model(x=mlp_inputs(1))["class"].shape == (1,)


@pytest.mark.parametrize("name", ["variables.npz", "programs/serving_default.jax"])
@pytest.mark.parametrize("change", ["cut", "flip", "gone"])
def test_a_damaged_file_is_named(model_dir: Path, name: str, change: str) -> None:
    path = model_dir / name
    data = bytearray(path.read_bytes())
    if change == "gone":
        path.unlink()
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data[:-1] if change == "cut" else data))
    with pytest.raises(ArgumentError, match=f"{model_dir} is not a usable export: its file {name} "):
        saved_model.load(model_dir)


def test_no_export(tmp_path: Path, model_dir: Path) -> None:
    with pytest.raises(ArgumentError, match="there is no such directory"):
        saved_model.load(tmp_path / "nowhere")
    with pytest.raises(ArgumentError, match=f"there are exports in it, the newest is {model_dir}"):
        saved_model.load(tmp_path)
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ArgumentError, match="made by TensorFlow"):
        saved_model.load(tmp_path)


def _edit(model_dir: Path, edit: Any) -> None:
    path = model_dir / "saved_model.json"
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.update(version=2), "it is of version 2, and this lockstep reads version 1"),
        (lambda d: d.update(format="x"), "its format is 'x'"),
        (lambda d: d.pop("signatures"), "the document lacks 'signatures'"),
        (lambda d: d["signatures"]["serving_default"].update(inputs=[]), r"inputs is \[\], which is no dict"),
        (lambda d: d["signatures"]["serving_default"]["inputs"]["x"].update(dtype="float99"), "which is no dtype"),
        (lambda d: d["signatures"]["serving_default"]["inputs"]["x"].update(shape=[-1]), "is negative"),
        (lambda d: d["signatures"]["serving_default"]["programs"][0].update(file="a"), "a is not among its files"),
        (lambda d: d["signatures"]["serving_default"].update(programs=[]), "no program for 1 examples"),
        (lambda d: d["files"].update({"../../etc/passwd": {"size": 1, "sha256": ""}}), "no file of an export"),
        (lambda d: d["files"].pop("variables.npz"), "variables.npz is not among its files"),
        (lambda d: d["variables"].pop("dense/bias"), "dense/bias.npy is there and not described"),
        (lambda d: d["variables"]["dense/bias"].update(dtype="string"), "dense/bias/dtype is 'string'"),
        (lambda d: d["variables"]["dense/bias"].update(shape=[1]), r"dense/bias is .*, which is not float32\[1\]"),
    ],
)
def test_a_description_that_is_wrong_is_refused(model_dir: Path, edit: Any, message: str) -> None:
    _edit(model_dir, edit)
    with pytest.raises(ArgumentError, match=message):
        saved_model.load(model_dir)(x=mlp_inputs(1))


def _replaced(model_dir: Path, name: str, data: bytes) -> None:
    """A file that is not what it says, with the right digest."""
    (model_dir / name).write_bytes(data)
    info = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    _edit(model_dir, lambda d: d["files"].update({name: info}))


def test_pickles_are_not_loaded(model_dir: Path) -> None:
    class Harm:
        def __reduce__(self) -> Any:
            return os.abort, ()

    array = np.empty(1, object)
    array[0] = Harm()
    with (model_dir / "harm.npz").open("wb") as file:
        np.savez(file, **{"dense/kernel": array})  # pyright: ignore[reportArgumentType]
    _replaced(model_dir, "variables.npz", (model_dir / "harm.npz").read_bytes())
    with pytest.raises(ArgumentError, match="its variables cannot be read"):
        saved_model.load(model_dir)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_files_hold_the_error_is_ours(
    model_dir: Path, exported: dict[str, bytes], data: st.DataObject
) -> None:
    """Also with digests that fit. Programs are left out: they are read by jax, whose reader of StableHLO is C++."""
    for name, content in exported.items():
        (model_dir / name).write_bytes(content)
    name = data.draw(st.sampled_from(["variables.npz", "saved_model.json"]))
    content = bytearray(exported[name])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))]
    if name == "saved_model.json":
        (model_dir / name).write_bytes(bytes(content))
    else:
        _replaced(model_dir, name, bytes(content))
    try:
        saved_model.load(model_dir)
    except LockstepError as error:
        assert "is not a usable export" in str(error)


def test_a_program_that_is_none_is_named(model_dir: Path) -> None:
    for data in (b"", b"no program", bytes(200)):
        _replaced(model_dir, "programs/serving_default.jax", data)
        with pytest.raises(ArgumentError, match=r"its program programs/serving_default.jax is not understood"):
            saved_model.load(model_dir)
