"""Modules that are not there yet, and Keras with them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep._runtime.stand_in import Contents, Finder, StandIn
from tests.runtime.jobs import Job

_MODULE = """
class Table:
    kind = "wood"
    def __init__(self, legs):
        self.legs = legs

class Desk(Table):
    pass

def twice(function):
    return lambda *a: 2 * function(*a)

number = 7
"""


@pytest.fixture
def furniture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A stand-in for the package `furniture`, with a module in it."""
    (tmp_path / "furniture").mkdir()
    (tmp_path / "furniture" / "__init__.py").write_text(_MODULE)
    (tmp_path / "furniture" / "lamps.py").write_text("bright = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    known = Contents(types=("Table",), parts=("lamps",), decorators=("twice",))
    yield StandIn("furniture", known)
    for name in ("furniture", "furniture.lamps"):
        sys.modules.pop(name, None)


def _is_imported() -> bool:
    return not isinstance(sys.modules.get("furniture", StandIn("", Contents())), StandIn)


def test_asking_for_types_imports_nothing(furniture: Any) -> None:
    assert not isinstance(3, furniture.Table)
    assert not isinstance("text", (bytes, furniture.Table))
    assert not issubclass(int, furniture.Table)
    assert issubclass(kept := furniture.Table, kept)
    assert furniture.lamps
    assert furniture.twice(len)
    assert not _is_imported()


def test_types_become_the_real_ones(furniture: Any) -> None:
    before = furniture.Table
    real = importlib.import_module("furniture")
    table = real.Table(4)
    assert isinstance(table, before)
    assert isinstance(real.Desk(3), before)
    assert issubclass(real.Desk, before)
    assert not isinstance(4, before)
    assert furniture.Table is real.Table


def test_using_a_type_imports_it(furniture: Any) -> None:
    kept = furniture.Table
    table = kept(4)
    assert table.legs == 4
    assert type(table) is sys.modules["furniture"].Table
    assert kept.kind == "wood"


def test_any_other_attribute_imports_the_module(furniture: Any) -> None:
    assert furniture.number == 7
    assert _is_imported()
    with pytest.raises(AttributeError, match="nothing"):
        _ = furniture.nothing


def test_what_was_decorated_is_decorated_when_it_is_called(furniture: Any) -> None:
    double = furniture.twice(len)
    assert double.__name__ == "len"
    assert not _is_imported()
    assert double("abc") == 6
    assert _is_imported()


def test_a_stand_in_in_the_list_of_modules_gives_way(furniture: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "furniture", furniture)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    from furniture import lamps as part  # pyright: ignore[reportMissingImports]

    assert isinstance(part, StandIn)
    assert part.bright
    assert _is_imported()


def test_modules_in_it_can_be_imported(furniture: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "furniture", furniture)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    assert importlib.import_module("furniture.lamps").bright
    assert _is_imported()
    assert sys.modules["furniture"].lamps.bright  # type: ignore[attr-defined]


_KERAS = """
import os
import sys
import lockstep, keras
heavy = ["pandas", "scipy", "h5py", "cv2", "jax.experimental.sparse", "jax.experimental.pallas"]
assert not set(heavy) & set(sys.modules), set(heavy) & set(sys.modules)
assert not any(type(finder).__module__.startswith("lockstep") for finder in sys.meta_path)
import gc
assert gc.isenabled() and not gc.get_freeze_count()

import numpy as np
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile(loss="mse", optimizer="sgd")
strategy = lockstep.distribute.MirroredStrategy()
model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
assert "pandas" not in sys.modules

import pandas as pd
assert type(pd).__name__ == "module" and pd.DataFrame.__module__.startswith("pandas")
frame = pd.DataFrame(np.ones((4, 2), np.float32))
assert model.predict(frame, verbose=0).shape == (4, 1)
assert model.fit(frame, pd.Series(np.ones(4, np.float32)), verbose=0)

import jax.experimental.sparse as sparse
two = sparse.BCOO.fromdense(np.eye(2, dtype=np.float32))
total = keras.ops.add(two, two)
assert isinstance(total, sparse.BCOO), type(total)
assert np.array_equal(total.todense(), 2 * np.eye(2))
assert np.array_equal(keras.ops.matmul(two, np.ones((2, 2), np.float32)), np.ones((2, 2)))
assert keras.ops.is_tensor(two) and keras.backend.is_keras_tensor(two) is False

path = os.path.join(os.path.dirname(__file__), "model.keras")
model.save(path)
assert "h5py" in sys.modules
assert keras.models.load_model(path).predict(frame, verbose=0).shape == (4, 1)
print("done")
"""


def test_keras_works_as_ever(job: Job) -> None:
    task = job.start(_KERAS)
    assert task.wait() == 0, task.err
    assert task.out == "done\n"
