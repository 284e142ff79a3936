"""The record of a BestExporter: the best evaluation so far, in a file next to the exports."""

from __future__ import annotations

import contextlib
import glob
import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lockstep.checkpoint.internal import file_of, prefix_of, remove_leftovers, replacing
from lockstep.saved_model.internal import directories as _directories

_log = logging.getLogger("lockstep")
DEFAULT_PATTERN = "eval/*.tfevents.*"
_NAMED_PATTERN = "eval_*/*.tfevents.*"
_RECORD = "best_eval_result.json"
_KEPT = ".exporting"
_GLOBAL_STEP = "global_step"
Result = Mapping[str, Any]


@dataclass(frozen=True)
class Record:
    """A record of past exports.

    Attributes:
        best: The best evaluation that was exported, or `None`.
        interrupted: A better one, whose export has begun and was not completed, or `None`.
        checkpoint: The name of the interrupted one's checkpoint, such as "model.ckpt-20", if it has one.
    """

    best: Result | None = None
    interrupted: Result | None = None
    checkpoint: str | None = None


def begin(export_path: str, evaluation: Result | None, before: Result | None, checkpoint_path: str | None) -> None:
    """Notes an evaluation as the best, just before it is exported, and keeps its checkpoint until `end`."""
    # It counts from the moment when there is an export that is newer than those of now ("newer_than"). A process that
    # is killed before that leaves an interrupted export, which the next one can complete.
    Path(export_path).mkdir(parents=True, exist_ok=True)
    remove_leftovers(export_path)
    name = None if checkpoint_path is None else os.path.basename(prefix_of(checkpoint_path))
    kept = None if checkpoint_path is None else _keep(export_path, checkpoint_path)
    record = {
        "version": 1,
        "best": _numbers_of(evaluation),
        "before": _numbers_of(before),
        "newer_than": _newest(export_path),
        "checkpoint": name,
    }
    with replacing(str(Path(export_path) / _RECORD)) as file:
        file.write(json.dumps(record, indent=1).encode())
    # Only now: the record before named the checkpoint that an earlier export has kept.
    with contextlib.suppress(OSError):
        for path in (Path(export_path) / _KEPT).iterdir():
            if path.name != kept and path.is_file():
                path.unlink()


def end(export_path: str) -> None:
    """Removes the checkpoint that `begin` has kept."""
    shutil.rmtree(Path(export_path) / _KEPT, ignore_errors=True)


def read(export_path: str) -> Record:
    """Returns the record of past exports; an empty one if it is missing or unreadable."""
    path = Path(export_path) / _RECORD
    try:
        document = json.loads(path.read_text())
        best, before = (
            None if result is None else {n: np.asarray(v) if isinstance(v, list) else v for n, v in result.items()}
            for result in (document["best"], document["before"])
        )
        # The export that the record announced is there: it was completed.
        if _newest(export_path) > document["newer_than"]:
            return Record(best)
        return Record(before, best, document.get("checkpoint"))
    except FileNotFoundError:
        return Record()
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        # Never an error: a job must not end for a file beside its exports.
        _log.warning("%s is not understood, and left out: %r", path, error)
        return Record()


def kept_checkpoint(model_dir: str, export_path: str, record: Record) -> str | None:
    """Returns the path of an interrupted export's checkpoint, or `None` if it is deleted."""
    if not record.checkpoint:
        return None
    name = os.path.basename(record.checkpoint)
    candidates = [os.path.join(export_path, _KEPT, name), os.path.join(model_dir, name)]
    return next((prefix for prefix in candidates if os.path.isfile(file_of(prefix))), None)


def _keep(export_path: str, checkpoint_path: str) -> str | None:
    """Keeps a checkpoint from being deleted by the training; returns the name of the kept file, or `None`."""
    # By a hard link, which needs no copy. Where the file system has none, an interrupted export can be completed as
    # long as the training keeps the checkpoint.
    file = file_of(checkpoint_path)
    kept = Path(export_path) / _KEPT
    name, unfinished = os.path.basename(file), kept / "unfinished"
    try:
        kept.mkdir(exist_ok=True)
        unfinished.unlink(missing_ok=True)
        os.link(file, unfinished)
        os.replace(unfinished, kept / name)
        unfinished.unlink(missing_ok=True)  # `replace` does nothing if both are links of one file.
    except OSError:
        return None
    return name


def evaluations(model_dir: str, pattern: str, current: Mapping[str, Any] | None) -> list[dict[str, float]]:
    """Returns the evaluations in event files, but for the current one, which is written already, in order of steps.

    With the default pattern, of all evaluations with and without a name those count in whose files the current one is;
    if it is in none, the one without a name.
    """
    results_by_directory = _by_directory(model_dir, pattern)
    # TensorFlow's default pattern fits no evaluation with a name ("eval_<name>"), whose exporter then forgets its best
    # one with each restart.
    if pattern == DEFAULT_PATTERN:
        named = _by_directory(model_dir, _NAMED_PATTERN)
        mine = {
            directory: results
            for directory, results in {**results_by_directory, **named}.items()
            if any(_is_same(step, result, current) for step, result in results.items())
        }
        results_by_directory = mine or results_by_directory
    return [
        result
        for results in results_by_directory.values()
        for step, result in results.items()
        if not _is_same(step, result, current)
    ]


def _by_directory(model_dir: str, pattern: str) -> dict[str, dict[int, dict[str, float]]]:
    """Returns the numbers in the event files that match a pattern, by directory, step and tag."""
    from lockstep.summary import read_events  # Importing it takes time, and few programs need it.

    found: dict[str, dict[int, dict[str, float]]] = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(model_dir), pattern))):
        by_step = found.setdefault(os.path.dirname(path), {})
        for event in read_events(path):
            numbers = {v.tag: v.simple_value for v in event.summary.value if v.WhichOneof("value") == "simple_value"}
            if numbers:
                by_step.setdefault(event.step, {}).update(numbers)
    return {directory: dict(sorted(by_step.items())) for directory, by_step in found.items()}


def _is_same(step: int, result: Mapping[str, float], current: Mapping[str, Any] | None) -> bool:
    """Returns whether an evaluation in event files is the current one: of its step, with its numbers."""
    if not current or (_GLOBAL_STEP in current and int(current[_GLOBAL_STEP]) != step):
        return False
    # Event files have float32.
    numbers = {name: current[name] for name in result if name in current}
    return bool(numbers) and all(np.float32(result[name]) == np.float32(value) for name, value in numbers.items())


def _newest(export_path: str) -> int:
    return max((int(path.name) for path in _directories.versions(export_path)), default=0)


def _numbers_of(result: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns the numbers of an evaluation for JSON; text is left out, as it is no metric."""
    if result is None:
        return None
    arrays = {str(name): np.asarray(value) for name, value in result.items()}
    return {name: array.tolist() for name, array in arrays.items() if array.dtype.kind in "biuf"}
