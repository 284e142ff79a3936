"""Serving in a process that knows nothing of the model, without Keras, and without lockstep."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from lockstep import saved_model
from lockstep._text import words
from lockstep.saved_model import SignatureFunction, VocabularyIds
from tests.saved_model.models import MLP, mlp, mlp_inputs, mlp_variables, spec

_SERVE = """
import sys
import numpy as np
from lockstep import saved_model
model = saved_model.load(sys.argv[1])
outputs = model(x=np.load(sys.argv[2]))
np.savez(sys.argv[3], **outputs)
labelled = model.signatures["labelled"](word=["b", "?"])
assert labelled["word"].tolist() == [b"B", b"none"], labelled
print(sorted(name for name in sys.modules if name.split(".")[0] in ("keras", "tensorflow", "optax", "tensorboardX")))
"""

# What the package's documentation says, in a directory of an export.
_PLAIN = """
import jax.export, numpy as np
with open("programs/serving_default.jax", "rb") as file:
    program = jax.export.deserialize(bytearray(file.read()))
variables = dict(np.load("variables.npz"))
outputs = program.call(variables, {"x": np.load("x.npy")})
"""
_PLAIN_END = """
import sys
np.savez("outputs.npz", **outputs)
print([name for name in sys.modules if name.split(".")[0] in ("keras", "lockstep")])
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    labelled = SignatureFunction(
        lambda v, i: {"word": words(i["word"].ids(VocabularyIds(["a", "b"])), ["A", "B", "none"])},
        {"word": spec(None, dtype="string")},
    )
    variables = {**mlp_variables(), "unused": np.ones(2, ml_dtypes.bfloat16)}
    saved_model.write(tmp_path / "e", {"serving_default": MLP, "labelled": labelled}, variables)
    np.save(tmp_path / "e" / "x.npy", mlp_inputs(5))
    return tmp_path / "e"


def _run(code: str, *arguments: object, cwd: Path, path: str) -> str:
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _compare(found: Path) -> None:
    expected = mlp(mlp_variables(), {"x": mlp_inputs(5)})
    with np.load(found) as outputs:
        np.testing.assert_allclose(outputs["probabilities"], expected["probabilities"], atol=1e-6)
        np.testing.assert_array_equal(outputs["class"], expected["class"])


@pytest.mark.slow
def test_a_process_with_lockstep_alone(directory: Path, tmp_path: Path) -> None:
    source = str(Path(saved_model.__file__).parents[2])
    out = _run(_SERVE, directory, directory / "x.npy", tmp_path / "o.npz", cwd=tmp_path, path=source)
    assert out == "[]", "serving must not import Keras"
    _compare(tmp_path / "o.npz")


@pytest.mark.slow
def test_a_process_with_jax_alone(directory: Path) -> None:
    """The lines of the documentation, as they stand there."""
    documented = [line.strip() for line in (saved_model.__doc__ or "").splitlines()]
    lines = [line.strip().replace('np.load("x.npy")', "np.zeros((3, 4), np.float32)") for line in _PLAIN.split("\n")]
    assert all(line in documented for line in lines)
    assert _run(_PLAIN + _PLAIN_END, cwd=directory, path="") == "[]"
    _compare(directory / "outputs.npz")
