"""Gradients that travel in bfloat16, as programs ask for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import keras
import numpy as np
import pytest
from keras import layers

import lockstep as ls
from lockstep import _platforms
from lockstep._engine.keras.ownership import ownership
from lockstep.distribute import _multi_worker
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.training.callbacks._backup_and_restore import BackupAndRestore
from tests.engine.runtime.jobs import Job
from tests.support.cluster import CASE_SECONDS

distribute = ls.distribute
Options = distribute.CommunicationOptions
NARROW = Options(gradient_dtype="bfloat16")


def mirrored(options: Any = NARROW, count: int = 4, **more: Any) -> Any:
    """A strategy of this process."""
    return distribute.MirroredStrategy([f"cpu:{i}" for i in range(count)], communication_options=options, **more)


def model_of(strategy: Any, rate: float = 0.1, optimizer: Any = None) -> keras.Model:
    """A small model with something of each kind: gradients, metrics, moving averages."""
    keras.utils.set_random_seed(1)
    keras.backend.clear_session()
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((6,)), layers.Dense(9, activation="tanh"), layers.BatchNormalization(), layers.Dense(3)]
        )
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer or keras.optimizers.SGD(rate, momentum=0.9), loss, metrics=["accuracy"])
    return model


def fit(model: Any, epochs: int = 2, callbacks: Any = None) -> Any:
    """Batches of 12, which divide by up to four replicas, and a last one of 5."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(53, 6)).astype("float32"), rng.integers(0, 3, 53, dtype="int32")
    return model.fit(x, y, batch_size=12, epochs=epochs, shuffle=False, verbose=0, callbacks=callbacks)


def _distance(one: Any, other: Any) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one.get_weights(), other.get_weights(), strict=True))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"gradient_dtype": "float16"}, r'None or "bfloat16".*overflow in float16'),
        ({"gradient_dtype": "float32"}, "travel by default"),
        ({"gradient_dtype": jnp.bfloat16}, r'must be None or "bfloat16"'),
        ({"gradient_dtype": "bfloat16", "implementation": "ring"}, "Received: implementation RING. Use AUTO"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        Options(**options)


def test_combinations_that_cannot_be_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"rounded once.*Leave cross_device_ops out"):
        mirrored(cross_device_ops=distribute.HierarchicalCopyAllReduce())
    with pytest.raises(ArgumentError, match="Either cross_device_ops or CommunicationOptions"):
        mirrored(Options(bytes_per_pack=10), cross_device_ops=distribute.ReductionToOneDevice())
    with pytest.raises(ArgumentError, match="timeout_seconds says how long workers wait"):
        mirrored(Options(timeout_seconds=10))
    with pytest.raises(ArgumentError, match="must be a CommunicationOptions"):
        mirrored("bfloat16")


def test_mirrored_replicas_take_other_options_too() -> None:
    assert not mirrored(None)._replicas.explicit
    assert mirrored(Options(bytes_per_pack=10))._replicas.reduction.pack_bytes == 10
    assert mirrored(Options(implementation="ring"))._replicas.reduction.algorithm == "ring"


STRATEGIES: dict[str, Callable[[], Any]] = {
    "two": lambda: mirrored(count=2),
    "four": mirrored,
    "packs on three": lambda: mirrored(Options(gradient_dtype="bfloat16", bytes_per_pack=50), 3),
    "one device": lambda: mirrored(cross_device_ops=distribute.ReductionToOneDevice()),
    "workers": lambda: distribute.MultiWorkerMirroredStrategy(communication_options=NARROW),
}


@pytest.fixture(scope="module")
def plain() -> keras.Model:
    """A model that was trained with gradients as they are."""
    model = model_of(mirrored(None, 2))
    fit(model)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_training_stays_close_and_replicas_equal(plain: keras.Model, name: str) -> None:
    strategy = STRATEGIES[name]()
    narrow = model_of(strategy)
    found: Any = fit(narrow)
    assert 0 < _distance(narrow, plain) < 1e-3
    np.testing.assert_allclose(found.history["loss"], plain.history.history["loss"], rtol=1e-3)
    kept = narrow.train_function.extra_state()
    assert {len(value) for value in kept.values()} == {strategy.num_replicas_in_sync} and len(kept) == 6
    owned = ownership(narrow)
    assert owned is not None
    for variable in narrow.trainable_variables:
        placed = owned.copies.placed(variable, variable.value)
        first, *others = (np.asarray(shard.data) for shard in placed.addressable_shards)
        for other in others:
            np.testing.assert_array_equal(other, first)


