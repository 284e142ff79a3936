"""Row 15: files and messages that would run code if they were unpickled, evaluated or unpacked."""

from __future__ import annotations

import ast
import io
import os
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from lockstep import checkpoint, errors, estimator, saved_model, summary
from lockstep._engine.runtime import authentication
from lockstep._engine.runtime.compile_cache import UnsafeDirectory, private_directory
from lockstep.checkpoint._names import file_of
from lockstep.data import TFRecordDataset
from lockstep.data._files.tfrecord import masked_crc
from lockstep.datasets import _location, _mnist
from lockstep.saved_model import _arrays

SOURCE = Path(__file__).resolve().parents[2] / "src" / "lockstep"
_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle", "yaml"}
_CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
_METHODS = {
    *("enable_unsafe_deserialization", "unsafe_load", "read_pickle", "to_pickle", "extractall", "extract", "mktemp"),
}
_OFF = {"allow_pickle": True, "safe_mode": False, "shell": True, "weights_only": False}
# Files of what it is about that may do so, and why.
JUSTIFIED = {"saved_model/_read.py": "read_variables runs no program of the export: it returns arrays alone"}


def _offences(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.split(".")[0] in _MODULES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Constant) and node.value in _MODULES:
            yield str(node.value)  # As in import_module("pickle").
        elif isinstance(node, ast.Call):
            yield from _called(node)


def _called(node: ast.Call) -> Iterator[str]:
    if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield node.func.id
    if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS:
        yield node.func.attr
    if ast.unparse(node.func) in ("os.system", "os.popen"):
        yield ast.unparse(node.func)
    for argument in node.keywords:
        if (
            argument.arg in _OFF
            and isinstance(argument.value, ast.Constant)
            and argument.value.value is _OFF[argument.arg]
        ):
            yield f"{argument.arg}={argument.value.value}"


