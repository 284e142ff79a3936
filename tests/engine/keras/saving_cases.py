"""Programs in which several workers save to one path, and callbacks that write."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
from keras import layers

import lockstep as ls
from tests.engine.keras.behaviours import _data, _failure, _index

# Of the arrays of `_model`, in every file of its weights.
_SHAPES = {(6, 8), (8,), (8, 3), (3,)}


def _is_whole(path: Path) -> bool:
    """Tells whether a path holds nothing, or all that a save writes."""
    if not path.exists():
        return True
    try:
        if path.is_dir():
            files = {"config.json", "metadata.json"}
            return files <= set(os.listdir(path)) and _shapes(path / "model.weights.h5") >= _SHAPES
        if path.suffix == ".keras":
            with zipfile.ZipFile(path) as archive:
                return archive.testzip() is None
        parts = path.parent.glob("*.weights.h5") if path.suffix == ".json" else [path]
        return set[tuple[int, ...]]().union(*map(_shapes, parts)) >= _SHAPES
    except (OSError, zipfile.BadZipFile):
        return False


def _shapes(path: Path) -> set[tuple[int, ...]]:
    """Returns the shapes of the arrays in a file; one process may read what another is writing."""
    found = set[tuple[int, ...]]()

    def note(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found.add(item.shape)

    with h5py.File(path) as file:
        file.visititems(note)
    return found


class Watching(layers.Dense):
    """A layer that looks, while it is being saved, at what readers of the path would see now."""

    path: Path | None = None
    seen: list[bool]

    def save_own_variables(self, store: Any) -> None:
        self._look()
        super().save_own_variables(store)

    def get_config(self) -> dict[str, Any]:
        self._look()  # All that is asked of a layer while it is written as HDF5.
        return super().get_config()

    def _look(self) -> None:
        if Watching.path is not None:
            Watching.seen.append(_is_whole(Watching.path))


_NAMES = {
    "keras": "model.keras",
    "directory": "model",
    "hdf5": "model.h5",
    "weights": "model.weights.h5",
    "shards": "model.weights.json",
    "function": "model.keras",
}


def _save(form: str, model: Any, path: Path) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "keras": lambda: model.save(path),
        "directory": lambda: model.save(path, zipped=False),
        "hdf5": lambda: model.save(str(path)),
        "weights": lambda: model.save_weights(path),
        "shards": lambda: model.save_weights(path, max_shard_size=2.5e-7),
        "function": lambda: keras.saving.save_model(model, str(path)),
    }
    calls[form]()


def _model(strategy: Any, **compile: Any) -> Any:
    keras.utils.set_random_seed(5)
    keras.backend.clear_session()
    with strategy.scope():
        model = keras.Sequential([keras.Input((6,)), Watching(8), Watching(3)])
        model.compile(**{"optimizer": "sgd", "loss": "mse", **compile})
    return model


def saves(strategy: Any, directory: str, form: str) -> dict[str, np.ndarray]:
    """All workers save to one path, three times."""
    path = Path(directory) / _NAMES[form]
    model = _model(strategy)
    Watching.path, Watching.seen = path, []
    for _ in range(3):
        _save(form, model, path)
    Watching.path = None
    seen = list(Watching.seen)
    model.predict(np.zeros((4, 6), "float32"), verbose=0)  # All have saved.
    if form not in ("weights", "shards"):
        loaded = keras.models.load_model(path, custom_objects={"Watching": Watching}, compile=False)
    else:
        loaded = _model(strategy)
        loaded.load_weights(path)
    same = [np.array_equal(a, b) for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True)]
    return {"seen": np.asarray(seen), "same": np.asarray(same), "files": np.asarray(sorted(os.listdir(directory)))}


def exports(strategy: Any, directory: str) -> dict[str, np.ndarray]:
    """All workers export to one directory, in which there is a file of somebody else's."""
    import keras.src.export as exporters

    path = Path(directory) / "exported"
    path.mkdir(exist_ok=True)
    (path / "notes.txt").write_text("mine")
    seen: list[list[str]] = []

    def export_saved_model(model: Any, filepath: Any, *_: Any, **__: Any) -> None:
        (Path(filepath) / "variables").mkdir(parents=True)
        (Path(filepath) / "variables" / "data").write_text("values")
        seen.append(sorted(os.listdir(path)))
        (Path(filepath) / "saved_model.pb").write_text("program")

    before = exporters.export_saved_model
    exporters.export_saved_model = export_saved_model
    try:
        model = _model(strategy)
        for _ in range(2):
            model.export(path)
    finally:
        exporters.export_saved_model = before
    model.predict(np.zeros((4, 6), "float32"), verbose=0)
    found = {str(f.relative_to(path)): f.read_text() for f in path.rglob("*") if f.is_file()}
    return {
        "found": np.asarray(sorted(found.items())),
        "half": np.asarray([names for names in seen if "variables" in names and "saved_model.pb" not in names]),
        "left": np.asarray(sorted(os.listdir(directory))),
    }


def one_saves(strategy: Any, directory: str) -> dict[str, np.ndarray]:
    """The chief saves alone, and nobody waits for anybody."""
    model = _model(strategy)
    path = Path(directory) / "chief.keras"
    if strategy.is_chief:
        model.save(path)
    return {"is_chief": np.asarray(strategy.is_chief), "saved": np.asarray(strategy.is_chief and path.exists())}


def cannot_save(strategy: Any, directory: str) -> dict[str, np.ndarray]:
    """The directory is not there."""
    found = _failure(lambda: _model(strategy).save(Path(directory) / "missing" / "model.keras"))
    return found | {"files": np.asarray(os.listdir(directory))}


class Writes(keras.callbacks.Callback):
    """A callback of somebody else's: writes a file, and has a state."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.epochs = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs += 1
        with self.path.open("a") as file:
            file.write(f"{epoch} {self.params['epochs']} {sorted(logs)} {self.model.count_params()}\n")

    def get_state(self) -> dict[str, int]:
        return {"epochs": self.epochs}

    def set_state(self, state: dict[str, int]) -> None:
        self.epochs = state["epochs"]


class Stops(keras.callbacks.Callback):
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = epoch == 1


def writes_on_chief(strategy: Any, directory: str) -> dict[str, np.ndarray]:
    """A callback that writes runs on the chief only; its state is kept; and it may stop all."""
    x, y = _data()
    lines = Path(directory) / "lines.txt"
    writes = Writes(lines)

    def backup() -> Any:
        return ls.callbacks.BackupAndRestore(Path(directory) / "backup", delete_checkpoint=False)

    model = _model(strategy)
    model.fit(x, y[:, None], epochs=2, verbose=0, callbacks=[ls.callbacks.OnChief(writes), backup()])
    restored = Writes(lines)
    model = _model(strategy)
    callbacks = [ls.callbacks.OnChief(restored), ls.callbacks.OnChief(Stops()), backup()]
    model.fit(x, y[:, None], epochs=3, verbose=0, callbacks=callbacks)
    stopped = _model(strategy).fit(x, y[:, None], epochs=5, verbose=0, callbacks=[ls.callbacks.OnChief(Stops())])
    return {
        "index": np.asarray(_index(strategy)),
        "epochs": np.asarray([writes.epochs, restored.epochs]),
        "stopped": np.asarray(len(stopped.epoch)),
        "lines": np.asarray(lines.read_text().splitlines() if strategy.is_chief else []),
    }
