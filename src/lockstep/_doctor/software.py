"""Checks of the software: versions, Keras' backend, devices, and the environment's settings."""

from __future__ import annotations

import difflib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata, util
from pathlib import Path

from lockstep._doctor.finding import Finding, error, note, ok, size, warning

# To start JAX takes seconds; a driver that hangs takes for ever.
_DEVICE_SECONDS = 120.0
_EXTRAS = {"images": "cv2", "parquet": "pyarrow", "records": "array_record"}
# In a process of its own: to start JAX here would take the devices from whatever runs next, and might never return.
_DEVICES_PROGRAM = """
import json, lockstep, jax
devices = jax.local_devices()
def memory(device):
    try:
        return (device.memory_stats() or {}).get("bytes_limit")
    except Exception:
        return None
print(json.dumps([{"platform": d.platform, "kind": d.device_kind, "memory": memory(d)} for d in devices]))
"""
# All that lockstep reads, for the user to set or for a launcher.
# fmt: off
VARIABLES = frozenset({
    "LOCKSTEP_BIND_CORES",
    "LOCKSTEP_CACHE_DIR", "LOCKSTEP_CHECK_COMPILED", "LOCKSTEP_CLOSE_COLLECTIVES", "LOCKSTEP_CLUSTER_SECRET",
    "LOCKSTEP_CLUSTER_SECRET_FILE", "LOCKSTEP_COMPARE_DATA", "LOCKSTEP_COMPILE_PROCESS", "LOCKSTEP_COMPILE_TIMEOUT",
    "LOCKSTEP_DATA_DIR", "LOCKSTEP_DOCS_URL",
    "LOCKSTEP_ERROR_FILE", "LOCKSTEP_GENERATION", "LOCKSTEP_GRACE", "LOCKSTEP_JOIN_TIMEOUT", "LOCKSTEP_LEAVE_TIMEOUT",
    "LOCKSTEP_LOG_DIR", "LOCKSTEP_MAX_DECODED_BYTES", "LOCKSTEP_MTLS_CA", "LOCKSTEP_MTLS_CERT", "LOCKSTEP_MTLS_KEY",
    "LOCKSTEP_OFFLINE", "LOCKSTEP_ONEDNN", "LOCKSTEP_PEER_TIMEOUT", "LOCKSTEP_PREEMPTIONS_LEFT",
    "LOCKSTEP_PROGRESS_FILE", "LOCKSTEP_PROGRESS_TIMEOUT", "LOCKSTEP_RESTARTS_LEFT", "LOCKSTEP_RUN_ID",
    "LOCKSTEP_SHARED_MEMORY",
    "LOCKSTEP_SILENCE_TIMEOUT", "LOCKSTEP_SLURM_NODE_GPUS", "LOCKSTEP_STRICT_CHECKPOINTS", "LOCKSTEP_XLA_LOWERINGS",
})
# fmt: on


def versions() -> Iterator[Finding]:
    """Yields the versions of Python and of what lockstep needs, each beside the range that it was tested with."""
    from packaging.requirements import Requirement

    python = platform.python_version()
    yield ok("versions", f"Python {python} on {platform.system()} {platform.machine()}", python=python)
    for text in metadata.requires("lockstep") or ():
        requirement = Requirement(text)
        # Requirements of extras have a marker; those of this platform hold, or do not.
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        yield _version(requirement.name, str(requirement.specifier), requirement.specifier.contains)
    yield from _jaxlib()
    missing = [extra for extra, module in _EXTRAS.items() if util.find_spec(module) is None]
    if missing:
        advice = f"pip install 'lockstep[{missing[0]}]', if a program needs it."
        yield note("versions", f"Extras that are not installed: {', '.join(missing)}", advice, missing=missing)


def _version(name: str, wanted: str, fits: Callable[[str], bool]) -> Finding:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return error("versions", f"{name} is not installed", f"pip install '{name}{wanted}'", package=name)
    if not fits(version):
        text = f"{name} {version} is outside of {wanted}, which lockstep is tested with"
        return error("versions", text, f"pip install '{name}{wanted}'", package=name, version=version)
    return ok("versions", f"{name} {version}", package=name, version=version)


