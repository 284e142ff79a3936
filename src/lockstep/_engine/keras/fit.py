"""`fit` of a model that belongs to a strategy, and the one order of events of a training: `EpochDriver.run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
from keras.src.backend import config
from keras.src.trainers.data_adapters import array_slicing

from lockstep._engine.input.arrays import facts_of
from lockstep._engine.input.batch import no_batch
from lockstep._engine.input.feed import Feed
from lockstep._engine.input.samples import Sample
from lockstep._engine.keras import agreement, programs, trainer
from lockstep._engine.keras.callbacks import BatchListener, callback_list, log_directory
from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.recovery import Progress, Recovery
from lockstep._engine.keras.state import TRAIN, ModelState
from lockstep._engine.keras.train_call import EpochListener, EpochState, TrainCall
from lockstep._engine.keras.validation import ValidationData
from lockstep._engine.loop import loop
from lockstep._engine.runtime.progress import CALLBACKS
from lockstep._engine.runtime.recorder import Recorder, recording
from lockstep._engine.runtime.runtime import Runtime
from lockstep._engine.step.batches import Outputs
from lockstep._engine.step.protocol import Program
from lockstep._types import JSON, Model, PyTree
from lockstep.errors import Preempted


def fit(
    model: Model,
    owned: Ownership,
    x: PyTree = None,
    y: PyTree = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: Any = True,
    class_weight: Any = None,
    sample_weight: PyTree = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: Any = 1,
) -> Any:
    """Stands in for `keras.Model.fit`; all arguments as there, `batch_size` is the global one."""
    model._assert_compile_called("fit")
    epochs = trainer.cap(epochs, config.max_epochs(), "epochs")
    if validation_split and validation_data is None:
        parts: Any = array_slicing.train_validation_split((x, y, sample_weight), validation_split=validation_split)
        (x, y, sample_weight), validation_data = parts
    with owned.collective_call("fit"):
        # ---- Input: every worker passes the same data, and reads its own rows of each batch ----
        source = trainer.make_source(
            owned,
            "fit",
            model,
            x,
            y=y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps_per_epoch=steps_per_epoch,
            shuffle=shuffle,
            class_weight=class_weight,
        )
        validation = ValidationData(
            model, validation_data, validation_batch_size or batch_size, validation_steps, validation_freq
        )

        # ---- Compile: the model's own train_step, for its replicas; traced when the first batch comes ----
        trainer.build(model, source)
        program, state = _training(model, owned)
        feed = trainer.make_feed(source, program, owned, steps_per_epoch)

        # ---- Callbacks: those that write files run on the chief only ----
        runtime = owned.replicas.runtime
        called = callback_list(
            callbacks, model, runtime, verbose, add_history=True, epochs=epochs, steps=feed.num_batches
        )

        # ---- Agree, restore, epochs, validation ----
        call = ModelFit(model, owned, feed, program, called, validation, epochs, initial_epoch, class_weight)
        EpochDriver(call, state, program, feed, called, runtime, log_directory(callbacks)).run()
    return model.history


def _training(model: Model, owned: Ownership) -> tuple[Any, ModelState]:
    """Returns the training step of a model, and its variables as the state of it."""
    if owned.scheduler is not None:
        # Imported here: most programs have no parameter servers.
        from lockstep._engine.keras.servers.scheduled import ScheduledProgram, ScheduledState

        scheduled = ScheduledProgram(model, owned.scheduler(), owned.replicas.runtime)
        return scheduled, ScheduledState(model, owned, scheduled)
    program = programs.train_program(model, owned)
    return program, ModelState(model, owned, program, TRAIN)


class EpochDriver:
    """Trains epoch after epoch: the order of events behind `Model.fit` and `lockstep.training.Program.fit`.

    Args:
        call: What differs between the two.
        log_dir: The directory that callbacks log to, if any: the run's report goes there.
    """

    def __init__(
        self,
        call: TrainCall,
        state: EpochState,
        program: Program,
        feed: Feed,
        callbacks: Any,
        runtime: Runtime,
        log_dir: str | None = None,
    ) -> None:
        self._call = call
        self._state = state
        self._program = program
        self._feed = feed
        self._callbacks = callbacks
        self._runtime = runtime
        self._log_dir = log_dir
        self._recorder: Recorder | None = None
        self._recovery = Recovery(call.model, state, feed, program, callbacks, runtime, call.validation)

    def run(self) -> None:
        """Trains from the beginning, or from where a backup stands, to the end, and leaves a report of that."""
        runtime, call = self._runtime, self._call
        account, task = runtime.preemption.progress, runtime.tasks[runtime.process]
        with recording(
            account, task, self._log_dir, call.name, call.about(), is_chief=runtime.is_chief
        ) as self._recorder:
            self._train()

    def _train(self) -> None:
        call, recovery = self._call, self._recovery
        is_done = False
        try:
            # As Keras: a model that was stopped in an earlier call trains again.
            call.model.stop_training = False
            # ---- Read the backup: callbacks that write files must know in on_train_begin whether to append ----
            with recovery.read_backup():
                self._callbacks.on_train_begin()

            # ---- Agree: one message compares arguments, data, variables and compiled steps of all workers ----
            facts = call.facts(recovery.facts())
            first = [call.initial_epoch, recovery.message_size()]
            initial_epoch, size = agreement.begin_run(self._runtime, call.name, self._state, facts, call.data, first)

            # ---- Restore: variables, callbacks, random states, and the position in the data ----
            progress = recovery.resume(initial_epoch, size)
            call.begin(progress, size is not None)
            if size is not None and self._recorder is not None:
                self._recorder.restored()

            self._run_epochs(progress.epoch)
            is_done = True
        finally:
            recovery.finish(is_done)

    def _run_epochs(self, epoch: int) -> None:
        call, recovery, runtime = self._call, self._recovery, self._runtime
        logs: dict[str, Any] = {}
        is_complete = False
        try:
            while not call.is_over(epoch, recovery.progress):
                logs = self._run_epoch(epoch)
                if call.has_all_steps(recovery.progress):
                    break

                # ---- Stop: on all workers, if a callback of any of them asks for it ----
                stops = any(runtime.all_gather_object(f"the end of epoch {epoch}", bool(call.model.stop_training)))
                call.model.stop_training = stops
                if stops:
                    # Before the save: a backup of a training that has ended holds combined weights.
                    self._state.flush(ends=True)

                # ---- Save: after all callbacks, whose state is part of a backup ----
                recovery.on_epoch(epoch, stops)
                epoch += 1
            is_complete = True
        except Preempted:
            # All workers have come to the same step.
            for callback in self._callbacks.callbacks:
                if callable(getattr(callback, "on_preempted", None)):
                    callback.on_preempted()
            raise
        finally:
            call.close(is_complete)
        # All steps are done on all workers: what fails in on_train_end fails on this one alone.
        runtime.release(logs)
        self._callbacks.on_train_end(logs=logs)

    def _run_epoch(self, epoch: int) -> dict[str, Any]:
        call, state, feed, recovery = self._call, self._state, self._feed, self._recovery
        # ---- Begin: callbacks may change variables, which all workers must do alike ----
        call.begin_epoch(epoch)
        progress = recovery.begin_epoch(epoch)
        with self._runtime.preemption.progress.being(CALLBACKS):
            self._callbacks.on_epoch_begin(epoch)
        # After on_epoch_begin, and before workers compare: what callbacks do there again is overwritten by the backup.
        recovery.resume_epoch()
        agreement.begin_epoch(self._runtime, epoch, state, feed)

        # ---- Train on the batches that are left; none if a backup was saved while the validation was under way ----
        if not progress.trained:
            listener = call.listener(epoch, recovery)
            with state.attached():
                with feed.epoch(state.shapes()) as batches:
                    try:
                        steps = loop.run(batches, self._program, state, listener)
                    except Preempted:
                        recovery.note_data_position()
                        raise
                    if call.has_all_steps(recovery.progress):
                        recovery.note_data_position()  # A later call that trains for longer goes on here.
                listener.end()
                ends = call.flush_mode(epoch, recovery.progress)
                if ends is not None:
                    state.flush(ends)
            state.gather()  # From here on callbacks may read sharded variables on any worker.
            if steps + progress.batches == 0:
                # Data without any batch are an error; an iterator that earlier epochs have used up ends training.
                if not feed.exhausted or epoch == 0:
                    raise no_batch()
                call.model.stop_training = True
            # Validation resets metrics and may draw seeds: a backup that is saved meanwhile has them as they are now.
            recovery.end_steps(listener.logs)

        # ---- Validate, and end the epoch ----
        logs = call.epoch_logs(epoch, recovery.progress.logs)
        with self._runtime.preemption.progress.being(CALLBACKS):
            self._callbacks.on_epoch_end(epoch, logs)
        if self._recorder is not None:
            self._recorder.epoch(epoch, logs)
        return logs


@dataclass
class ModelFit:
    """`Model.fit` as a `TrainCall`."""

    model: Any
    owned: Ownership
    feed: Feed
    program: Program
    callbacks: Any
    validation: ValidationData
    epochs: int
    first_epoch: int
    class_weight: dict[Any, Any] | None
    name = "fit"

    @property
    def data(self) -> _ComparedData:
        return _ComparedData(self.feed, self.validation)

    @property
    def initial_epoch(self) -> int:
        # Keras' attribute first, which its callbacks set in on_train_begin.
        return self.model._initial_epoch or self.first_epoch

    def facts(self, backups: JSON) -> dict[str, Any]:
        weights = self.class_weight and {str(label): float(weight) for label, weight in self.class_weight.items()}
        validation = {
            "given": self.validation.data is not None,
            "steps": self.validation.steps,
            "frequency": self.validation.frequency,
        }
        return {"epochs": self.epochs, "class_weight": weights, "validation": validation, "backups": backups}

    def about(self) -> dict[str, Any]:
        model = self.model
        return {
            "model": model.name,
            "parameters": f"{model.count_params():,}" if model.built else "",
            "optimizer": type(model.optimizer).__name__,
            "epochs": self.epochs,
            "steps of an epoch": self.feed.num_batches,
            "replicas": f"{self.owned.replicas.count} on {len(self.owned.replicas.runtime.tasks)} tasks",
        }

    def begin(self, progress: Progress, is_restored: bool) -> None:
        """Begins at `progress`; a training that a callback had stopped is over."""
        del is_restored
        self.model.stop_training = progress.stopped

    def has_all_steps(self, progress: Progress) -> bool:
        del progress
        return False  # fit counts epochs.

    def is_over(self, epoch: int, progress: Progress) -> bool:
        del progress
        return self.model.stop_training or epoch >= self.epochs

    def begin_epoch(self, epoch: int) -> None:
        del epoch
        self.model.reset_metrics()

    def listener(self, epoch: int, recovery: Recovery) -> EpochListener:
        del epoch
        return TrainListener(self.model, self.callbacks, self.owned, recovery)

    def flush_mode(self, epoch: int, progress: Progress) -> bool:
        del progress
        # Each epoch shows metrics of all replicas; their weights are combined where training ends.
        return epoch == self.epochs - 1

    def epoch_logs(self, epoch: int, logs: Any) -> dict[str, Any]:
        """Returns metrics, and those of the validation as "val_..."."""
        logs = dict(self.model._get_metrics_result_or_logs(logs))
        logs.update(self.validation.run(epoch, self.callbacks))
        return logs

    def close(self, is_complete: bool) -> None:
        """Has the optimizer overwrite the weights by their moving averages, if it keeps some."""
        # A worker that has failed alone must not wait for others to read averages that are sharded over all of them.
        may_read = is_complete or self.program.optimizer_sharding is None or self.owned.replicas.runtime.is_alone
        if isinstance(self.model.optimizer, keras.optimizers.Optimizer) and self.epochs > 0 and may_read:
            self.model.optimizer.finalize_variable_values(self.model.trainable_weights)
        self.validation.close()


@dataclass(frozen=True)
class _ComparedData:
    """The data of a `fit`, which workers compare before the first batch."""

    feed: Feed
    validation: ValidationData

    def facts(self) -> dict[str, Any]:
        """Returns what must be equal on all workers, also of the validation data, which are read later."""
        if self.validation.data is None:
            return {**self.feed.facts(), "validation": None}
        x, y, sample_weight = self.validation.data
        found = facts_of(x, y=y, sample_weight=sample_weight, batch_size=self.validation.batch_size)
        return {**self.feed.facts(), "validation": found}

    def sample(self, number: int) -> Sample | None:
        """Returns a sample of the training data."""
        return self.feed.sample(number)


class TrainListener(BatchListener):
    """Calls Keras' callbacks for training batches, and saves when it is due.

    Args:
        recovery: Knows at which batch of the epoch the loop starts, and saves.
    """

    def __init__(self, model: Model, callbacks: Any, owned: Ownership, recovery: Recovery) -> None:
        runtime = owned.replicas.runtime
        # Variables are read by all workers together only where each holds a part of the optimizer's.
        sync_point = owned.sync_point if owned.replicas.shards_optimizer_state else None
        super().__init__("train", model, callbacks, runtime, sync_point)
        self._runtime = runtime
        self._recovery = recovery
        # The loop counts from 0 where an interrupted epoch goes on.
        self._first = self._saved = recovery.progress.batches
        self._last = recovery.progress.logs

    def max_steps(self, step: int) -> int:
        """Returns how many steps may run before callbacks must be called, or a save is due."""
        step += self._first
        most, until_save = super().max_steps(step), self._recovery.max_steps(step)
        return most if until_save is None else max(1, min(most, until_save))

    def before(self, step: int, steps: int) -> None:
        """Calls `on_train_batch_begin` where a stride begins."""
        super().before(step + self._first, steps)

    def after(self, step: int, outputs: Outputs) -> bool:
        """Calls `on_train_batch_end` where a stride ends, and saves after it; returns whether to stop."""
        step += self._first
        self._recovery.check()
        self._recovery.advance(step + 1, outputs)
        stop = super().after(step, outputs)
        # In the middle of a stride callbacks have not seen all batches, and their state would not fit the position.
        # Where training stops, the end of the epoch saves.
        if self._begun is None and not stop:
            self._save()
        return stop

    def end(self) -> None:
        """Ends a stride that the data cut short."""
        if self._begun is not None:
            super().end()
            self._save()

    def should_stop(self) -> bool:
        """Returns whether training ends here, on all workers after the same step."""
        if not self._runtime.stops_here(bool(self.model.stop_training)):
            return False
        self.model.stop_training = True
        return True

    def _save(self) -> None:
        before, self._saved = self._saved, self._recovery.progress.batches
        self._recovery.on_batches(before)