@pytest.mark.slow
def test_nothing_but_gradients_is_rounded() -> None:
    """Without a learning rate all else is to the bit what other explicit reductions give."""
    wide, narrow = model_of(mirrored(Options(bytes_per_pack=1 << 20)), 0.0), model_of(mirrored(), 0.0)
    expected, found = fit(wide), fit(narrow)
    assert found.history == expected.history
    assert _distance(narrow, wide) == 0
    assert narrow.train_function.extra_state() and not wide.train_function.extra_state()


@pytest.mark.slow
def test_one_replica_rounds_nothing() -> None:
    plain, narrow = model_of(distribute.get_strategy()), model_of(mirrored(count=1))
    fit(plain), fit(narrow)
    assert _distance(narrow, plain) == 0


def _again(model: Any) -> None:
    """Trains an epoch, goes back, and trains it once more."""
    values = [np.array(v) for v in (*model.variables, *model.optimizer.variables)]
    residuals = model.train_function.extra_state()
    fit(model, 1)
    for variable, value in zip((*model.variables, *model.optimizer.variables), values, strict=True):
        variable.assign(value)
    owned = ownership(model)
    assert owned is not None
    # The chief's count.
    model.train_function.restore_extra_state(residuals if owned.replicas.runtime.is_chief else {})
    fit(model, 1)


@pytest.mark.slow
def test_residuals_last_from_one_fit_to_the_next_and_through_a_resumption() -> None:
    whole, parts = model_of(mirrored()), model_of(mirrored())
    fit(whole, 2)
    fit(parts, 1)
    _again(parts)
    assert _distance(parts, whole) == 0


class _Stops(keras.callbacks.Callback):
    """Fails after so many batches."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self._left = batches

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        if not self._left:
            raise RuntimeError("power cut")


@pytest.mark.slow
def test_backups_hold_residuals(tmp_path: Path) -> None:
    whole, cut, resumed = (model_of(mirrored()) for _ in range(3))
    fit(whole, 2)
    kept = BackupAndRestore(tmp_path, save_freq=3)
    with pytest.raises(RuntimeError, match="power cut"):
        fit(cut, 2, [kept, _Stops(8)])
    fit(resumed, 2, [BackupAndRestore(tmp_path, save_freq=3)])
    assert _distance(resumed, whole) == 0


@pytest.mark.exhaustive
@pytest.mark.slow
def test_scales_of_losses_may_change() -> None:
    """What is kept is kept unscaled: with scales that grow, the weights are those of a scale that does not."""

    def trained(growth: int) -> keras.Model:
        scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), 8.0, dynamic_growth_steps=growth)
        model = model_of(mirrored(), optimizer=scaled)
        fit(model, 1)
        return model

    assert _distance(trained(1), trained(1000)) == 0


@pytest.mark.slow
def test_digits_are_learnt_as_well() -> None:
    """After three epochs, what is recognised differs by less than 0.2 % of MNIST's sample."""
    digits = ls.datasets.load_mnist()
    x, y = digits.train_images[:5000].reshape(-1, 784) / np.float32(255), digits.train_labels[:5000].astype("int32")

    def accuracy(options: Any) -> float:
        keras.utils.set_random_seed(0)
        with mirrored(options).scope():
            model = keras.Sequential([keras.Input((784,)), layers.Dense(64, activation="relu"), layers.Dense(10)])
            model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
        model.fit(x, y, batch_size=100, epochs=3, verbose=0)
        return model.evaluate(x, y, batch_size=1000, verbose=0)[1]

    narrow, wide = accuracy(NARROW), accuracy(None)
    assert wide > 0.9 and abs(narrow - wide) <= 0.002


