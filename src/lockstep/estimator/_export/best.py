"""What a BestExporter remembers: the best evaluation so far, in a file next to the exports; and past evaluations."""

from __future__ import annotations

import glob
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.saved_model import _directories

_log = logging.getLogger("lockstep")
DEFAULT_PATTERN = "eval/*.tfevents.*"
_NAMED_PATTERN = "eval_*/*.tfevents.*"
_RECORD = "best_eval_result.json"
_GLOBAL_STEP = "global_step"


def write_record(export_path: str, best: Mapping[str, Any] | None, before: Mapping[str, Any] | None) -> None:
    """Notes an evaluation as the best, just before it is exported.

    It counts from the moment when there is an export that is newer than those of now; until then the one before does.

    Args:
        export_path: The directory of the exports.
        best: The evaluation.
        before: The best one so far, or `None`.
    """
    newest = _newest(export_path)
    record = {"version": 1, "best": _plain(best), "before": _plain(before), "newer_than": newest}
    Path(export_path).mkdir(parents=True, exist_ok=True)
    path = Path(export_path) / _RECORD
    temporary = path.with_name(f".{_RECORD}.{os.getpid()}")
    temporary.write_text(json.dumps(record, indent=1))
    temporary.replace(path)


def read_record(export_path: str) -> dict[str, Any] | None:
    """Returns the best evaluation that was exported, or `None` if that is not known."""
    path = Path(export_path) / _RECORD
    try:
        record = json.loads(path.read_text())
        best = record["best"] if _newest(export_path) > record["newer_than"] else record["before"]
        return None if best is None else {str(name): _value(value) for name, value in best.items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        _log.warning("%s is not understood, and left out: %r", path, error)
        return None


def evaluations(model_dir: str, pattern: str, current: Mapping[str, Any] | None) -> list[dict[str, float]]:
    """Returns the evaluations in event files, but for the current one, in the order of their steps.

    Args:
        model_dir: The model's directory.
        pattern: Of the event files, below it. With the default, of all evaluations with and without a name those count
            in whose files the current one is; if it is in none, the one without a name.
        current: The current evaluation, which `evaluate` has written already.
    """
    found = _by_directory(model_dir, pattern)
    if pattern == DEFAULT_PATTERN:
        named = _by_directory(model_dir, _NAMED_PATTERN)
        mine = {d: r for d, r in {**found, **named}.items() if any(_is_same(step, s, current) for step, s in r.items())}
        found = mine or found
    return [r for results in found.values() for step, r in results.items() if not _is_same(step, r, current)]


def _by_directory(model_dir: str, pattern: str) -> dict[str, dict[int, dict[str, float]]]:
    directories = sorted({os.path.dirname(path) for path in glob.glob(os.path.join(glob.escape(model_dir), pattern))})
    return {directory: _scalars(directory, os.path.basename(pattern)) for directory in directories}


def _scalars(directory: str, pattern: str) -> dict[int, dict[str, float]]:
    """Returns the numbers in the event files of a directory whose names match a pattern, by step and tag."""
    from lockstep.summary import read_events  # Importing it takes time, and few programs need it.

    found: dict[int, dict[str, float]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(directory), pattern))):
        for event in read_events(path):
            numbers = {v.tag: v.simple_value for v in event.summary.value if v.WhichOneof("value") == "simple_value"}
            if numbers:
                found.setdefault(event.step, {}).update(numbers)
    return dict(sorted(found.items()))


def _is_same(step: int, result: Mapping[str, float], current: Mapping[str, Any] | None) -> bool:
    """Whether what event files say of a step is the current evaluation: of its step, with its numbers."""
    if not current or (_GLOBAL_STEP in current and int(current[_GLOBAL_STEP]) != step):
        return False
    numbers = {name: current[name] for name in result if name in current}
    return bool(numbers) and all(np.float32(result[name]) == np.float32(value) for name, value in numbers.items())


def _newest(export_path: str) -> int:
    return max((int(path.name) for path in _directories.versions(export_path)), default=0)


def _plain(result: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns the numbers of an evaluation for JSON; text is left out, as it is no metric."""
    if result is None:
        return None
    arrays = {str(name): np.asarray(value) for name, value in result.items()}
    return {name: array.tolist() for name, array in arrays.items() if array.dtype.kind in "biuf"}


def _value(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, list) else value
