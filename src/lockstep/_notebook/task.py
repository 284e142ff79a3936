"""A task's side of `lockstep.launch`: calls the function, and leaves its result for the notebook."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep._notebook.values import load, save

INPUT, RESULT = "input.npz", "result.npz"


def values(directory: str) -> dict[str, Any]:
    """Returns the values of the notebook that a script needs, by name."""
    return load(Path(directory) / INPUT)[0]


def call(function: Callable[..., Any], directory: str) -> None:
    """Calls a function with the arguments in a directory; worker 0 writes its result there.

    Args:
        function: The function.
        directory: Where the notebook has put values and arguments.
    """
    _, args, kwargs = load(Path(directory) / INPUT)
    result = function(*args, **kwargs)
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    if (task["type"], task["index"]) == ("worker", 0):
        save(Path(directory) / RESULT, result, f"the result of {function.__name__}")
