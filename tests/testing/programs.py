"""What tasks of a test's cluster run."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any


def task(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """Returns who it is, and what it was given."""
    config = json.loads(os.environ["TF_CONFIG"])
    print("printed by", config["task"], "which reads", repr(sys.stdin.read()))
    return {"config": config, "pid": os.getpid(), "args": args, "kwargs": kwargs}


def devices() -> tuple[int, str]:
    """Returns how many devices a task has, and of which kind."""
    import jax

    return jax.local_device_count(), jax.default_backend()


def raises_on(worker: int) -> str:
    """Fails on one task."""
    print("before the error")
    if task()["config"]["task"] == {"type": "worker", "index": worker}:
        raise OSError("a disk has gone")
    return "done"


def waits_for_ever(started: Path) -> None:
    """Never returns."""
    (started / str(os.getpid())).touch()
    threading.Event().wait()


def returns_an_object() -> Any:
    """Returns what does not travel."""
    return {"model": [object()]}