@pytest.mark.slow
def test_15_no_module_unpickles_evaluates_or_unpacks() -> None:
    files = [p for p in sorted(SOURCE.rglob("*.py")) if not p.is_symlink()]
    assert len(files) > 300
    found = {str(p.relative_to(SOURCE)): sorted(_offences(p)) for p in files}
    assert {name: what for name, what in found.items() if what and name not in JUSTIFIED} == {}
    assert all(found[name] for name in JUSTIFIED), "a permission that nobody needs"


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from marshal import loads",
        "import importlib; importlib.import_module('dill')",
        "eval('1')",
        "import numpy; numpy.load('x', allow_pickle=True)",
        "import keras; keras.models.load_model('x', safe_mode=False)",
        "a.extractall('.')",
        "import os; os.system('ls')",
    ],
)
def test_15_the_check_finds_what_it_is_to_find(text: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(text)
    assert list(_offences(path))


class Evil:
    """Makes a directory when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = str(marker)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (self._marker,)


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[Path]:
    """What appears if a file runs code; the test makes sure that it would."""
    path = tmp_path / "it-has-run"
    array = io.BytesIO()
    np.save(array, _objects(path), allow_pickle=True)
    array.seek(0)
    np.load(array, allow_pickle=True)
    assert path.exists(), "the file would run code"
    path.rmdir()
    yield path
    assert not path.exists()


def _objects(marker: Path) -> np.ndarray[Any, Any]:
    array = np.empty(1, object)
    array[0] = Evil(marker)
    return array


def test_15_checkpoints(marker: Path, tmp_path: Path) -> None:
    prefix = str(tmp_path / "model.ckpt-1")
    store = checkpoint.CheckpointStore(str(tmp_path), "model.ckpt", 1)
    store.save(1, {"w": np.zeros(1)}, {})
    store.close()
    file = Path(file_of(prefix))
    plain = file.read_bytes()
    for replaced in ("w.npy", "metadata.json"):
        _replace(file, plain, replaced, _npy(marker))
        with pytest.raises(errors.CheckpointError):
            checkpoint.load_checkpoint(prefix).get_tensor("w")
        with pytest.raises(errors.CheckpointError):
            checkpoint.load_newest(str(tmp_path), strict=True)
    with file.open("wb") as opened:
        np.savez(opened, w=_objects(marker))
    with pytest.raises(errors.CheckpointError):
        checkpoint.load_checkpoint(prefix)


def _npy(marker: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, _objects(marker), allow_pickle=True)
    return file.getvalue()


def _replace(file: Path, plain: bytes, name: str, content: bytes) -> None:
    """Puts other bytes in the place of one member of an archive, checksums and all."""
    with zipfile.ZipFile(io.BytesIO(plain)) as before, zipfile.ZipFile(file, "w") as after:
        for member in before.namelist():
            after.writestr(member, content if member == name else before.read(member))


def test_15_exports(marker: Path) -> None:
    file = io.BytesIO()
    np.savez(file, w=_objects(marker))
    with pytest.raises(ValueError):
        _arrays.read(file.getvalue(), {"w": ((1,), np.dtype(np.float32))})


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_15_keras_files_with_functions_in_them(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    layer = keras.layers.Lambda(lambda x: x * 2)
    model = keras.Sequential([keras.Input((2,)), layer, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.save(path)
    with pytest.raises(ValueError, match=r"(?i)lambda|unsafe|arbitrary"):
        estimator.model_to_estimator(keras_model_path=str(path), model_dir=str(tmp_path / "dir"))
    from lockstep.compat.tensorflow import keras as compat_keras

    with pytest.raises(ValueError, match=r"(?i)lambda|unsafe|arbitrary"):
        compat_keras.models.load_model(str(path))


def test_15_data_sets_in_files(marker: Path) -> None:
    """Files of others are compared with a known checksum before; this is what comes after that."""
    names = ("x_train", "y_train", "x_test", "y_test")
    file = io.BytesIO()
    np.savez(file, **{name: _objects(marker) for name in names})
    with pytest.raises(ValueError, match="allow_pickle=False"):
        _mnist._from_npz(file.getvalue(), "a file")


def test_15_archives_are_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that lead elsewhere, links and devices stay in memory, or are passed over."""
    monkeypatch.chdir(tmp_path)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name in ("../outside", "/tmp/lockstep-outside", "inside"):
            member = tarfile.TarInfo(name)
            member.size = 4
            archive.addfile(member, io.BytesIO(b"evil"))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo(f"special-{kind!r}")
            member.type, member.linkname = kind, "/etc/passwd"
            archive.addfile(member)
    found = _location.read_members(content.getvalue(), lambda name: True, "an archive")
    assert set(found) == {"../outside", "/tmp/lockstep-outside", "inside"}
    assert not (tmp_path.parent / "outside").exists() and not Path("/tmp/lockstep-outside").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("length", [1 << 40, (1 << 64) - 1])
def test_15_records_that_claim_to_be_huge_take_no_memory(length: int, tmp_path: Path) -> None:
    header = struct.pack("<Q", length)
    content = header + struct.pack("<I", masked_crc(header)) + b"short"
    path = tmp_path / "records"
    path.write_bytes(content)
    with pytest.raises(errors.InputError):
        list(TFRecordDataset(str(path)).as_numpy_iterator())
    events = tmp_path / "events.out.tfevents.1"
    events.write_bytes(content)
    assert list(summary.read_events(events)) == []


def test_15_an_export_is_described_by_json_alone(tmp_path: Path) -> None:
    directory = tmp_path / "export"
    directory.mkdir()
    for name in ("lockstep_saved_model.json", "saved_model.pb", "saved_model.json"):
        (directory / name).write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(errors.LockstepError):
        saved_model.load(directory)


@pytest.mark.parametrize("data", [b"cos\nsystem\n(S'true'\ntR.\n", b'{"__reduce__": 1', b"[" * 100_000, b"9" * 10_000])
def test_15_lines_between_tasks_are_json_objects_or_nothing(data: bytes) -> None:
    assert authentication.parse(data) is None


def test_15_compiled_programs_lie_where_nobody_else_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_CACHE_DIR", str(tmp_path / "cache"))
    own = private_directory("compiled")
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o777)
    with pytest.raises(UnsafeDirectory):
        private_directory("compiled")
