"""Estimators of `third_party` that train for few steps; see `_equal_conditions`."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

from tests.programs._equal_conditions import DRAWN, RESULTS, STEPS


def short_estimator(estimator: Any) -> None:
    """Makes a class of Estimators train for few steps, from weights that are the same on both sides."""
    train, evaluate = vars(estimator).get("train"), vars(estimator).get("evaluate")
    predict = vars(estimator).get("predict")

    def short_train(
        self: Any, input_fn: Any, hooks: Any = None, steps: Any = None, max_steps: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        if max_steps:
            max_steps = min(max_steps, 2 * STEPS)
        else:
            steps = min(steps or 2 * STEPS, 2 * STEPS)
        with _restored(self):
            return train(self, input_fn, hooks, steps, max_steps, *args, **kwargs)

    def short_evaluate(self: Any, input_fn: Any, steps: Any = None, *args: Any, **kwargs: Any) -> Any:
        with _restored(self):
            result = evaluate(self, input_fn, min(steps or STEPS, STEPS), *args, **kwargs)
        RESULTS.extend((f"evaluate {key}", float(value)) for key, value in sorted(result.items()) if "/" not in key)
        return result

    def predict_alike(self: Any, *args: Any, **kwargs: Any) -> Any:
        results = predict(self, *args, **kwargs)
        with _restored(self):
            # The graph is built when the first result is asked for.
            first = list(itertools.islice(results, 1))
        yield from itertools.chain(first, results)

    if predict is not None:
        estimator.predict = predict_alike
    if train is not None:
        estimator.train = short_train
    if evaluate is not None:
        estimator.evaluate = short_evaluate


@contextlib.contextmanager
def _restored(estimator: Any = None) -> Generator[None]:
    """Takes back what is drawn for weights that a checkpoint gives: TensorFlow draws them in each graph again."""
    kept = Counter(DRAWN) if estimator is None or estimator.latest_checkpoint() else None
    yield
    if kept is not None:
        DRAWN.clear()
        DRAWN.update(kept)


def short_both(both: Callable[..., Any]) -> Callable[..., Any]:
    """Makes `train_and_evaluate` train for few steps, and keep the last metrics."""
    import dataclasses

    def replaced(spec: Any, **fields: Any) -> Any:
        return spec._replace(**fields) if isinstance(spec, tuple) else dataclasses.replace(spec, **fields)

    def short(estimator: Any, train_spec: Any, eval_spec: Any, **kwargs: Any) -> Any:
        if (train_spec.max_steps or 1000) > 2 * STEPS:
            train_spec = replaced(train_spec, max_steps=2 * STEPS)
        kept = len(RESULTS)
        # All of it: how many graphs there are is a matter of how often is evaluated.
        with _restored():
            result = both(estimator, train_spec, eval_spec, **kwargs)
        # TensorFlow evaluates by the method that is recorded, too.
        del RESULTS[kept:]
        metrics = result[0] if isinstance(result, tuple) else None
        if metrics:
            RESULTS.extend((f"both {key}", float(value)) for key, value in sorted(metrics.items()))
        return result

    return short
