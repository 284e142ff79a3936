"""`lockstep.launch`: functions of a notebook travel as source, results come back, and nothing stays behind."""

from __future__ import annotations

import linecache
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lockstep as ls
from lockstep._notebook.launch import script_text
from lockstep._notebook.source import program_of
from lockstep._notebook.values import load, save
from lockstep.errors import ArgumentError, LaunchError
from tests.launch.staging import eventually
from tests.support.cluster import environment


class Notebook:
    """Cells, defined as IPython does: code under a name of its own, the text kept for tracebacks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.module = ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", self.module)
        self._cells = 0

    def cell(self, text: str) -> None:
        self._cells += 1
        text, name = textwrap.dedent(text), f"<cell {id(self)} {self._cells}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        exec(compile(text, name, "exec"), vars(self.module))

    def __getitem__(self, name: str) -> Any:
        return getattr(self.module, name)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    return Notebook(monkeypatch)


CELLS = """
import functools
import math as m
from pathlib import Path
import numpy as np

RATE = 0.5
TABLE = np.arange(3)
settings = {"units": [1, (2, 3)]}
unused = open

def twice(function):
    @functools.wraps(function)
    def call(*args):
        return 2 * function(*args)
    return call

class Base:
    def name(self):
        return "base"

class Model(Base):
    size = RATE

    @property
    def area(self):
        return m.floor(RATE * 10) * TABLE.sum()

@twice
def area(model):
    return model.area + len(settings["units"])

def train(count, scale=RATE):
    local = [area(Model()) for _ in range(count)]
    return {"areas": local, "scale": scale, "table": TABLE * 2, "name": Model().name(), "path": str(Path("a"))}
"""


def run_script(program: Any, function: str, *args: Any, directory: Path) -> Any:
    """Runs a script alone, as a task would."""
    save(directory / "input.npz", (program.values, args, {}), "arguments")
    (directory / "script.py").write_text(script_text(program, function, directory))
    task = '{"task": {"type": "worker", "index": 0}}'
    subprocess.run(
        [sys.executable, str(directory / "script.py")],
        check=True,
        timeout=180,
        env=environment(has_packages=True, TF_CONFIG=task),
    )
    return load(directory / "result.npz")


@pytest.mark.slow
def test_a_function_brings_along_what_it_uses_and_nothing_else(notebook: Notebook, tmp_path: Path) -> None:
    notebook.cell(CELLS)
    program = program_of(notebook["train"])
    assert sorted(program.values) == ["RATE", "TABLE", "settings"]
    assert "unused" not in program.text() and "import math as m" in program.text()
    found = run_script(program, "train", 2, directory=tmp_path)
    assert found == {**notebook["train"](2), "table": found["table"]}
    np.testing.assert_array_equal(found["table"], [0, 2, 4])


def test_what_cannot_travel_is_refused_by_name(notebook: Notebook) -> None:
    notebook.cell(
        """
        import threading
        lock = threading.Lock()
        def outer():
            def inner():
                pass
            return inner
        nested = outer()
        short = lambda: 1
        def locked():
            with lock:
                pass
        class Bare:
            pass
        def bare():
            return Bare()
        """
    )
    for name, words in {
        "locked": "locked, which uses 'lock', a lock",
        "nested": "outside of other functions",
        "short": "lambda",
        "bare": "Bare",
    }.items():
        with pytest.raises(ArgumentError, match=words):
            program_of(notebook[name])
    with pytest.raises(ArgumentError, match="without calling it"):
        program_of(3)  # type: ignore[arg-type]


def test_functions_of_modules_are_imported() -> None:
    assert "from textwrap import dedent as dedent" in program_of(textwrap.dedent).text()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda each: (
        st.lists(each, max_size=3)
        | st.tuples(each, each)
        | st.dictionaries(st.text(max_size=4) | st.integers(), each, max_size=3)
    ),
    max_leaves=8,
)


@given(PLAIN)
def test_values_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.mktemp("values") / "value.npz"
    save(path, value, "it")
    found = load(path)
    assert found == value and repr(found) == repr(value)


def test_values_of_other_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="the result of f, which holds a object"):
        save(tmp_path / "a", {"x": [object()]}, "the result of f")
    with pytest.raises(ArgumentError, match="ndarray"):
        save(tmp_path / "a", np.array([object()]), "it")


def test_arguments_are_checked_before_anything_starts(notebook: Notebook) -> None:
    notebook.cell("def nothing():\n    pass\n")
    for wrong in ({"workers": 0}, {"workers": 1, "timeout": 0}, {"workers": 1, "max_restarts": -1}):
        with pytest.raises(ArgumentError):
            ls.launch(notebook["nothing"], **wrong)


@pytest.mark.cluster
def test_results_output_and_errors_come_to_the_cell(
    notebook: Notebook, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    notebook.cell(
        """
        import json, os
        def place(word, times=1):
            index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
            print("here is", index)
            if word == "fail" and index == 1:
                raise OSError("no disk")
            return word * times, index
        """
    )
    assert ls.launch(notebook["place"], workers=2, args=["a"], kwargs={"times": 3}, timeout=400) == ("aaa", 0)
    shown = capsys.readouterr().out
    assert "[worker 0] here is 0" in shown and "[worker 1] here is 1" in shown
    with pytest.raises(LaunchError, match="worker 1 failed first: OSError: no disk"):
        ls.launch(notebook["place"], workers=2, args=["fail"], timeout=400)
    assert 'raise OSError("no disk")' in capsys.readouterr().out


WAIT = """
import os, time
def wait(directory):
    open(os.path.join(directory, str(os.getpid())), "w").close()
    time.sleep(300)
"""


def _alive(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if Path("/proc", path.name).exists()]


@pytest.mark.cluster
@pytest.mark.timed
@pytest.mark.parametrize("how", ["timeout", "interrupt"])
def test_no_worker_stays_when_the_time_is_over_or_the_cell_is_interrupted(
    notebook: Notebook, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    notebook.cell(WAIT)
    if how == "interrupt":
        threading.Thread(target=_interrupt_when_two, args=(tmp_path,), daemon=True).start()
    expected: type[BaseException] = LaunchError if how == "timeout" else KeyboardInterrupt
    with pytest.raises(expected):
        ls.launch(notebook["wait"], workers=2, args=[str(tmp_path)], timeout=45 if how == "timeout" else 400)
    assert len(list(tmp_path.iterdir())) == 2 and not _alive(tmp_path)


def _interrupt_when_two(directory: Path) -> None:
    until = time.monotonic() + 300
    while len(list(directory.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.cluster
@pytest.mark.timed
def test_workers_go_with_a_kernel_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "kernel.py"
    marks = tmp_path / "marks"
    marks.mkdir()
    program.write_text(f"import lockstep as ls\n{WAIT}\nls.launch(wait, workers=2, args=[{str(marks)!r}])\n")
    kernel = subprocess.Popen(
        [sys.executable, str(program)], env=environment(has_packages=True), stdout=subprocess.DEVNULL
    )
    try:
        eventually(lambda: len(list(marks.iterdir())) == 2, "both workers are there", 300)
    finally:
        kernel.kill()
        kernel.wait()
    eventually(lambda: not _alive(marks), "no worker is there")
