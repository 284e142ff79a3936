"""Exporters of train_and_evaluate: after each, the last or the best evaluation."""

from __future__ import annotations

import abc
import functools
import inspect
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lockstep.errors import ArgumentError
from lockstep.estimator._export import best
from lockstep.estimator._types import EstimatorLike
from lockstep.saved_model.internal import directories as _directories

_log = logging.getLogger("lockstep")
_LOSS = "loss"
_COMPARED = ("best_eval_result", "current_eval_result")
Compare = Callable[..., bool]


class Exporter(abc.ABC):
    """Exports a model after evaluations; see its subclasses, or derive from it.

    Source: tf.estimator.Exporter.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Returns the name of the exports' directory below `<model_dir>/export`."""

    @abc.abstractmethod
    def export(
        self,
        estimator: EstimatorLike,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: Mapping[str, Any] | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Exports a checkpoint, or does not.

        Args:
            estimator: The `Estimator`.
            export_path: The directory for its exports.
            checkpoint_path: The checkpoint that was evaluated.
            eval_result: The result of `evaluate`.
            is_the_final_export: Whether training has ended: always false if there is no `max_steps`.

        Returns:
            The directory of the export, or `None`.
        """


class _SavedModelExporter(Exporter):
    """Exports every time; see `FinalExporter` for the arguments."""

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any] | None,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
    ) -> None:
        if not isinstance(name, str) or not name or "/" in name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"An exporter is named as a directory may be. Received: {name!r}. Example: 'latest'")
        if not callable(serving_input_receiver_fn):
            raise ArgumentError(
                f"The exporter {name!r} needs a serving_input_receiver_fn, a function without arguments. Received: "
                f"{serving_input_receiver_fn!r}. Make one with build_raw_serving_input_receiver_fn."
            )
        self._name = name
        self._serving_input_receiver_fn = serving_input_receiver_fn
        self._assets_extra = assets_extra
        self._as_text = as_text

    @property
    def name(self) -> str:
        """Returns the name of the exports' directory below `<model_dir>/export`."""
        return self._name

    def export(
        self,
        estimator: EstimatorLike,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: Mapping[str, Any] | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Exports a checkpoint."""
        return estimator.export_saved_model(
            export_path,
            self._serving_input_receiver_fn,
            assets_extra=self._assets_extra,
            as_text=self._as_text,
            checkpoint_path=checkpoint_path,
        )


class FinalExporter(_SavedModelExporter):
    """Exports once, at the end of training; never if there is no `max_steps`.

    Args:
        name: Name of the directory below `<model_dir>/export`.
        serving_input_receiver_fn: Returns a `ServingInputReceiver`.
        assets_extra: Files to copy to the export's `assets.extra`: source by name, which may be a relative path.
        as_text: Write each program as text, too.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.FinalExporter.
    """

    def export(
        self,
        estimator: EstimatorLike,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: Mapping[str, Any] | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Exports if training has ended."""
        if not is_the_final_export:
            return None
        _log.info("Performing the final export in the end of training.")
        return super().export(estimator, export_path, checkpoint_path, eval_result, is_the_final_export)


class LatestExporter(_SavedModelExporter):
    """Exports after each evaluation, and removes old exports.

    Args:
        name: Name of the directory below `<model_dir>/export`.
        serving_input_receiver_fn: Returns a `ServingInputReceiver`.
        assets_extra: Files to copy to the export's `assets.extra`: source by name, which may be a relative path.
        as_text: Write each program as text, too.
        exports_to_keep: Number of exports to keep; `None` for all.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.LatestExporter.
    """

    def __init__(
        self,
        name: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)
        self._exports_to_keep = _check_count(exports_to_keep)

    def export(
        self,
        estimator: EstimatorLike,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: Mapping[str, Any] | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Exports a checkpoint, and removes old exports."""
        exported = super().export(estimator, export_path, checkpoint_path, eval_result, is_the_final_export)
        _remove_old(export_path, self._exports_to_keep)
        return exported


def _loss_smaller(best_eval_result: Mapping[str, Any], current_eval_result: Mapping[str, Any]) -> bool:
    """Returns whether the second loss is smaller; any loss is better than NaN.

    Raises:
        ArgumentError: If there is no loss.
    """
    losses: list[float] = []
    for name, result in zip(_COMPARED, (best_eval_result, current_eval_result), strict=True):
        if not result or _LOSS not in result:
            raise ArgumentError(
                f"{name} cannot be empty or no loss is found in it. Received: {result!r}. Give BestExporter a "
                "compare_fn for your metrics."
            )
        # Metrics may be arrays of no dimensions.
        losses.append(float(result[_LOSS]))
    return losses[0] > losses[1] or (math.isnan(losses[0]) and not math.isnan(losses[1]))


class BestExporter(_SavedModelExporter):
    """Exports whenever an evaluation is better than all before, and removes old exports.

    It remembers the best evaluation in a file next to the exports, written before each export, so that it is the same
    after a restart. An export in which the process was killed is completed by the next one. Where exports are there
    without that file, it takes the best evaluation from the event files.

    Args:
        name: Name of the directory below `<model_dir>/export`.
        serving_input_receiver_fn: Returns a `ServingInputReceiver`.
        event_file_pattern: Glob pattern of the evaluation's event files below the model's directory; `None` for
            none. The default means the evaluation that the exporter belongs to, also a named one (`eval_<name>`).
        compare_fn: A function of best_eval_result and current_eval_result, two dicts of metrics, that returns whether
            the second one is better.
        assets_extra: Files to copy to the export's `assets.extra`: source by name, which may be a relative path.
        as_text: Write each program as text, too.
        exports_to_keep: Number of exports to keep; `None` for all.

    Raises:
        ArgumentError: If an argument is invalid.

    Source: tf.estimator.BestExporter.
    """

    def __init__(
        self,
        name: str = "best_exporter",
        serving_input_receiver_fn: Callable[[], Any] | None = None,
        event_file_pattern: str | None = best.DEFAULT_PATTERN,
        compare_fn: Compare = _loss_smaller,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        exports_to_keep: int | None = 5,
    ) -> None:
        _check_compare(compare_fn)
        super().__init__(name, serving_input_receiver_fn, assets_extra, as_text)
        self._compare = compare_fn
        self._event_file_pattern = event_file_pattern
        self._exports_to_keep = _check_count(exports_to_keep)
        self._model_dir: str | None = None
        self._best: Mapping[str, Any] | None = None
        self._has_best = False

    def export(
        self,
        estimator: EstimatorLike,
        export_path: str,
        checkpoint_path: str | None,
        eval_result: Mapping[str, Any] | None,
        is_the_final_export: bool,
    ) -> str | None:
        """Exports a checkpoint if its evaluation is the best, and removes old exports."""
        # The first export of this process, or an exporter that two Estimators share.
        if self._model_dir != estimator.model_dir:
            self._remember(estimator, export_path, eval_result, checkpoint_path)
        if self._has_best and not self._compare(best_eval_result=self._best, current_eval_result=eval_result):
            return None
        _log.info("Performing best model export.")
        best.begin(export_path, eval_result, self._best if self._has_best else None, checkpoint_path)
        exported = super().export(estimator, export_path, checkpoint_path, eval_result, is_the_final_export)
        # Not before: an export that fails must not keep the next evaluation from being exported.
        self._best, self._has_best = eval_result, True
        best.end(export_path)
        _remove_old(export_path, self._exports_to_keep)
        return exported

    def _remember(
        self,
        estimator: EstimatorLike,
        export_path: str,
        eval_result: Mapping[str, Any] | None,
        checkpoint_path: str | None,
    ) -> None:
        """Reads the best evaluation of earlier processes, and completes an export in which one was killed."""
        record = best.read(export_path)
        self._best = record.best
        if record.interrupted is None:
            best.end(export_path)
        elif self._complete(record, estimator, export_path, checkpoint_path):
            self._best = record.interrupted
        if self._event_file_pattern:
            _log.info("Loading best metric from event files.")
            # TensorFlow exports the first evaluation of each process, even if event files hold a better one. So does
            # this where nothing was exported yet.
            if self._best is None and _directories.versions(export_path):
                for result in best.evaluations(estimator.model_dir, self._event_file_pattern, eval_result):
                    is_first = self._best is None
                    if is_first or self._compare(best_eval_result=self._best, current_eval_result=result):
                        self._best = result
        self._has_best = self._best is not None
        self._model_dir = estimator.model_dir

    def _complete(
        self, record: best.Record, estimator: EstimatorLike, export_path: str, checkpoint_path: str | None
    ) -> bool:
        """Makes the export in which an earlier process was killed; returns whether it did."""
        # This evaluation is of the same checkpoint, in any directory: it is about to be exported anyway.
        if checkpoint_path is not None and Path(checkpoint_path).name == record.checkpoint:
            return False
        kept = best.kept_checkpoint(estimator.model_dir, export_path, record)
        if kept is None:
            _log.warning(
                "An export to %s was interrupted, and its checkpoint %s has gone: the best one before it counts.",
                export_path,
                record.checkpoint,
            )
            return False
        _log.info("Performing the best model export of %s, which was interrupted.", record.checkpoint)
        super().export(estimator, export_path, kept, record.interrupted, False)
        best.end(export_path)
        _remove_old(export_path, self._exports_to_keep)
        return True


def _check_compare(compare: object) -> None:
    """Checks the arguments of a compare_fn, as TensorFlow's _verify_compare_fn_args does."""
    if not callable(compare):
        raise ArgumentError(
            f"`compare_fn` must be a function of {' and '.join(_COMPARED)}. Received: {compare!r}. Leave it out for "
            "the smaller loss."
        )
    bound = compare.keywords if isinstance(compare, functools.partial) else {}
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    parameters = inspect.signature(compare).parameters.values()
    names = {p.name for p in parameters if p.kind not in variable and p.name not in bound}
    for missing in [name for name in _COMPARED if name not in names]:
        raise ArgumentError(f"compare_fn ({compare}) must include {missing} argument. Received: {sorted(names)}.")
    if others := sorted(names - set(_COMPARED)):
        raise ArgumentError(f"compare_fn ({compare}) has following not expected args: {others}. Use functools.partial.")


def _check_count(exports_to_keep: object) -> int | None:
    if exports_to_keep is not None and (type(exports_to_keep) is not int or exports_to_keep <= 0):
        raise ArgumentError(
            f"`exports_to_keep`, if provided, must be a positive number. Received: {exports_to_keep!r}. None keeps all."
        )
    return exports_to_keep


def _remove_old(export_path: str, count: int | None) -> None:
    """Removes all but the newest exports."""
    for path in _directories.versions(export_path)[: -count if count else 0]:
        try:
            _directories.remove(Path(path))
        except OSError as error:
            _log.warning("Can not delete %s recursively: %s", path, error)
