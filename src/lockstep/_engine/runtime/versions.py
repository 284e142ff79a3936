"""The versions that must be the same on every task, because they change what a step computes."""

from __future__ import annotations

import platform
from importlib import metadata


def installed() -> dict[str, str]:
    """Returns the version of Python (major.minor) and of each package that takes part in a step."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for package in ("lockstep", "jax", "jaxlib", "keras", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed as a package"
    return found
