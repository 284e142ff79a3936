"""`evaluate` of a model that belongs to a strategy."""

from __future__ import annotations

from typing import Any

from keras.src.utils.python_utils import pythonify_logs

from lockstep._engine.keras import agreement, programs, running
from lockstep._engine.keras.callbacks import callback_list
from lockstep._engine.keras.listening import BatchListener
from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.state import TEST, ModelState


def evaluate(
    model: Any,
    owned: Ownership,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    verbose: Any = "auto",
    sample_weight: Any = None,
    steps: int | None = None,
    callbacks: Any = None,
    return_dict: bool = False,
    **kwargs: Any,
) -> Any:
    """Stands in for `keras.Model.evaluate`; all arguments as there, `batch_size` is the global one."""
    model._assert_compile_called("evaluate")
    use_cached = kwargs.pop("_use_cached_eval_dataset", False)
    position = kwargs.pop("_position", None)
    if kwargs:
        raise ValueError(f"Arguments not recognized: {kwargs}")
    runtime = owned.replicas.runtime
    with running.guarded(owned, "evaluate"):
        feed = getattr(model, "_eval_epoch_iterator", None) if use_cached else None
        if feed is None:
            arguments = {"y": y, "sample_weight": sample_weight, "batch_size": batch_size, "steps_per_epoch": steps}
            source = running.source_for(owned, "evaluate", model, x, shuffle=False, **arguments)
            running.build(model, source)
            feed = running.feed_of(source, programs.test_program(model, owned), owned, steps)
            if position is not None:
                feed.resume(position)
        if use_cached:
            model._eval_epoch_iterator = feed
        program = programs.test_program(model, owned)
        called = callback_list(callbacks, model, runtime, verbose, epochs=1, steps=feed.num_batches)
        state = ModelState(model, owned, program, TEST)
        model.stop_evaluating = False
        called.on_test_begin()
        agreement.begin_run(runtime, "evaluate", state, {}, feed)
        model.reset_metrics()
        listener = _TestListener("test", model, called, runtime)
        with state.attached():
            steps_done = running.drive(feed, program, state, listener)
            listener.end()
        running.demand_data(steps_done)
        logs = pythonify_logs(model._get_metrics_result_or_logs(listener.logs))
        runtime.release()
        called.on_test_end(logs)
    return logs if return_dict else model._flatten_metrics_in_order(logs)


class _TestListener(BatchListener):
    """Keras' callbacks for test batches as the loop's listener."""

    def stops(self, step: int) -> bool:
        """Whether the evaluation ends here."""
        del step
        return self.model.stop_evaluating
