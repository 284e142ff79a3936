"""What the model needs of this machine, and what 1, 2 and 4 workers on it do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from benchmarks.harness.processes import free_ports, gang
from benchmarks.rows.workers import apart, together

_WORKERS = "benchmarks.programs.all_reduce"


def all_reduces(options: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of all-reduces by size, of the slowest worker."""
    (port,) = free_ports(1)
    told = {**options, "coordinator": f"127.0.0.1:{port}"}
    environments = [dict(os.environ)] * options["workers"]
    found = gang(_WORKERS, "seconds", told, environments, options["limit"])
    return {size: max(f[size] for f in found) for size in found[0]}


def skew(options: Mapping[str, Any]) -> dict[str, Any]:
    """Seconds of single steps of workers that compute at the same time without talking."""
    environments = [dict(os.environ)] * options["workers"]
    found = gang(_WORKERS, "steps", options, environments, options["limit"])
    return {"samples": [s for f in found for s in f["samples"]]}


def alone(options: Mapping[str, Any]) -> dict[str, float]:
    """Steps/s of N workers that compute at the same time without talking."""
    return apart({**options, "worker_runs": "lockstep_worker"})


def joined(options: Mapping[str, Any]) -> dict[str, float]:
    """Steps/s of N workers together."""
    if options["workers"] == 1:
        return alone(options)
    return together({**options, "worker_runs": "lockstep_worker"})
