"""The Pythons that measurements run in, and the variables that they see."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Settings that would change what is measured, or join a process to a cluster that is not there.
# PYTHONDONTWRITEBYTECODE would have every process compile lockstep's sources anew (0.25 s), and no peer's.
_SCRUBBED = (
    "TF_CONFIG",
    "JAX_",
    "XLA_",
    "KERAS_",
    "LOCKSTEP_",
    "TF_",
    "OMP_",
    "NPROC",
    "PYTHONPATH",
    "PYTHONDONTWRITEBYTECODE",
)
_PACKAGES = ("jax", "jaxlib", "keras", "numpy", "tensorflow-cpu", "tensorflow", "torch")


@dataclass(frozen=True)
class Pythons:
    """Interpreters, by the environment that they have.

    Attributes:
        lockstep: Has what `pip install lockstep` installs, and no more: Keras imports pandas, matplotlib and OpenCV
            wherever they are, 0.3 s in each process.
        development: Has the optional packages, too.
    """

    lockstep: str = ".venv/lockstep/bin/python"
    development: str = sys.executable
    tensorflow: str = ".venv/tensorflow/bin/python"
    torch: str = ".venv/torch/bin/python"
    plot: str = ".venv/plot/bin/python"

    def of(self, environment: str) -> str:
        """Returns the interpreter of an environment; `jax` is lockstep's."""
        return self.lockstep if environment == "jax" else str(getattr(self, environment))

    def missing(self, environment: str) -> str | None:
        """Says why nothing can run in an environment, or returns `None`."""
        python = self.of(environment)
        if Path(python).exists():
            return None
        return f"there is no {python}: run `make bench`, which builds it, or pass --{environment} PYTHON"


def variables(environment: str) -> dict[str, str]:
    """Returns this process' variables without what would change a measurement.

    Processes of lockstep keep memory, as tasks of `lockstep run` do.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SCRUBBED)}
    own = {"PYTHONUNBUFFERED": "1", "LOCKSTEP_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1"}
    if environment in ("lockstep", "development"):
        # Here, because the peers' environments, where this module is imported too, have no lockstep.
        from lockstep._launch.task import malloc_settings

        own |= {"PYTHONPATH": str(ROOT / "src"), **malloc_settings(kept)}
    if environment == "jax":
        own["KERAS_BACKEND"] = "jax"
    return {**kept, **own}


def versions(pythons: Pythons) -> Mapping[str, Mapping[str, str]]:
    """Returns the versions of Python and of what matters, of each environment that is there."""
    found = ("lockstep", "tensorflow", "torch")
    return {name: _versions(pythons.of(name)) for name in found if pythons.missing(name) is None}


def _versions(python: str) -> dict[str, str]:
    code = (
        "import json, platform, importlib.metadata as m\n"
        "def v(n):\n    try: return m.version(n)\n    except m.PackageNotFoundError: return None\n"
        f"print(json.dumps({{'python': platform.python_version(), **{{n: v(n) for n in {_PACKAGES!r}}}}}))"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return {name: version for name, version in json.loads(done.stdout).items() if version}
