"""Steps that are not finite are undone: on many devices, one by one and several a dispatch."""

from __future__ import annotations

import logging
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep.errors import ArgumentError, NonFiniteError, UnsupportedError
from lockstep.training.callbacks._non_finite import NonFinite

ROWS, BATCH = 64, 8
X = np.random.default_rng(0).normal(size=(ROWS, 3)).astype("float32")
Y = np.random.default_rng(1).normal(size=(ROWS, 2)).astype("float32")


def with_nan(*batches: int) -> np.ndarray[Any, Any]:
    x = X.copy()
    for batch in batches:
        x[batch * BATCH + 5, 1] = np.nan
    return x


def without(values: np.ndarray[Any, Any], *batches: int) -> np.ndarray[Any, Any]:
    return np.delete(values, [b * BATCH + i for b in batches for i in range(BATCH)], axis=0)


def model_of(statistics: str = "global") -> keras.Model:
    keras.utils.set_random_seed(3)
    with ls.distribute.MirroredStrategy(batch_statistics=statistics).scope():
        model = keras.Sequential(
            [keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
        )
        model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"])
    return model


def trained(x: Any, y: Any, *callbacks: Any, epochs: int = 1, statistics: str = "global") -> tuple[Any, Any]:
    model = model_of(statistics)
    history = model.fit(x, y, BATCH, epochs=epochs, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model, history.history


class Looks(keras.callbacks.Callback):
    """Looks at each batch, so that each is a dispatch."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None: ...


@pytest.mark.slow
@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("statistics", ["global", "replica"])
def test_a_skipped_step_leaves_no_trace(looks: bool, statistics: str, caplog: pytest.LogCaptureFixture) -> None:
    """Weights, the optimizer's variables and metrics are those of data without the batch."""
    callback = NonFinite("skip")
    more = [Looks()] if looks else []
    found, history = trained(with_nan(2, 5), Y, callback, *more, statistics=statistics)
    expected, reference = trained(without(X, 2, 5), without(Y, 2, 5), statistics=statistics)
    for a, b in zip(found.variables, expected.variables, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(history["loss"], reference["loss"], rtol=1e-5)
    assert callback.undone == 2
    assert "batch 3 of epoch 1" in caplog.text
    assert "In its input: this process: 2 values of array 0 of all data." in caplog.text


@pytest.mark.slow
def test_watching_changes_nothing_else() -> None:
    callback = NonFinite("skip")
    found, history = trained(X, Y, callback, epochs=2)
    expected, reference = trained(X, Y, epochs=2)
    for a, b in zip(found.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(history["mae"], reference["mae"], rtol=1e-6)
    assert callback.undone == 0


@pytest.mark.slow
@pytest.mark.parametrize("looks", [False, True])
def test_an_error_names_the_step_and_the_input_and_keeps_the_weights(looks: bool) -> None:
    model = model_of()
    callbacks = [NonFinite(), *([Looks()] if looks else [])]
    with pytest.raises(
        NonFiniteError, match=r"The loss of batch 4 of epoch 1.* is not finite\. In its input: this"
    ) as e:
        model.fit(with_nan(3), Y, BATCH, epochs=3, shuffle=False, verbose=0, callbacks=callbacks)
    assert "All tasks stop with the weights before it" in str(e.value)
    expected, _ = trained(X[: 3 * BATCH], Y[: 3 * BATCH])
    for a, b in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_second_epoch_is_named() -> None:
    class Poison(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 1:
                self.model.layers[0].bias.assign(np.full(4, np.nan, "float32"))

    with pytest.raises(NonFiniteError, match=r"batch 1 of epoch 2.*The input of all tasks was finite"):
        trained(X, Y, Poison(), NonFinite(), epochs=3)


def test_training_may_end_as_with_keras(caplog: pytest.LogCaptureFixture) -> None:
    model, history = trained(with_nan(3), Y, NonFinite("stop"), epochs=5)
    assert len(history["loss"]) == 1 and np.isfinite(history["loss"]).all()
    assert all(np.isfinite(w).all() for w in model.get_weights())
    assert [r.levelno for r in caplog.records if "batch 4 of epoch 1" in r.getMessage()] == [logging.ERROR]


@pytest.mark.slow
def test_too_many_in_a_row_are_an_error() -> None:
    with pytest.raises(NonFiniteError, match="That is 2 in a row"):
        trained(with_nan(1, 4, 5), Y, NonFinite("skip", most_in_a_row=2))
    callback = NonFinite("skip", most_in_a_row=3)
    trained(with_nan(1, 4, 5, 7), Y, callback)
    assert callback.undone == 4


@pytest.mark.slow
def test_no_checkpoint_holds_what_is_not_finite(tmp_path: Any) -> None:
    saver = keras.callbacks.ModelCheckpoint(str(tmp_path / "{batch}.weights.h5"), save_freq=1, save_weights_only=True)
    with pytest.raises(NonFiniteError):
        trained(with_nan(3), Y, saver, NonFinite(), epochs=9)
    saved = sorted(tmp_path.glob("*.h5"))
    assert len(saved) >= 3
    for path in saved:
        model = model_of()
        model.optimizer.build(model.trainable_variables)
        model.load_weights(path)
        assert all(np.isfinite(w).all() for w in model.get_weights()), path


def test_a_gradient_that_is_not_finite_is_enough() -> None:
    """The loss is finite: the square root of 0 has no gradient."""

    def loss(y: Any, predicted: Any) -> Any:
        return keras.ops.sqrt(keras.ops.mean(keras.ops.square(predicted * 0.0))) + 0.0 * keras.ops.mean(y)

    with ls.distribute.MirroredStrategy().scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        model.compile("sgd", loss)
    with pytest.raises(NonFiniteError, match=r"batch 1 of epoch 1, or a gradient of it"):
        model.fit(X, Y, BATCH, verbose=0, callbacks=[NonFinite()])
    assert all(np.isfinite(w).all() for w in model.get_weights())


@pytest.mark.slow
def test_half_precision_scales_its_loss_as_ever() -> None:
    """Gradients that overflow make the scale smaller, and are no failure."""
    keras.utils.set_random_seed(3)
    with ls.distribute.MirroredStrategy().scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, dtype="mixed_float16")])
        inner = keras.optimizers.SGD(0.01)
        model.compile(keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**30), "mse")
    callback = NonFinite("skip")
    model.fit(X, Y, BATCH, verbose=0, callbacks=[callback])
    assert callback.undone == 0
    assert float(model.optimizer.dynamic_scale) < 2.0**30


@pytest.mark.slow
def test_a_constant_may_be_infinite() -> None:
    class Masked(keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.mask = self.add_weight(shape=(3,), initializer=lambda *a, **k: -np.inf * np.ones(3), trainable=False)

        def call(self, x: Any) -> Any:
            return x + keras.ops.maximum(self.mask, 0.0)

    with ls.distribute.MirroredStrategy().scope():
        model = keras.Sequential([keras.Input((3,)), Masked(), keras.layers.Dense(2)])
        model.compile("sgd", "mse")
    callback = NonFinite("skip")
    model.fit(X, Y, BATCH, verbose=0, callbacks=[callback])
    assert callback.undone == 0


@pytest.mark.slow
def test_a_model_trains_with_it_and_without_it() -> None:
    model = model_of()
    model.fit(X, Y, BATCH, verbose=0, callbacks=[NonFinite("skip")])
    model.fit(with_nan(0), Y, BATCH, verbose=0)
    assert any(np.isnan(w).any() for w in model.get_weights()), "nobody asked for more"
    model.train_on_batch(X, Y)
    model = model_of()
    model.fit(X, Y, BATCH, verbose=0)
    with pytest.raises(NonFiniteError):
        model.fit(with_nan(0), Y, BATCH, verbose=0, callbacks=[NonFinite()])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [({"policy": "ignore"}, "policy is one of 'raise', 'stop', 'skip'"), ({"most_in_a_row": 0}, "a number from 1 on")],
)
def test_arguments_are_checked(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        NonFinite(**arguments)


def test_a_model_of_plain_keras_is_refused() -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    with pytest.raises(UnsupportedError, match="belongs to no strategy"):
        model.fit(X, Y, BATCH, verbose=0, callbacks=[NonFinite()])
