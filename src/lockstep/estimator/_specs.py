"""TrainSpec and EvalSpec: the arguments of train_and_evaluate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from lockstep.errors import ArgumentError
from lockstep.estimator import _checks
from lockstep.estimator._estimator_spec import EstimatorSpec as EstimatorSpec
from lockstep.estimator._mode_keys import ModeKeys as ModeKeys
from lockstep.estimator._scaffold import Scaffold as Scaffold
from lockstep.estimator._warm_start import VocabInfo as VocabInfo
from lockstep.estimator._warm_start import WarmStartSettings as WarmStartSettings


class _TrainSpec(NamedTuple):
    input_fn: Callable[..., Any]
    max_steps: int | None
    hooks: tuple[Any, ...]
    saving_listeners: tuple[Any, ...]


class TrainSpec(_TrainSpec):
    """The training settings of train_and_evaluate.

    Args:
        input_fn: Returns the training data: a dataset of (features, labels), or the two.
        max_steps: At which global step training ends; `None`: when the data ends.
        hooks: `SessionRunHook`s, for every task that trains.
        saving_listeners: `CheckpointSaverListener`s, for the chief.

    Raises:
        ArgumentError: A value is of another kind, or `max_steps` is not above 0.

    Source: tf.estimator.TrainSpec.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        max_steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        saving_listeners: Iterable[Any] | None = None,
    ) -> TrainSpec:
        """Checks and makes one."""
        return super().__new__(
            cls,
            _checks.function(input_fn, "input_fn"),
            _checks.steps(max_steps, "max_steps"),
            _checks.hooks(hooks, "hooks"),
            _listeners(saving_listeners),
        )


class _EvalSpec(NamedTuple):
    input_fn: Callable[..., Any]
    steps: int | None
    name: str | None
    hooks: tuple[Any, ...]
    exporters: tuple[Any, ...]
    start_delay_secs: float
    throttle_secs: float


class EvalSpec(_EvalSpec):
    """The evaluation settings of train_and_evaluate.

    Args:
        input_fn: Returns the data: a dataset of (features, labels), or the two.
        steps: Number of batches; `None` for all.
        name: Name of this evaluation, to tell several apart: summaries go to "eval_" and the name.
        hooks: `SessionRunHook`s.
        exporters: An `Exporter` or several, of different names; each exports after each evaluation.
        start_delay_secs: Seconds that an evaluator waits before its first evaluation.
        throttle_secs: Minimum seconds between the starts of evaluations.

    Raises:
        ArgumentError: A value is of another kind, or out of range; or exporters have no names of their own.

    Source: tf.estimator.EvalSpec.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        steps: int | None = 100,
        name: str | None = None,
        hooks: Iterable[Any] | None = None,
        exporters: object | None = None,
        start_delay_secs: float = 120,
        throttle_secs: float = 600,
    ) -> EvalSpec:
        """Checks and makes one."""
        if name is not None and not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f'name must be a string, or None. Received: {name!r}. Example: name="validation"')
        return super().__new__(
            cls,
            _checks.function(input_fn, "input_fn"),
            _checks.steps(steps, "steps"),
            name,
            _checks.hooks(hooks, "hooks"),
            _exporters(exporters),
            _checks.seconds(start_delay_secs, "start_delay_secs"),
            _checks.seconds(throttle_secs, "throttle_secs"),
        )


def _listeners(values: object) -> tuple[Any, ...]:
    from lockstep.estimator._hooks import CheckpointSaverListener

    return _checks.instances(values, CheckpointSaverListener, "saving_listeners", "listener")


def _exporters(values: object) -> tuple[Any, ...]:
    from lockstep.estimator._export.exporters import Exporter

    exporters = (values,) if isinstance(values, Exporter) else values
    checked = _checks.instances(exporters, Exporter, "exporters", 'LatestExporter("latest", serving_input_receiver_fn)')
    names: list[Any] = [exporter.name for exporter in checked]
    for name in names:
        if not isinstance(name, str) or not name or names.count(name) > 1:
            raise ArgumentError(
                "Each exporter must have a name of its own that is not empty: it is that of a directory. Received: "
                f"{names!r}."
            )
    return checked
