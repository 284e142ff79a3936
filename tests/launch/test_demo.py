"""`lockstep demo`: the example, run to its end on two workers from nothing but the installed package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import keras

# isort: split
import pytest
from typer.testing import CliRunner

from lockstep._launch.cli import PROGRAM, app
from lockstep.datasets import load_mnist
from lockstep.errors import ArgumentError
from tests.launch.staging import SOURCES, Stage

EXAMPLE = SOURCES.parent / "examples" / "mnist.py"
# Two workers start JAX and compile, on as few as two cores that other tests may be using.
DEMO_SECONDS = 400.0


def test_the_demo_is_the_example() -> None:
    assert PROGRAM.read_text() == EXAMPLE.read_text()


@pytest.mark.cluster
def test_the_demo_trains_on_two_workers_and_saves_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_OFFLINE", "1")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    result = demo(tmp_path, "--epochs", "1", "--output-dir", "out")
    assert result.returncode == 0, result.stderr
    assert "[worker 0] Data: a sample of MNIST, 5,000 training and 1,000 test images" in result.stdout
    assert "[worker 0] Replicas: 2, global batch: 128\n" in result.stdout
    assert not [line for line in result.stdout.splitlines() if line.startswith("[worker 1]") and "[Gloo]" not in line]
    found = re.search(r"^\[worker 0\] Test accuracy: (0\.\d{4})$", result.stdout, re.MULTILINE)
    assert found
    assert float(found[1]) > 0.85
    assert (tmp_path / "out/report.html").exists()
    (path,) = (tmp_path / "out").glob("*.keras")
    assert f"{saved_accuracy(path):.4f}" == found[1]


def demo(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `lockstep demo ARGUMENTS` in a directory."""
    return subprocess.run(
        [sys.executable, "-m", "lockstep._launch", "demo", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=DEMO_SECONDS,
        check=False,
    )


def saved_accuracy(path: Path) -> float:
    """The accuracy of a saved model on the test images, as plain Keras computes it."""
    sample = load_mnist()
    model = keras.models.load_model(path)
    return model.evaluate(sample.test_images, sample.test_labels, verbose=0, return_dict=True)["accuracy"]


def test_wrong_options_are_refused(stage: Stage) -> None:
    for arguments, problem in (
        (("--workers", "0"), "--workers must be at least 1, received 0"),
        (("--epochs", "0"), "--epochs"),
        (("program.py",), "program.py"),
    ):
        result = demo(stage.directory, *arguments)
        assert result.returncode == 2
        assert problem in result.stderr
        assert "Traceback" not in result.stderr


def test_the_examples_are_in_the_package(tmp_path: Path) -> None:
    directory = tmp_path / "examples"
    assert CliRunner().invoke(app, ["demo", "--copy", str(directory)]).exit_code == 0
    ours = Path(__file__).parents[2] / "examples"
    for path in ours.rglob("*"):
        if path.suffix in (".py", ".ipynb"):
            assert (directory / path.relative_to(ours)).read_bytes() == path.read_bytes()
    again = CliRunner().invoke(app, ["demo", "--copy", str(directory)])
    assert isinstance(again.exception, ArgumentError)
    assert "must name a directory that is not there yet" in str(again.exception)
