"""Keras' methods on a model of a strategy with four devices in this process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
import numpy as np
import pytest
from keras import layers

import lockstep as ls
from lockstep.errors import InputError

Scope = Callable[[], Any]
ROWS = 26


def _data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, 5)).astype("float32"), rng.normal(size=(ROWS, 2)).astype("float32")


def _layers() -> list[Any]:
    keras.utils.set_random_seed(2)
    keras.backend.clear_session()
    return [layers.Dense(7, activation="tanh", name="first"), layers.Dense(2, name="second")]


def _model(scope: Scope, **compile: Any) -> keras.Model:
    with scope():
        model = keras.Sequential([keras.Input((5,)), *_layers()])
        model.compile(**{"optimizer": keras.optimizers.SGD(0.1), "loss": "mse", "metrics": ["mae"], **compile})
    return model


@pytest.fixture(scope="module")
def strategy() -> ls.distribute.Strategy:
    """Four replicas."""
    return ls.distribute.MirroredStrategy()


@pytest.fixture(scope="module")
def scope(strategy: ls.distribute.Strategy) -> Scope:
    """The scope of four replicas."""
    return strategy.scope


no_scope: Scope = ls.distribute.get_strategy().scope


def _assert_same_weights(a: Any, b: Any) -> None:
    for x, y in zip(a.get_weights(), b.get_weights(), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-5)


class _Recorder(keras.callbacks.Callback):
    """Notes every call that a callback gets."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on_"):
            return super().__getattribute__(name)

        def note(*arguments: Any, **named: Any) -> None:
            steps = [a for a in arguments if not isinstance(a, dict) and a is not None]
            logs = [a for a in (*arguments, *named.values()) if isinstance(a, dict)]
            self.calls.append((name, *steps, *(sorted(logs[0]) if logs else ())))

        return note


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1, 3])
def test_callbacks_are_called_as_by_keras(scope: Scope, stride: int) -> None:
    x, y = _data()
    calls = []
    for each in (no_scope, scope):
        recorder = _Recorder()
        model = _model(each, steps_per_execution=stride)
        model.fit(
            x, y, batch_size=4, epochs=3, verbose=0, validation_split=0.2, validation_freq=2, callbacks=[recorder]
        )
        model.evaluate(x, y, batch_size=4, verbose=0, callbacks=[recorder])
        model.predict(x, batch_size=4, verbose=0, callbacks=[recorder])
        calls.append(recorder.calls)
    assert len(calls[0]) > 30
    assert calls[1] == calls[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"steps_per_execution": 4},
        {"run_eagerly": True},
        {"jit_compile": False},
        {"optimizer": "adam", "loss": keras.losses.Huber(), "weighted_metrics": ["mse"]},
    ],
    ids=" ".join,
)
def test_settings_of_compile(scope: Scope, settings: dict[str, Any]) -> None:
    x, y = _data()
    models = [_model(each, **settings) for each in (no_scope, scope)]
    histories = [m.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0).history for m in models]
    _assert_same_weights(*models)
    assert histories[0].keys() == histories[1].keys()
    np.testing.assert_allclose(models[0].predict(x, verbose=0), models[1].predict(x, verbose=0), atol=1e-5)


@pytest.mark.slow
def test_epochs_of_some_steps_continue_where_the_last_one_ended(scope: Scope) -> None:
    x, y = _data()
    models = [_model(each) for each in (no_scope, scope)]
    for model in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            model.fit(x, y, batch_size=4, epochs=5, steps_per_epoch=3, shuffle=False, verbose=0)
    _assert_same_weights(*models)


def _forever(x: np.ndarray, y: np.ndarray, taken: list[int]) -> Iterator[Any]:
    while True:
        for start in range(0, ROWS, 4):
            taken.append(start)
            yield x[start : start + 4], y[start : start + 4]


@pytest.mark.slow
def test_infinite_data_is_not_read_beyond_its_epochs(scope: Scope) -> None:
    x, y = _data()
    taken: list[int] = []
    batches = _forever(x, y, taken)
    model = _model(scope)
    model.fit(batches, steps_per_epoch=5, epochs=2, verbose=0)
    assert len(taken) == 10
    model.fit(batches, steps_per_epoch=5, initial_epoch=2, epochs=3, verbose=0)
    assert len(taken) == 15
    expected = _model(no_scope)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected.fit(_forever(x, y, []), steps_per_epoch=5, epochs=3, verbose=0)
    _assert_same_weights(model, expected)


@pytest.mark.slow
def test_a_generator_that_earlier_epochs_used_up_ends_the_training(scope: Scope) -> None:
    x, y = _data()
    history = _model(scope).fit(((x, y) for _ in range(3)), epochs=4, verbose=0)
    assert history.epoch == [0, 1] or history.epoch == [0]


@pytest.mark.slow
@pytest.mark.parametrize("call", ["fit", "evaluate"])
def test_data_without_a_batch_is_an_error(scope: Scope, call: str) -> None:
    with pytest.raises(InputError, match="at least one batch"):
        getattr(_model(scope), call)(iter(()) if False else (b for b in ()), verbose=0)


@pytest.mark.slow
def test_a_generator_must_yield_tuples(scope: Scope) -> None:
    x, _ = _data()
    with pytest.raises(InputError, match=r"must yield tuples.*Received: ndarray"):
        _model(scope).fit((x for _ in range(3)), verbose=0)
    with pytest.raises(InputError, match="Received: x as a generator, and sample_weight"):
        _model(scope).fit(((x,) for _ in range(3)), sample_weight=np.ones(3), verbose=0)


@pytest.mark.slow
def test_text_is_refused(scope: Scope) -> None:
    _, y = _data()
    with pytest.raises(InputError, match=r"must hold numbers.*Received: <U5 at \[0\]"):
        _model(scope).fit(((np.full((4, 5), "hello"), y[:4]) for _ in range(3)), verbose=0)


