"""Keras' methods for models that train with parameter servers, on every task of the job.

The chief's call is the one that counts: it reads data, calls callbacks and validates. Workers compute what it leases
to them, servers hold the variables, and all return what the chief returns.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import Any

import keras
from keras.src.backend import config
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.utils.python_utils import pythonify_logs

from lockstep._engine.input import random_state, samples
from lockstep._engine.input.feed import Feed
from lockstep._engine.input.source import Source, dataset_of, source_of
from lockstep._engine.keras import trainer
from lockstep._engine.keras.callbacks import callback_list, log_directory
from lockstep._engine.keras.compiled_models import is_compiled
from lockstep._engine.keras.fit import EpochDriver
from lockstep._engine.keras.fit import fit as fit_scheduled
from lockstep._engine.keras.ownership import Ownership
from lockstep._engine.keras.recovery import pack
from lockstep._engine.keras.servers import results
from lockstep._engine.keras.servers.chief import ChiefTraining
from lockstep._engine.keras.servers.chief_fit import ServersFit
from lockstep._engine.keras.servers.chief_program import ChiefProgram, ChiefState
from lockstep._engine.keras.servers.held import HeldModel
from lockstep._engine.keras.servers.local_program import LocalProgram, LocalState
from lockstep._engine.keras.servers.options import ServerOptions
from lockstep._engine.keras.servers.scheduled import scheduler_of
from lockstep._engine.keras.servers.tables import tables_by
from lockstep._engine.keras.servers.ticket_client import TicketClient, Training
from lockstep._engine.keras.servers.ticket_program import TicketProgram
from lockstep._engine.keras.validation import ValidationData
from lockstep._engine.servers.call import Call
from lockstep._engine.servers.chief_call import ChiefCall
from lockstep._engine.servers.host_program import HostProgram
from lockstep._engine.servers.messages import Superseded
from lockstep._engine.servers.worker import work
from lockstep.errors import ArgumentError, PeerError, UnsupportedError

_log = logging.getLogger("lockstep")


def fit(
    model: Any,
    owned: Ownership,
    x: Any = None,
    y: Any = None,
    batch_size: int | None = None,
    epochs: int = 1,
    verbose: Any = "auto",
    callbacks: Any = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: Any = True,
    class_weight: Any = None,
    sample_weight: Any = None,
    initial_epoch: int = 0,
    steps_per_epoch: int | None = None,
    validation_steps: int | None = None,
    validation_batch_size: int | None = None,
    validation_freq: Any = 1,
) -> Any:
    """Stands in for `keras.Model.fit`; all arguments as there, `batch_size` is that of one update."""
    model._assert_compile_called("fit")
    options = _options(owned)
    _check_compiled(model)
    if options.role == "chief" and (scheduler := scheduler_of(options)) is not None:
        given = (x, y, batch_size, epochs, verbose, callbacks, validation_split, validation_data, shuffle, class_weight)
        rest = (sample_weight, initial_epoch, steps_per_epoch, validation_steps, validation_batch_size, validation_freq)
        return fit_scheduled(model, replace(owned, scheduler=scheduler), *given, *rest)
    epochs = trainer.cap(epochs, config.max_epochs(), "epochs")
    if validation_split and validation_data is None:
        parts: Any = array_slicing.train_validation_split((x, y, sample_weight), validation_split=validation_split)
        (x, y, sample_weight), validation_data = parts
    facts = {"epochs": epochs, "steps_per_epoch": steps_per_epoch, "batch_size": batch_size}
    call = options.job.begin("fit", {**facts, "validation": validation_data is not None})
    data = partial(
        _source,
        model,
        owned,
        x,
        y=y,
        sample_weight=sample_weight,
        batch_size=batch_size,
        steps_per_epoch=steps_per_epoch,
        shuffle=shuffle,
        class_weight=class_weight,
    )
    if not isinstance(call, ChiefCall):
        return _follow_fit(model, owned, call, data, steps_per_epoch)

    # ---- Input and the model, as in a fit of one task ----
    random = random_state.snapshot()
    source = data()
    with tables_by(options.policy):
        trainer.build(model, source)
    validation = ValidationData(
        model, validation_data, validation_batch_size or batch_size, validation_steps, validation_freq
    )
    runtime = owned.replicas.runtime
    called: Any = None
    begins_from: str | None = None
    while True:
        training = ChiefTraining(call, model, owned, options, _train_program(model, owned))
        training.extra = {"random": random}
        training.restore_from = begins_from
        program = ChiefProgram(training, runtime)
        state = ChiefState(model, owned, program, training)
        feed = trainer.make_feed(source, program, owned, steps_per_epoch)
        if called is None:
            steps = feed.num_batches
            called = callback_list(callbacks, model, runtime, verbose, add_history=True, epochs=epochs, steps=steps)
        backup = next((c for c in called.callbacks if hasattr(c, "attach_run")), None)
        training.cut_directory = getattr(backup, "backup_dir", None)

        # ---- The one loop, in which others compute most of the batches ----
        steps = ServersFit(model, owned, feed, program, called, validation, epochs, initial_epoch, class_weight)
        steps.training = training
        owned.is_training = True
        try:
            with runtime.collective_region("fit"):
                EpochDriver(steps, state, program, feed, called, runtime, log_directory(callbacks)).run()
            break
        except Superseded as lost:
            begins_from = _give_up(training, lost)
            random_state.restore(random)
            source = data()
        finally:
            owned.is_training = False
    training.materialize()
    if backup is not None and getattr(backup, "delete_checkpoint", False):
        training.remove_cuts()
    _end_with_history(call, model)
    return model.history


def _give_up(training: ChiefTraining, lost: Superseded) -> str | None:
    """Ends training whose state a server has lost; returns the backup that the next one begins from, if any."""
    if training.cut_directory is None:
        raise PeerError(
            f"{lost}: what it held is lost, and there is no backup to go back to. Pass "
            "BackupAndRestore with a directory that all tasks reach."
        ) from lost
    _log.warning("%s. Training goes back to the last backup.", lost)
    training.give_up()
    return training.restore_from


def _end_with_history(call: ChiefCall, model: Any) -> None:
    """Has all tasks return the chief's history."""
    arrays: dict[str, Any] = results.arrays_of(model)
    history = {"history": model.history.history, "epoch": model.history.epoch}
    call.end(pack(history, "history", arrays), arrays)


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
    """Stands in for `keras.Model.evaluate`: the chief computes, and all tasks return its results."""
    model._assert_compile_called("evaluate")
    use_cached = kwargs.pop("_use_cached_eval_dataset", False)
    position = kwargs.pop("_position", None)
    if kwargs:
        raise ValueError(f"Arguments not recognized: {kwargs}")
    options = _options(owned)
    _check_compiled(model)
    # A validation is part of the chief's fit.
    call = None if owned.is_training else options.job.begin("evaluate", {"batch_size": batch_size, "steps": steps})
    if call is not None and not isinstance(call, ChiefCall):
        return results.logs_of(results.follow(call), return_dict)
    feed = getattr(model, "_eval_epoch_iterator", None) if use_cached else None
    if feed is None:
        source = _source(
            model,
            owned,
            x,
            y=y,
            sample_weight=sample_weight,
            batch_size=batch_size,
            steps_per_epoch=steps,
            shuffle=False,
        )
        with tables_by(options.policy):
            trainer.build(model, source)
        feed = trainer.make_feed(source, HostProgram(owned.replicas.runtime), owned, steps)
        if position is not None:
            feed.resume(position)
    if use_cached:
        model._eval_epoch_iterator = feed
    runtime = owned.replicas.runtime
    called = callback_list(callbacks, model, runtime, verbose, epochs=1, steps=feed.num_batches)
    model.stop_evaluating = False
    called.on_test_begin()
    model.reset_metrics()
    program = LocalProgram(model, owned, "test_step")
    state = LocalState(model, owned, program, is_prediction=False)
    listener = trainer.TestListener("test", model, called, runtime)
    trainer.run_batches(feed, program, state, listener)
    state.sync()
    logs = pythonify_logs(model._get_metrics_result_or_logs(listener.logs))
    called.on_test_end(logs)
    in_order = model._flatten_metrics_in_order(logs)
    if call is not None:
        results.end(call, results.order_logs(logs, in_order))
    return logs if return_dict else in_order