def _jaxlib() -> Iterator[Finding]:
    """Yields jaxlib and JAX's plugins for GPUs, which must be of jax's own release."""
    jax = metadata.version("jax")
    names = ["jaxlib", *(f"jax-cuda{major}-plugin" for major in (12, 13))]
    for name in names:
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        # Releases of one minor version belong together: a plugin of another does not load, or crashes.
        if found.split(".")[:2] == jax.split(".")[:2]:
            yield ok("versions", f"{name} {found}", package=name, version=found)
        else:
            text = f"{name} {found} does not belong to jax {jax}"
            yield error("versions", text, f"pip install '{name}=={jax}'", package=name, version=found)


def backend() -> Iterator[Finding]:
    """Yields Keras' backend: lockstep has chosen JAX when it was imported, or could not be imported."""
    asked = os.environ.get("KERAS_BACKEND")
    yield ok("Keras", f"Keras' backend is {asked}", backend=asked)
    home = Path(os.environ.get("KERAS_HOME") or Path.home() / ".keras") / "keras.json"
    try:
        configured = json.loads(home.read_text()).get("backend")
    except (OSError, ValueError, AttributeError):
        return
    if configured not in (None, "jax"):
        yield note(
            "Keras",
            f"{home} says {configured!r}: programs that import keras before lockstep get that backend, and an error",
            "Put `import lockstep` above `import keras`, or write jax in that file.",
            configured=configured,
        )


def devices() -> Iterator[Finding]:
    """Yields the devices that JAX finds in a process of its own, within two minutes."""
    # A process with TF_CONFIG would be a task of the job; this one only looks.
    environment = {name: text for name, text in os.environ.items() if name != "TF_CONFIG"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _DEVICES_PROGRAM],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_DEVICE_SECONDS,
            check=True,
        )
        # Libraries greet on the standard output; what is asked for comes last.
        found = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        text = f"JAX has not found its devices within {_DEVICE_SECONDS:g} s"
        yield error("devices", text, "See whether `nvidia-smi` returns; a driver that hangs needs a new start.")
        return
    except (subprocess.CalledProcessError, ValueError, IndexError) as failure:
        said = str(getattr(failure, "stderr", "") or failure).strip().splitlines()
        yield error("devices", f"JAX does not start: {said[-1] if said else failure}", _start_advice())
        return
    kinds = {(each["platform"], each["kind"]) for each in found}
    for name, kind in sorted(kinds):
        same = [each for each in found if (each["platform"], each["kind"]) == (name, kind)]
        memory = f" with {size(same[0]['memory'])} each" if same[0]["memory"] else ""
        yield ok("devices", f"{len(same)} {name} device(s): {kind}{memory}", platform=name, count=len(same))
    yield from _gpus(bool({"gpu", "cuda"} & {each["platform"] for each in found}))


def _start_advice() -> str:
    asked = os.environ.get("JAX_PLATFORMS")
    return f"Unset JAX_PLATFORMS, which is {asked!r}." if asked else "Run `python -c 'import jax; jax.devices()'`."


def _gpus(are_used: bool) -> Iterator[Finding]:
    from lockstep._engine.runtime.local_devices import nvidia_gpus

    present = nvidia_gpus()
    if present and not are_used:
        hiding = ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES")
        reasons = [f"{name}={os.environ[name]!r}" for name in hiding if name in os.environ]
        seen = f" ({', '.join(reasons)})" if reasons else ""
        text = f"This machine has {present} NVIDIA GPU(s), and JAX does not use them{seen}"
        yield warning(
            "devices", text, "pip install 'lockstep[cuda]', and unset variables that hide them.", gpus=present
        )


def settings() -> Iterator[Finding]:
    """Yields settings of lockstep in the environment: those that nobody reads, and those that are malformed."""
    from lockstep._engine.runtime import environment, limits
    from lockstep.errors import ArgumentError

    given = sorted(name for name in os.environ if name.startswith("LOCKSTEP_"))
    for name in given:
        if name not in VARIABLES:
            near = difflib.get_close_matches(name, VARIABLES, 1)
            advice = f"Did you mean {near[0]}?" if near else "Unset it."
            yield warning("settings", f"{name} is set, and nothing reads it", advice, variable=name)
    try:
        limits.Limits.from_environment()
        environment.attempt()
    except ArgumentError as problem:
        yield error("settings", str(problem), "Correct the variable.")
        return
    known = [name for name in given if name in VARIABLES]
    text = f"Set: {', '.join(known)}" if known else "No LOCKSTEP_... is set: all have their defaults"
    yield ok("settings", text, variables=known)
