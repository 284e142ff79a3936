"""`Model.compile` with the arguments of Keras 2, and the names of the metrics it was given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from keras.src.trainers.compile_utils import CompileMetrics
from keras.src.trainers.trainer import Trainer

from lockstep.errors import UnsupportedError

# What Keras 2 took, and what it must be here, because nothing else can be honoured.
_ADVICE = {
    "sample_weight_mode": "Give fit a sample_weight of shape (batch, time) instead.",
    "target_tensors": "Give fit the targets as y.",
    "distribute": "Create and compile the model under strategy.scope().",
    "pss_evaluation_shards": "Leave it out.",
}
_WITHOUT_EFFECT = ("experimental_run_tf_function", "is_legacy_optimizer", "from_serialized")


def install() -> None:
    """Completes `keras.Model.compile`, and gives `metrics_names` Keras 2's meaning."""
    trainer: Any = Trainer
    trainer.compile = _accepting(trainer.compile)
    trainer.metrics_names = property(_metrics_names)


def _accepting(theirs: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        _drop(kwargs)
        older = kwargs.pop("experimental_steps_per_execution", None)
        if older is not None:
            kwargs["steps_per_execution"] = older
        for name, default in (("steps_per_execution", 1), ("run_eagerly", False), ("jit_compile", "auto")):
            if name in kwargs and kwargs[name] is None:
                kwargs[name] = default
        return theirs(self, *args, **kwargs)

    return compile


def _drop(kwargs: dict[str, Any]) -> None:
    for name in _WITHOUT_EFFECT:
        kwargs.pop(name, None)
    for name, advice in _ADVICE.items():
        value = kwargs.pop(name, None)
        if value not in (None, 0):
            raise UnsupportedError(f"compile() has no {name} in Keras 3: received {value!r}. {advice}")


def _metrics_names(self: Any) -> list[str]:
    """Returns the names of what `evaluate` returns, in its order.

    The names of metrics that fit or evaluate has yet to build are those that were given to compile.
    """
    if all(metric.built for metric in self.metrics if isinstance(metric, CompileMetrics)):
        ordered = self._flatten_metrics_in_order({name: name for name in self.get_metrics_result()})
        return [ordered] if isinstance(ordered, str) else ordered
    names: list[str] = []
    for metric in self.metrics:
        names += _names_within(metric) if isinstance(metric, CompileMetrics) else [metric.name]
    return names


def _names_within(metrics: Any) -> list[str]:
    given: Any = [metrics._user_metrics, metrics._user_weighted_metrics]
    return [_name(one) for some in given for one in _flat(some)]


def _flat(some: Any) -> list[Any]:
    if isinstance(some, dict):
        some = list(some.values())
    if not isinstance(some, (list, tuple)):
        return [] if some is None else [some]
    return [one for part in some for one in _flat(part)]


def _name(metric: Any) -> str:
    return metric if isinstance(metric, str) else getattr(metric, "name", None) or metric.__name__