def predict(
    model: Any,
    owned: Ownership,
    x: Any,
    batch_size: int | None = None,
    verbose: Any = "auto",
    steps: int | None = None,
    callbacks: Any = None,
) -> Any:
    """Stands in for `keras.Model.predict`: the chief computes, and all tasks return its predictions."""
    options = _options(owned)
    _check_compiled(model)
    call = None if owned.is_training else options.job.begin("predict", {"batch_size": batch_size, "steps": steps})
    if call is not None and not isinstance(call, ChiefCall):
        return results.follow(call)
    source = _source(model, owned, x, batch_size=batch_size, steps_per_epoch=steps, shuffle=False)
    _build_layers(model, options, lambda: trainer.opened_first_batch(source))
    runtime = owned.replicas.runtime
    feed = trainer.make_feed(source, HostProgram(runtime), owned, steps)
    called = callback_list(callbacks, model, runtime, verbose, epochs=1, steps=feed.num_batches)
    model.stop_predicting = False
    called.on_predict_begin()
    program = LocalProgram(model, owned, "predict_step")
    listener = trainer.PredictListener("predict", model, called, runtime)
    trainer.run_batches(feed, program, LocalState(model, owned, program, is_prediction=True), listener)
    predictions = trainer.concatenate(listener.outputs)
    called.on_predict_end()
    if call is not None:
        results.end(call, predictions)
    return predictions


