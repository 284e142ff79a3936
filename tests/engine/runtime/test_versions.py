"""The versions that tasks compare."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest

from lockstep._engine.runtime import fingerprint


def test_every_package_of_a_step_is_told() -> None:
    found = fingerprint.installed_versions()
    assert set(found) == {"python", "lockstep", "jax", "jaxlib", "keras", "numpy"}
    assert found["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found["jax"] == metadata.version("jax")
    assert found["numpy"] == metadata.version("numpy")


def test_a_package_on_the_path_alone_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "lockstep":
            raise metadata.PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    assert fingerprint.installed_versions()["lockstep"] == "not installed as a package"
    assert fingerprint.installed_versions()["keras"] == "1.0"