def _model_fn(features: Any, labels: Any, mode: str) -> Any:
    loss = jnp.mean((layers.Dense(1)(layers.Dense(5, activation="tanh")(features)) - labels) ** 2)
    optimizer = ls.estimator.train.GradientDescentOptimizer(0.1)
    gradients = [(2 * g, v) for g, v in optimizer.compute_gradients(loss)]
    train_op = optimizer.apply_gradients(gradients, ls.estimator.train.get_global_step())
    return ls.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def _input_fn() -> Any:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(48, 4)).astype("float32")
    return ls.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(3).repeat()


def _estimated(directory: Path, options: Any, *steps: int) -> dict[str, np.ndarray]:
    """The variables after training in so many calls; gradients are values, and are averaged again when applied."""
    config = ls.estimator.RunConfig(tf_random_seed=1, train_distribute=mirrored(options))
    trained = ls.estimator.Estimator(_model_fn, str(directory), config)
    for count in steps:
        trained.train(_input_fn, steps=count)
    return {name: trained.get_variable_value(name) for name in trained.get_variable_names()}


@pytest.mark.slow
def test_estimators(tmp_path: Path) -> None:
    plain, narrow = (_estimated(tmp_path / str(o), o, 12) for o in (None, NARROW))
    assert 0 < max(float(np.abs(value - narrow[name]).max()) for name, value in plain.items()) < 1e-3
    # Each call reads the data from the start, and four steps read them once.
    in_parts = _estimated(tmp_path / "in parts", NARROW, 8, 4)
    for name, value in narrow.items():
        np.testing.assert_array_equal(in_parts[name], value, err_msg=name)


PROGRAM = """
    import sys
    import numpy as np
    from tests.distribute.test_gradient_dtype import workers
    np.savez(__file__ + ".npz", **workers())
"""


def workers() -> dict[str, Any]:
    """Trains on two workers, the second half twice."""
    strategy: Any = distribute.MultiWorkerMirroredStrategy(communication_options=NARROW)
    model = model_of(strategy)
    fit(model, 1)
    _again(model)
    kept = model.train_function.extra_state()
    return {f"weight {i}": w for i, w in enumerate(model.get_weights())} | {f"residual {i}": v for i, v in kept.items()}


@pytest.mark.parametrize("shared", ["1", "0"], ids=["shared memory", "network"])
def test_two_workers(job: Job, plain: keras.Model, shared: str) -> None:
    tasks = job.start_all(PROGRAM, 2, LOCKSTEP_SHARED_MEMORY=shared)
    for task in tasks:
        assert task.wait(CASE_SECONDS) == 0, task.err
    one, other = (dict(np.load(f"{task.program}.npz")) for task in tasks)
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value, err_msg=name)
    # What two devices of one process compute, which never went back.
    alone = model_of(mirrored(count=2))
    fit(alone)
    for i, (weight, exact) in enumerate(zip(alone.get_weights(), plain.get_weights(), strict=True)):
        np.testing.assert_allclose(one[f"weight {i}"], weight, rtol=0, atol=1e-5)
        np.testing.assert_allclose(one[f"weight {i}"], exact, rtol=0, atol=1e-3)
    assert one["residual 0"].shape == (2, 6, 9) and one["residual 0"].any(axis=(1, 2)).all()


def test_workers_must_have_the_same_lowerings_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    class Told:
        """Takes note of what is compared."""

        def __init__(self) -> None:
            self.values: list[Any] = []

        def check_same(self, topic: str, value: Any, advice: str) -> None:
            assert topic == "strategy options" and "settings in the environment" in advice
            self.values.append(value)

    told: Any = Told()
    _platforms.register("cpu")
    cases = [("1", NARROW, False), ("", NARROW, False), ("0", NARROW, False), ("1", Options(), False)]
    for setting, options, divides in [*cases, ("1", Options(), True)]:
        monkeypatch.setenv("LOCKSTEP_XLA_LOWERINGS", setting)
        _multi_worker._demand_same_settings(told, "cpu", "global", options, None, divides)
    first, same, *others = map(str, told.values)
    assert first == same
    assert len({first, *others}) == 4
