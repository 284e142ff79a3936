"""The options of a launch, checked at construction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lockstep.errors import ArgumentError

_LAST_PORT = 65535


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to start: `workers` tasks, maybe an evaluator, and the settings that each of them gets."""

    workers: int
    evaluator: bool = False
    devices_per_worker: int | None = None
    port_base: int | None = None
    log_dir: Path | None = None
    join_timeout: float | None = None
    settle: float = 1.0
    grace: float = 5.0

    def __post_init__(self) -> None:
        """Refuse what cannot be started."""
        _check_count("--workers", self.workers, "the number of worker tasks")
        _check_count("--devices-per-worker", self.devices_per_worker, "the number of devices of each worker")
        _check_seconds("--join-timeout", self.join_timeout)
        _check_ports(self.port_base, self.workers)


def _check_count(name: str, count: int | None, meaning: str) -> None:
    if count is not None and count < 1:
        raise ArgumentError(f"{name} must be at least 1, received {count}. Give {meaning}.")


def _check_seconds(name: str, seconds: float | None) -> None:
    if seconds is not None and not 0 < seconds < float("inf"):
        raise ArgumentError(f"{name} must be more than 0 seconds, received {seconds}. Leave it out for the default.")


def _check_ports(base: int | None, count: int) -> None:
    if base is not None and not 1 <= base <= _LAST_PORT + 1 - count:
        raise ArgumentError(
            f"--port-base must leave {count} ports between 1 and {_LAST_PORT}, received {base}. "
            f"Give a port from 1 to {_LAST_PORT + 1 - count}, or leave it out to have free ports picked."
        )