# ---- Methods on one batch ----


def train_on_batch(
    model: Any,
    owned: Ownership,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    class_weight: Any = None,
    return_dict: bool = False,
) -> Any:
    """Stands in for `keras.Model.train_on_batch`: the chief computes the update, and servers apply it."""
    model._assert_compile_called("train_on_batch")
    options = _options(owned)
    _check_compiled(model)
    if class_weight is not None:
        if sample_weight is not None:
            raise ArgumentError(
                "Only one of `sample_weight` and `class_weight` can weigh a batch. Received both. Multiply them."
            )
        sample_weight = data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
    batch = (x, y, sample_weight)
    with tables_by(options.policy):
        model._symbolic_build(data_batch=batch)
    call = options.job.begin("train_on_batch")
    if not isinstance(call, ChiefCall):
        return results.logs_of(results.follow_training(model, call), return_dict)
    model.reset_metrics()
    training = ChiefTraining(call, model, owned, options, _train_program(model, owned))
    training.extra = {"random": random_state.snapshot()}
    training.begin_epoch(0, 0, 1, {"random": random_state.snapshot(), "data": None})
    program = ChiefProgram(training, owned.replicas.runtime)
    outputs = training.train(program.place_batch(trainer.canonical_batch(batch)).data)
    training.end_epoch(1)
    training.sync()
    training.materialize()
    logs = pythonify_logs(outputs.last)
    arrays: dict[str, Any] = results.arrays_of(model)
    in_order = model._flatten_metrics_in_order(logs)
    call.end(pack(results.order_logs(logs, in_order), "logs", arrays), arrays)
    return logs if return_dict else in_order


def test_on_batch(
    model: Any, owned: Ownership, x: Any, y: Any = None, sample_weight: Any = None, return_dict: bool = False
) -> Any:
    """Stands in for `keras.Model.test_on_batch`: the chief computes, and all tasks return its results."""
    model._assert_compile_called("test_on_batch")
    options = _options(owned)
    batch = (x, y, sample_weight)
    with tables_by(options.policy):
        model._symbolic_build(data_batch=batch)
    call = options.job.begin("test_on_batch")
    if not isinstance(call, ChiefCall):
        return results.logs_of(results.follow(call), return_dict)
    model.reset_metrics()
    program = LocalProgram(model, owned, "test_step")
    outputs, _ = program.run((), program.place_batch(trainer.canonical_batch(batch)))
    program.sync()
    logs = pythonify_logs(outputs.last)
    in_order = model._flatten_metrics_in_order(logs)
    results.end(call, results.order_logs(logs, in_order))
    return logs if return_dict else in_order


