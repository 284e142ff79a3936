"""`lockstep scan`: names through aliases, what there is for them, and import lines that change and nothing else."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lockstep._launch.cli import main
from lockstep._migrate import _scan_report
from lockstep._migrate._coverage import answer, names_of
from lockstep._migrate._imports import rewrite
from lockstep._migrate._scan import scan_path
from lockstep._migrate._uses import Scope, find_uses

PROGRAM = """\
# -*- coding: utf-8 -*-
import os, tensorflow as tf  # für alle
from tensorflow import keras
from tensorflow.keras.layers import (Dense,
                                     Flatten as Flat)
import tensorflow.compat.v1 as v1
import tensorflow_datasets as tfds

K = keras.backend
layers = tf.keras.layers


def make(layers=None, *, size: tf.DType = tf.float32):
    # `layers` is an argument here.
    return layers.Dense


class Model(tf.keras.Model):
    Dense = 3

    def call(self, x):
        return Dense(3)(x) + tf.no_such_name(x)


data = tfds.load("mnist")
print(tf.random.normal([1]), v1.Session(), layers.Conv2D(1, 2), K.epsilon())
"""


def names(code: str) -> list[str]:
    return [use.name for use in find_uses(ast.parse(code), Scope(), names_of)]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import tensorflow as tf\ntf.data.Dataset.range(3)", ["tf", "tf.data.Dataset.range"]),
        ("import tensorflow.keras.layers\ntensorflow.keras.layers.Dense", ["tf.keras.layers", "tf.keras.layers.Dense"]),
        ("import tensorflow.keras.layers as L\nL.Dense", ["tf.keras.layers", "tf.keras.layers.Dense"]),
        ("from tensorflow.keras import layers as L\nL.Dense", ["tf.keras.layers", "tf.keras.layers.Dense"]),
        ("from tensorflow.python.keras.layers import Dense", ["tf.keras.layers.Dense"]),
        ("import keras\nkeras.Model", ["keras", "keras.Model"]),
        ("import tensorflow as tf\nl = tf.keras.losses\nl.mse", ["tf", "tf.keras.losses", "tf.keras.losses.mse"]),
        # Bound twice: what it is then, only the running program knows.
        ("import tensorflow as tf\na = tf.abs\na = a(3)\na.numpy()", ["tf", "tf.abs"]),
        ("try:\n  import tensorflow as tf\nexcept ImportError:\n  tf = None\ntf.abs", ["tf", "tf.abs"]),
        ("import tensorflow as tf\ndef f(tf): return tf.abs", ["tf"]),
        ("import tensorflow as tf\ndef f(a=tf.abs): return lambda tf: tf.cos", ["tf", "tf.abs"]),
        ("import tensorflow as tf\nclass C:\n  x = tf.abs\n  def f(self): return x.y", ["tf", "tf.abs"]),
        ("def f():\n  import tensorflow as tf\n  return tf.abs\ntf.cos", ["tf", "tf.abs"]),
        ("import tensorflow as tf\nx = [tf.abs(i) for i in y]\ntf.a[0].b", ["tf", "tf.abs", "tf.a"]),
        ("from .tensorflow import keras\nkeras.Model\nfrom mine import tf\ntf.abs", []),
        ("import tensorflow_hub as hub\nhub.KerasLayer", ["tensorflow_hub", "tensorflow_hub.KerasLayer"]),
    ],
)
def test_names_are_followed(code: str, found: list[str]) -> None:
    assert names(code) == found


def test_everything_of_a_module_at_once() -> None:
    found = names("from tensorflow.keras.layers import *\nDense(3)\nNope(4)")
    assert found == ["tf.keras.layers", "tf.keras.layers.Dense"]


@pytest.mark.parametrize(
    ("name", "status", "advice"),
    [
        ("tf.keras.layers.Dense", "there", ""),
        ("tf.compat.v1.train.AdamOptimizer", "there", ""),
        ("tf.float32.max", "there", ""),
        ("keras.Model", "there", ""),
        ("tfds.load", "there", ""),
        ("tf.random.normal", "differs", "Other random numbers"),
        ("tf.compat.v1.disable_eager_execution", "differs", "changes nothing"),
        ("tf.Session", "missing", "There are no graphs and sessions"),
        ("tf.raw_ops.Add", "missing", "Use the function of tf"),
        ("tf.data.Dataset.no_such", "missing", "is not available"),
        ("tf.python.client.device_lib", "missing", "is internal to TensorFlow"),
        ("tf.python.no_such_module.thing", "missing", "internal to TensorFlow"),
        ("tf.python.framework.ops.convert_to_tensor", "there", ""),
        ("tf.python.training.session_run_hook.SessionRunHook", "there", ""),
        ("tf.python.util.nest", "there", ""),
        ("tf.feature_column.sequence_numeric_column", "missing", "raises an error"),
        ("tensorflow_hub.KerasLayer", "missing", "a package of its own"),
    ],
)
def test_answers_are_those_of_the_modules(name: str, status: str, advice: str) -> None:
    found = answer(name)
    assert found.status == status
    assert advice in found.advice


def test_checks_are_there_and_what_only_refuses_is_not() -> None:
    for name in ("tf.assert_equal", "tf.debugging.assert_shapes", "tf.keras.utils.text_dataset_from_directory"):
        assert answer(name).status != "missing"
    found = answer("tf.keras.utils.audio_dataset_from_directory")
    assert found.status == "missing"
    assert "sound is read" in found.advice


def test_a_program_in_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    (tmp_path / "other.py").write_text("print(1)\n")
    (scan,) = scan_path(tmp_path)
    assert scan.names("missing") == ["tf.no_such_name", "tf.compat.v1.Session"]
    assert scan.names("differs") == ["tf.random.normal"]
    assert scan.places["tf.keras.layers.Dense"] == ["4", "22"]
    assert scan.places["tf.keras.layers.Conv2D"] == ["26"]
    with pytest.raises(SystemExit) as ended:
        main(["scan", str(tmp_path)])
    assert ended.value.code == 1
    assert file.read_text() == PROGRAM, "without --write nothing is written"
    text = capsys.readouterr().out
    assert "1 file, different names: 14 there, 1 differ, 2 not there" in text
    assert f"tf.no_such_name ({file}:22): tf.no_such_name is not available." in text
    assert "+import os, lockstep.compat.tensorflow as tf  # für alle" in text


def test_import_lines_change_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "program.py"
    # Other line ends, and another mode, stay, too.
    file.write_bytes(PROGRAM.replace("\n", "\r\n").encode())
    file.chmod(0o755)
    with pytest.raises(SystemExit):
        main(["scan", "--write", "--json", str(file)])
    report = json.loads(capsys.readouterr().out)
    assert report["written"] is True
    assert report["sum"] == {"there": 14, "differs": 1, "missing": 2}
    before, after = PROGRAM.splitlines(), file.read_bytes().decode().split("\r\n")[:-1]
    assert [(i, line) for i, (old, line) in enumerate(zip(before, after, strict=True)) if old != line] == [
        (1, "import os, lockstep.compat.tensorflow as tf  # für alle"),
        (2, "from lockstep.compat.tensorflow import keras"),
        (3, "from lockstep.compat.tensorflow.keras.layers import (Dense,"),
        (5, "import lockstep.compat.tensorflow.compat.v1 as v1"),
        (6, "import lockstep.compat.tensorflow_datasets as tfds"),
    ]
    assert file.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import tensorflow", "import lockstep.compat.tensorflow as tensorflow"),
        ("import tensorflow.keras.layers", "import lockstep.compat.tensorflow as tensorflow"),
        ("import tensorflow.keras.backend as K", "import lockstep.compat.tensorflow.keras.backend as K"),
        ("from tensorflow.python.keras import layers", "from lockstep.compat.tensorflow.keras import layers"),
        ("from tensorflow.python.framework import ops", "from lockstep.compat.tensorflow.python.framework import ops"),
        ("import tensorflow.python.ops.math_ops as m", "import lockstep.compat.tensorflow.python.ops.math_ops as m"),
        ("import tensorflow as tf; x = '''\ny'''", "import lockstep.compat.tensorflow as tf; x = '''\ny'''"),
        ("from \\\n  tensorflow import keras", "from \\\n  tensorflow import keras"),
        # What is not there stays as it is: with another name it would not be there, either.
        ("import tensorflow_hub as hub", "import tensorflow_hub as hub"),
        ("from tensorflow.python.eager.core import _x", "from tensorflow.python.eager.core import _x"),
        ("from tensorflow.python.framework import ops", "from lockstep.compat.tensorflow.python.framework import ops"),
        ("from tensorflow.lite import Interpreter", "from tensorflow.lite import Interpreter"),
        ("from . import tensorflow", "from . import tensorflow"),
        ("'import tensorflow'", "'import tensorflow'"),
    ],
)
def test_lines_are_rewritten(old: str, new: str) -> None:
    assert rewrite(old, old) == new


@given(st.lists(st.sampled_from([*PROGRAM.splitlines(), "", "  # ü", "x = 'import tensorflow as tf'"]), max_size=12))
def test_other_lines_stay(lines: list[str]) -> None:
    code = "\n".join(lines)
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return
    changed = rewrite(code, code)
    assert len(changed.splitlines()) == len(code.splitlines())
    kept = [type(node).__name__ for node in ast.walk(tree)]
    assert [type(node).__name__ for node in ast.walk(ast.parse(changed))] == kept
    for old, new in zip(code.splitlines(), changed.splitlines(), strict=True):
        assert old == new or "import" in new
    assert rewrite(changed, changed) == changed, "twice is once"


def notebook(*sources: str | list[str]) -> str:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": source} for source in sources]
    cells.insert(1, {"cell_type": "markdown", "metadata": {}, "source": "import tensorflow"})
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def test_notebooks(tmp_path: Path) -> None:
    file = tmp_path / "notebook.ipynb"
    first = ["!pip install tensorflow\n", "%matplotlib inline\n", "import tensorflow as tf\n", "if x:\n", "  !ls\n"]
    file.write_text(notebook(first, "tf.abs(tf.nope)", "%%bash\nimport tensorflow", "def f(:", "files = !ls\ntf.cos?"))
    (scan,) = scan_path(file)
    # Cells share their names, and are counted as Jupyter shows them.
    assert scan.places == {"tf": ["cell 1, line 3"], "tf.abs": ["cell 3, line 1"], "tf.nope": ["cell 3, line 1"]}
    assert "cell 5, line 1 is not Python 3" in str(scan.error)
    with pytest.raises(SystemExit):
        main(["scan", "--write", str(file)])
    expected = [*first[:2], "import lockstep.compat.tensorflow as tf\n", *first[3:]]
    after = file.read_text()
    assert json.loads(after)["cells"][0]["source"] == expected
    assert after.replace("lockstep.compat.", "") == notebook(
        first, "tf.abs(tf.nope)", "%%bash\nimport tensorflow", "def f(:", "files = !ls\ntf.cos?"
    )


@pytest.mark.parametrize(
    ("magic", "is_python"),
    [
        ("%%time", True),
        ("%%capture out", True),
        ("%%writefile main.py", True),
        ("%%writefile a.yaml", False),
        ("%%sh", False),
    ],
)
def test_cells_that_are_python_below_their_magic(magic: str, is_python: bool, tmp_path: Path) -> None:
    file = tmp_path / "notebook.ipynb"
    file.write_text(notebook("x = 1", f"{magic}\nimport tensorflow as tf\ntf.abs(1)\n"))
    places = [scan.places for scan in scan_path(file)]
    assert places == ([{"tf": ["cell 3, line 2"], "tf.abs": ["cell 3, line 3"]}] if is_python else [])


def test_what_cannot_be_read_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old.py").write_text("import tensorflow as tf\nprint 'Python 2'\n")
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff\xfe'\n")
    (tmp_path / "broken.ipynb").write_text("{")
    errors = {scan.path.name: str(scan.error) for scan in scan_path(tmp_path)}
    assert "old.py, 2 is not Python 3" in errors["old.py"]
    assert "bytes.py cannot be read" in errors["bytes.py"]
    assert "broken.ipynb cannot be read" in errors["broken.ipynb"]
    with pytest.raises(SystemExit) as ended:
        main(["scan", str(tmp_path / "nowhere")])
    assert ended.value.code == 2
    assert "scan takes a file or a directory" in capsys.readouterr().err


@pytest.mark.slow
def test_tensorflow_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    code = (
        "import sys; from pathlib import Path; from lockstep._migrate._scan import scan_path\n"
        "for scan in scan_path(Path(sys.argv[1])): scan.answers()\n"
        "assert 'tensorflow' not in sys.modules and 'program' not in sys.modules\n"
    )
    # As a file of that name would be found: the program's own directory is on the path.
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=tmp_path)


def test_a_terminal_gets_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    console = Console(width=70, force_terminal=True, file=io.StringIO(), color_system=None)
    monkeypatch.setattr(_scan_report, "Console", lambda: console)
    _scan_report.print_report(list(scan_path(file)), is_written=False)
    text = console.file.getvalue()
    assert "\u2502 1 file, different names" in text
    # Paths are folded, and none is cut.
    assert "program.py" in "".join(text.split()).replace("\u2502", "")
    assert "\u2026" not in text
