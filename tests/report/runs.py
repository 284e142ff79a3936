"""Records of runs as tasks write them, made up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BEGIN = 1_700_000_000.0
INPUT = "a wait for its own input"
DEVICES = "a wait for steps on the devices"
CALLBACKS = "callbacks or hooks"


def start(at: float = 0.0, run_id: str = "one", **more: Any) -> dict[str, Any]:
    return {
        "event": "start",
        "at": BEGIN + at,
        "run_id": run_id,
        "launched_at": BEGIN + at - 1,
        "pid": 7,
        "host": "h",
        "command": ["python", "train.py", "--name", "a b"],
        "cwd": "/work",
        "environment": {"KERAS_BACKEND": "jax"},
        "versions": {"jax": "0.10"},
        "devices": "1 x cpu",
        "cpus": 2,
        **more,
    }


def train(at: float = 0.1, call: str = "fit") -> dict[str, Any]:
    return {"event": "train", "at": BEGIN + at, "call": call, "about": {"epochs": 3}, "step": 0, "steps": 0}


def sample(at: float, step: int, spent: dict[str, float] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "event": "sample",
        "at": BEGIN + at,
        "where": DEVICES,
        "seconds": 0.0,
        "spent": spent or {},
        "rss": 5_000_000,
        "device": None,
        "step": step,
        "steps": step,
        **more,
    }


def value(at: float, step: int, loss: float, **more: Any) -> dict[str, Any]:
    return sample(at, step, value_step=step, values={"loss": loss}, **more)


def epoch(at: float, number: int, **values: float) -> dict[str, Any]:
    return {"event": "epoch", "at": BEGIN + at, "epoch": number, "values": values, "step": 1, "steps": 1}


def end(at: float, step: int = 10, error: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"event": "end", "at": BEGIN + at, "error": error, "spent": {}, "step": step, "steps": step, **more}


def write(log_dir: Path, **tasks: Sequence[dict[str, Any]]) -> Path:
    """Writes the records of tasks, such as `worker_0`."""
    for name, lines in tasks.items():
        path = log_dir / "report" / f"{name.replace('_', '-')}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return log_dir