def predict_on_batch(model: Any, owned: Ownership, x: Any) -> Any:
    """Stands in for `keras.Model.predict_on_batch`: the chief computes, and all tasks return its predictions."""
    options = _options(owned)
    _build_layers(model, options, lambda: (x,))
    call = options.job.begin("predict_on_batch")
    if not isinstance(call, ChiefCall):
        return results.follow(call)
    program = LocalProgram(model, owned, "predict_step")
    outputs, _ = program.run((), program.place_batch(trainer.canonical_batch((x,))))
    predictions = trainer.concatenate([outputs.last])
    results.end(call, predictions)
    return predictions


# ---- Other tasks ----


def _follow_fit(model: Any, owned: Ownership, call: Call, data: Any, steps_per_epoch: int | None) -> Any:
    """Makes a fit on a task that is not the chief; returns the chief's history."""
    options = _options(owned)
    opened = call.opened()
    layout = None
    if opened is not None:
        spec, extra = opened
        layout = spec.layout
        training = Training.from_json(extra["training"])
        random_state.restore(extra["random"])
        source = data()
        with tables_by(options.policy):
            trainer.build(model, source)
        count = len(model.trainable_variables)
        rows = [i for i, v in enumerate(spec.layout.variables[:count]) if v.kind == "rows"]
        held = HeldModel.of(model, rows)
        held.check_same(spec.layout.variables, options.task)
        held = held.renamed(spec.layout.variables)
        if options.role == "worker":
            client = TicketClient(call, model, _train_program(model, owned), held, training)
            client.compares_data = samples.is_comparing()

            def make_feed() -> Feed:
                nonlocal source
                made, source = source or data(), None
                return trainer.make_feed(made, HostProgram(owned.replicas.runtime), owned, steps_per_epoch)

            work(call, client, make_feed)
    found = results.follow_training(model, call, layout)
    history = keras.callbacks.History()
    history.set_model(model)
    history.history, history.epoch = found["history"], found["epoch"]
    model.history = history
    return history


# ---- What all of them share ----


def _options(owned: Ownership) -> ServerOptions:
    assert owned.servers is not None
    return owned.servers


def _check_compiled(model: Any) -> None:
    """Raises `UnsupportedError` for a model whose steps are not compiled."""
    if not is_compiled(model):
        raise UnsupportedError(
            "What servers need of a step is taken from its trace. Received: a model with run_eagerly=True or "
            "jit_compile=False. Leave these out, or debug with a strategy without parameter servers."
        )


def _train_program(model: Any, owned: Ownership) -> TicketProgram:
    """Returns the model's step of training, which is kept where Keras keeps its own."""
    options = _options(owned)
    if not isinstance(model.train_function, TicketProgram):
        shares = options.shares if options.is_synchronous else 1
        model.train_function = TicketProgram(model, owned.replicas, "train_step", shares)
    return model.train_function


def _source(model: Any, owned: Ownership, x: Any, **arguments: Any) -> Source:
    """Returns the source of a call's data: whole batches, of which a task computes what it leases."""
    return source_of(dataset_of(x), owned.replicas, False, **arguments)


def _build_layers(model: Any, options: ServerOptions, first_batch: Any) -> None:
    """Builds layers that are not, and computes nothing that stays."""
    if all(layer.built for layer in model._flatten_layers()):
        return
    inputs, _, _ = data_adapter_utils.unpack_x_y_sample_weight(first_batch())
    with tables_by(options.policy), keras.StatelessScope():
        model(inputs)