@pytest.mark.slow
def test_an_error_of_the_input_is_raised_as_it_is(scope: Scope) -> None:
    x, y = _data()

    def broken() -> Iterator[Any]:
        yield x, y
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        _model(scope).fit(broken(), verbose=0)


@pytest.mark.slow
def test_a_model_is_built_on_its_first_batch(scope: Scope) -> None:
    x, y = _data()
    models = []
    for each in (no_scope, scope):
        with each():
            model = keras.Sequential(_layers())
            model.compile("sgd", "mse")
        model.fit(x, y, batch_size=8, epochs=2, verbose=0)
        models.append(model)
    _assert_same_weights(*models)
    with scope():
        unbuilt = keras.Sequential(_layers())
    assert unbuilt.predict(x, verbose=0).shape == (ROWS, 2)


@pytest.mark.slow
def test_compile_under_a_scope_is_enough(scope: Scope, strategy: ls.distribute.Strategy) -> None:
    from lockstep._engine.keras.ownership import ownership

    model = keras.Sequential([keras.Input((5,)), *_layers()])
    assert ownership(model) is None
    with scope():
        model.compile("sgd", "mse")
    owned = ownership(model)
    assert owned is not None and owned.replicas.count == strategy.num_replicas_in_sync == 4
    x, y = _data()
    model.fit(x, y, verbose=0)


@pytest.mark.slow
def test_without_a_scope_keras_is_untouched(scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    from lockstep._engine.keras import binding

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("lockstep's method was called")

    with scope():
        pass  # The methods are wrapped from here on.
    x, y = _data()
    model = _model(no_scope)
    monkeypatch.setattr("lockstep._engine.keras.fit.EpochDriver.run", never)
    model.fit(x, y, verbose=0)
    with pytest.raises(AssertionError):
        _model(scope).fit(x, y, verbose=0)
    assert binding._installed


@pytest.mark.slow
def test_variables_are_ordinary_local_arrays_between_calls(scope: Scope) -> None:
    x, y = _data()
    model = _model(scope, optimizer="adam")
    model.fit(x, y, verbose=0)
    for variable in model.variables + model.optimizer.variables:
        assert len(variable.value.sharding.device_set) == 1
    np.testing.assert_allclose(model(x), model.predict(x, verbose=0), atol=1e-6)


@pytest.mark.slow
def test_training_runs_on_every_device(scope: Scope, strategy: ls.distribute.Strategy) -> None:
    x, y = _data()
    model = _model(scope)
    model.fit(x[:24], y[:24], batch_size=24, verbose=0)
    program = model.train_function
    placed = program.place_batch((x[:24], y[:24]))
    assert [s.data.shape[0] for s in placed.data[0].addressable_shards] == [6] * 4
    assert len({s.device for s in placed.data[0].addressable_shards}) == len(jax.local_devices()) == 4


@pytest.mark.slow
def test_weights_set_between_calls_count(scope: Scope) -> None:
    x, y = _data()
    models = [_model(each) for each in (no_scope, scope)]
    for model in models:
        model.fit(x, y, shuffle=False, verbose=0)
        model.set_weights([w * 0.5 for w in model.get_weights()])
        model.optimizer.learning_rate = 0.01
        model.fit(x, y, shuffle=False, verbose=0)
    _assert_same_weights(*models)


@pytest.mark.slow
def test_a_callback_may_change_weights_and_the_learning_rate(scope: Scope) -> None:
    class Change(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                self.model.set_weights([w + 0.1 for w in self.model.get_weights()])

    x, y = _data()
    models = [_model(each) for each in (no_scope, scope)]
    for model in models:
        schedule = keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1))
        model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[Change(), schedule])
    _assert_same_weights(*models)


def test_predictions_keep_their_structure(scope: Scope) -> None:
    x, _ = _data()
    with scope():
        inputs = keras.Input((5,))
        model = keras.Model(inputs, {"a": layers.Dense(2)(inputs), "b": [layers.Dense(1)(inputs)]})
    predicted = model.predict(x, batch_size=7, verbose=0)
    assert predicted["a"].shape == (ROWS, 2)
    assert predicted["b"][0].shape == (ROWS, 1)
    assert isinstance(predicted["a"], np.ndarray)


@pytest.mark.slow
def test_results_on_batch_have_keras_forms(scope: Scope) -> None:
    x, y = _data()
    models = [_model(each) for each in (no_scope, scope)]
    results = []
    for model in models:
        results.append(
            [
                model.train_on_batch(x, y),
                model.test_on_batch(x, y, sample_weight=np.arange(ROWS, dtype="float32")),
                model.train_on_batch(x, y, return_dict=True),
            ]
        )
    np.testing.assert_allclose(results[0][0], results[1][0], atol=1e-5)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-5)
    assert results[0][2].keys() == results[1][2].keys()
    assert isinstance(results[1][2]["loss"], float)


def test_a_model_that_is_not_compiled_says_so(scope: Scope) -> None:
    with scope():
        model = keras.Sequential([keras.Input((5,)), *_layers()])
    with pytest.raises(ValueError, match="compile"):
        model.fit(*_data(), verbose=0)


@pytest.mark.slow
def test_early_stopping_restores_the_best_weights(scope: Scope) -> None:
    x, y = _data()
    models = [_model(each, optimizer=keras.optimizers.SGD(3.0)) for each in (no_scope, scope)]
    epochs = []
    for model in models:
        stopper = keras.callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True)
        epochs.append(model.fit(x, y, epochs=9, shuffle=False, verbose=0, callbacks=[stopper]).epoch)
    assert epochs[0] == epochs[1]
    _assert_same_weights(*models)
