"""The command line itself: its versions, and completion in a shell."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata

import pytest

import lockstep

pytestmark = pytest.mark.cluster
# As bash calls the program for the words before the cursor.
COMPLETION = {"_LOCKSTEP_COMPLETE": "complete_bash"}


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lockstep._launch", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_versions() -> None:
    done = command("--version")
    versions = f"keras {metadata.version('keras')}, jax {metadata.version('jax')}"
    assert done.stdout == f"lockstep {lockstep.__version__} ({versions}, Python {platform.python_version()})\n"
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [("lockstep temp", "template"), ("lockstep template kube", "kubernetes"), ("lockstep run --wor", "--workers")],
)
def test_a_shell_completes_commands_platforms_and_options(words: str, expected: str) -> None:
    done = command(**COMPLETION, COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    assert expected in done.stdout.split(), done.stderr


def test_the_script_for_a_shell_is_printed() -> None:
    done = command("--show-completion", "bash", SHELL="/bin/bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "complete -o default" in done.stdout
