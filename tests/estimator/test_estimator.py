"""train, evaluate and predict of an Estimator."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep import checkpoint, estimator
from lockstep import summary as event_files
from lockstep.data import Dataset
from lockstep.errors import ArgumentError, CheckpointError
from lockstep.estimator import ModeKeys, RunConfig, metrics, summary, train
from tests.estimator.small import data, input_fn, line, model_fn, step_of


def steps_of(directory: Path) -> list[int]:
    return [checkpoint.step_of(path) for path in checkpoint.all_checkpoints(str(directory))]


class Spy(estimator.SessionRunHook):
    """Notes what it is told."""

    def __init__(self, fetches: Any = "global_step") -> None:
        self.fetches = fetches
        self.seen: list[Any] = []
        self.told: list[str] = []

    def begin(self) -> None:
        self.told.append("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.told.append("create")

    def before_run(self, run_context: Any) -> Any:
        return estimator.SessionRunArgs(self.fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.seen.append(run_values.results)

    def end(self, session: Any) -> None:
        self.told.append("end")


def test_train_saves_at_its_start_and_end_and_continues(tmp_path: Path) -> None:
    trained = line(tmp_path)
    assert trained.train(input_fn(), steps=3) is trained
    assert steps_of(tmp_path) == [0, 3]
    trained.train(input_fn(), steps=2)
    assert steps_of(tmp_path) == [0, 3, 5]
    line(tmp_path).train(input_fn(), max_steps=9)
    assert step_of(trained) == 9


def test_train_follows_the_formula_of_gradient_descent(tmp_path: Path) -> None:
    trained = line(tmp_path, params={"rate": 0.5})
    trained.train(input_fn(), steps=1)
    first = checkpoint.load(str(tmp_path / "model.ckpt-0")).arrays
    last = checkpoint.load(str(tmp_path / "model.ckpt-1")).arrays
    x, y = data()[0]["x"][:4], data()[1][:4]
    error = x @ first["line/kernel"] + first["line/bias"] - y
    np.testing.assert_allclose(
        last["line/kernel"], first["line/kernel"] - 0.5 * 2 * (x * error).mean(0, keepdims=True), rtol=1e-5
    )
    np.testing.assert_allclose(last["line/bias"], first["line/bias"] - 0.5 * 2 * error.mean(0), rtol=1e-5)


def test_the_end_of_the_data_ends_training(tmp_path: Path) -> None:
    assert step_of(line(tmp_path).train(input_fn())) == 10


def test_max_steps_that_were_reached_do_not_even_ask_for_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    line(tmp_path).train(input_fn(), steps=3)

    def unexpected() -> Any:
        raise AssertionError

    with caplog.at_level(logging.INFO, "lockstep"):
        line(tmp_path).train(unexpected, max_steps=3)
    assert "Skipping training since max_steps has already saved." in caplog.messages


def test_a_model_dir_can_be_copied(tmp_path: Path) -> None:
    line(tmp_path / "here").train(input_fn(), steps=3)
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    shutil.rmtree(tmp_path / "here")
    there = line(tmp_path / "there").train(input_fn(), steps=1)
    assert step_of(there) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 1, "max_steps": 1}, "Can not provide both steps and max_steps"),
        ({"steps": 0}, "Must specify steps > 0"),
        ({"max_steps": -1}, "Must specify max_steps > 0"),
        ({"hooks": [object()]}, "hooks"),
        ({"saving_listeners": [object()]}, "saving_listeners"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_train_refuses(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        line(tmp_path).train(input_fn(), **arguments)


def test_empty_data_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one batch"):
        line(tmp_path).train(lambda: Dataset.from_tensor_slices(data()).batch(4).take(0))


def test_hooks_are_told_in_order_and_see_values(tmp_path: Path) -> None:
    spy = Spy({"step": "global_step", "loss": ["loss"], "bias": "line/bias"})
    line(tmp_path).train(input_fn(), steps=3, hooks=[spy])
    assert spy.told == ["begin", "create", "end"]
    assert [int(s["step"]) for s in spy.seen] == [0, 1, 2]
    assert spy.seen[0]["loss"][0].dtype == np.float32
    final = line(tmp_path).get_variable_value("line/bias")
    np.testing.assert_array_equal(spy.seen[-1]["bias"], final)


def test_hooks_of_the_model_fn_see_its_values(tmp_path: Path) -> None:
    spies: list[Spy] = []

    def with_hooks(features: Any, labels: Any, mode: str) -> Any:
        spec = model_fn(features, labels, mode, {})
        predicted = jnp.sum(features["x"])
        train.record("largest", jnp.max(features["x"], axis=0))
        spies.append(Spy({"sum": predicted, "named": "largest:0"}))
        return spec._replace(training_hooks=[spies[-1]])

    estimator.Estimator(with_hooks, str(tmp_path)).train(input_fn(42))
    seen = [s for spy in spies for s in spy.seen]
    x = data(42)[0]["x"]
    expected = [x[i : i + 4] for i in range(0, 42, 4)]
    np.testing.assert_allclose([s["sum"] for s in seen], [e.sum() for e in expected], atol=1e-5)
    np.testing.assert_allclose([s["named"][0] for s in seen], [e.max() for e in expected], atol=1e-6)


def test_an_unknown_name_is_said(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"line/bais.*line/bias"):
        line(tmp_path).train(input_fn(), hooks=[Spy("line/bais")])


def test_a_hook_stops_training(tmp_path: Path) -> None:
    class Stop(Spy):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            if run_values.results >= 1:
                run_context.request_stop()

    assert step_of(line(tmp_path).train(input_fn(), hooks=[Stop()])) == 2


def test_stop_at_step_counts_from_where_training_starts(tmp_path: Path) -> None:
    trained = line(tmp_path).train(input_fn(), steps=2)
    trained.train(input_fn(), hooks=[estimator.StopAtStepHook(num_steps=3)])
    assert step_of(trained) == 5


def test_nan_ends_training_before_it_is_saved(tmp_path: Path) -> None:
    diverging = line(tmp_path, RunConfig(save_checkpoints_steps=1), params={"rate": 1e30})
    with pytest.raises(estimator.NanLossDuringTrainingError, match=r"NaN loss during training."):
        diverging.train(input_fn())
    for path in checkpoint.all_checkpoints(str(tmp_path)):
        assert np.isfinite(checkpoint.load_variable(path, "line/bias")).all() or checkpoint.step_of(path) > 1


def test_an_exception_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    class Fails(Spy):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            if run_values.results == 4:
                raise RuntimeError("on purpose")

    trained = line(tmp_path, RunConfig(save_checkpoints_steps=2))
    with pytest.raises(RuntimeError, match="on purpose"):
        trained.train(input_fn(), hooks=[Fails()])
    assert steps_of(tmp_path) == [0, 2, 4]
    assert step_of(trained.train(input_fn(), max_steps=6)) == 6


def test_the_logs_are_those_of_tensorflow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = RunConfig(log_step_count_steps=4, save_checkpoints_steps=8)
    with caplog.at_level(logging.INFO, "lockstep"):
        line(tmp_path, config).train(input_fn(), steps=9)
    kinds = [
        "loss = ",
        "global_step/sec",
        "Saving checkpoints for",
        "Loss for final",
        "Calling model_fn",
        "Create Check",
    ]
    shown = [m for m in caplog.messages if m.startswith(tuple(kinds))]
    starts = [m.split(" for")[0].split("=")[0].split(":")[0] if "Saving" not in m else m[:24] for m in shown]
    assert starts == [
        "Calling model_fn.",
        "Create CheckpointSaverHook.",
        "Saving checkpoints for 0",
        "loss ",
        "global_step/sec",
        "loss ",
        "Saving checkpoints for 8",
        "global_step/sec",
        "loss ",
        "Saving checkpoints for 9",
        "Loss",
    ]
    assert shown[3].endswith(", step = 0")
    assert ", step = 4 (" in shown[5]


def test_summaries_of_training(tmp_path: Path) -> None:
    def with_summary(features: Any, labels: Any, mode: str) -> Any:
        summary.scalar("largest", jnp.max(features["x"]))
        return model_fn(features, labels, mode, {})

    config = RunConfig(save_summary_steps=2, log_step_count_steps=2)
    estimator.Estimator(with_summary, str(tmp_path), config).train(input_fn(), steps=5)
    found = event_files.scalars(str(tmp_path))
    assert {step for step, values in found.items() if "loss" in values} == {1, 3, 5}
    assert found[3]["largest"] == pytest.approx(data()[0]["x"][8:12].max(), abs=1e-6)
    assert any("global_step/sec" in values for values in found.values())


def test_evaluate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained = line(tmp_path).train(input_fn(), steps=5)
    with caplog.at_level(logging.INFO, "lockstep"):
        found = trained.evaluate(input_fn(10, 4))
    kernel, bias = (trained.get_variable_value(f"line/{n}") for n in ("kernel", "bias"))
    x, y = data(10)[0]["x"], data(10)[1]
    predicted = x @ kernel + bias
    squares = (predicted - y) ** 2
    # The plain mean of the batches' losses; metrics count examples.
    batches = [squares[:4].mean(), squares[4:8].mean(), squares[8:].mean()]
    assert found == {
        "global_step": 5,
        "loss": pytest.approx(np.mean(batches), rel=1e-5),
        "mean": pytest.approx(predicted.mean(), rel=1e-5),
    }
    assert list(found) == ["global_step", "loss", "mean"]
    assert trained.eval_dir() == str(tmp_path / "eval")
    written = event_files.scalars(trained.eval_dir())
    assert written[5].keys() == {"loss", "mean"}
    assert any(m.startswith("Saving dict for global step 5: global_step = 5, loss = ") for m in caplog.messages)


def test_evaluate_a_named_checkpoint_for_so_many_steps(tmp_path: Path) -> None:
    trained = line(tmp_path).train(input_fn(), steps=5)
    found = trained.evaluate(input_fn(), steps=1, checkpoint_path=str(tmp_path / "model.ckpt-0"), name="first")
    assert found["global_step"] == 0
    assert 0 in event_files.scalars(str(tmp_path / "eval_first"))


def test_evaluate_without_a_checkpoint_initialises(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lockstep"):
        assert line(tmp_path).evaluate(input_fn())["global_step"] == 0
    assert any(m.startswith("Could not find trained model in model_dir") for m in caplog.messages)


@pytest.mark.parametrize("name", ["loss", "global_step"])
def test_reserved_metrics_are_refused(tmp_path: Path, name: str) -> None:
    def reserved(features: Any, labels: Any, mode: str) -> Any:
        spec = model_fn(features, labels, "eval", {})
        return estimator.EstimatorSpec(mode, loss=spec.loss, eval_metric_ops={name: metrics.mean(labels)})

    with pytest.raises(ArgumentError, match=name):
        estimator.Estimator(reserved, str(tmp_path)).evaluate(input_fn())


def test_evaluate_with_keras_metrics_and_state(tmp_path: Path) -> None:
    def with_metric(features: Any, labels: Any, mode: str) -> Any:
        metric = keras.metrics.MeanAbsoluteError(name="mae")
        metric.update_state(labels, features["x"])
        spec = model_fn(features, labels, "eval", {})
        return estimator.EstimatorSpec(mode, loss=spec.loss, eval_metric_ops={"mae": metric})

    made = estimator.Estimator(with_metric, str(tmp_path))
    x, y = data()[0]["x"], data()[1]
    for _ in range(2):  # Each evaluation counts anew.
        assert made.evaluate(input_fn(), steps=None)["mae"] == pytest.approx(np.abs(x - y).mean(), rel=1e-5)


def test_predict(tmp_path: Path) -> None:
    trained = line(tmp_path).train(input_fn(), steps=2)
    kernel, bias = (trained.get_variable_value(f"line/{n}") for n in ("kernel", "bias"))
    x = data(6)[0]["x"]
    found = list(trained.predict(input_fn(6, 4)))
    assert [set(f) for f in found] == [{"y", "twice"}] * 6
    np.testing.assert_allclose([f["y"] for f in found], x @ kernel + bias, rtol=1e-5)
    batches = list(trained.predict(input_fn(6, 4), predict_keys="twice", yield_single_examples=False))
    assert [(set(b), b["twice"].shape) for b in batches] == [({"twice"}, (4, 1)), ({"twice"}, (2, 1))]


def test_predict_refuses_unknown_keys_and_uneven_predictions(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="Expected to run at least one output from"):
        next(line(tmp_path).predict(input_fn(), predict_keys=["z"]))

    def uneven(features: Any, mode: str) -> Any:
        return estimator.EstimatorSpec(mode, predictions={"a": features["x"], "b": features["x"][:1]})

    with pytest.raises(ArgumentError, match="Batch length of predictions should be same"):
        next(
            estimator.Estimator(uneven, str(tmp_path / "u")).predict(
                lambda: Dataset.from_tensor_slices(data()[0]).batch(2)
            )
        )


def test_predict_is_lazy_and_can_be_left(tmp_path: Path) -> None:
    predictions = line(tmp_path).predict(lambda: Dataset.from_tensor_slices(data()).batch(2).repeat())
    assert next(predictions)["y"].shape == (1,)
    predictions.close()


def test_new_values_follow_the_seed(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    seeds = (3, 3, 4)
    for name, seed in zip(names, seeds, strict=True):
        line(tmp_path / name, RunConfig(tf_random_seed=seed)).train(input_fn(), steps=1)
    a, b, c = (checkpoint.load_variable(str(tmp_path / n / "model.ckpt-0"), "line/kernel") for n in names)
    assert a == b
    assert a != c


def test_shuffles_follow_the_seed(tmp_path: Path) -> None:
    def shuffled() -> Any:
        return Dataset.from_tensor_slices(data()).shuffle(40).batch(4)

    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        line(tmp_path / name, RunConfig(tf_random_seed=seed)).train(shuffled, steps=3)
    a, b, c = (checkpoint.load_variable(str(tmp_path / n), "line/kernel") for n in "abc")
    assert a == b
    assert a != c


def test_new_values_differ_without_a_seed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        line(tmp_path / name).train(input_fn(), steps=1)
    a, b = (checkpoint.load_variable(str(tmp_path / n / "model.ckpt-0"), "line/kernel") for n in ("a", "b"))
    assert a != b


def test_warm_start_only_while_there_is_no_checkpoint(tmp_path: Path) -> None:
    line(tmp_path / "old").train(input_fn(), steps=5)
    old = checkpoint.load_variable(str(tmp_path / "old"), "line/kernel")
    warm = line(tmp_path / "new", warm_start_from=str(tmp_path / "old")).train(input_fn(), steps=1)
    assert checkpoint.load_variable(str(tmp_path / "new" / "model.ckpt-0"), "line/kernel") == old
    assert step_of(warm) == 1
    kernel = warm.get_variable_value("line/kernel")
    line(tmp_path / "new", warm_start_from=str(tmp_path / "old"), params={"rate": 0.0}).train(input_fn(), steps=1)
    assert warm.get_variable_value("line/kernel") == kernel


@pytest.mark.slow
def test_another_model_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    line(tmp_path).train(input_fn(), steps=1)

    def other(features: Any, labels: Any, mode: str) -> Any:
        keras.layers.Dense(2, name="more")(features["x"])
        return model_fn(features, labels, mode, {})

    with pytest.raises(CheckpointError, match="lacks more/kernel"):
        estimator.Estimator(other, str(tmp_path)).train(input_fn(), steps=1)


def test_get_variable_names(tmp_path: Path) -> None:
    trained = line(tmp_path)
    with pytest.raises(CheckpointError, match="Could not find a checkpoint"):
        trained.get_variable_names()
    assert trained.latest_checkpoint() is None
    trained.train(input_fn(), steps=1)
    assert trained.get_variable_names() == ["global_step", "line/bias", "line/kernel"]
    assert trained.latest_checkpoint() == str(tmp_path / "model.ckpt-1")


class TestImpureModelFns:
    """A model_fn that differs from call to call gets an error that says what changed."""

    def _trained(self, tmp_path: Path, change: Any) -> None:
        calls: list[int] = []

        def changing(features: Any, labels: Any, mode: str) -> Any:
            calls.append(1)
            change(len(calls), features)
            return model_fn(features, labels, mode, {})

        estimator.Estimator(changing, str(tmp_path)).train(input_fn(42))

    def test_more_variables(self, tmp_path: Path) -> None:
        def change(call: int, features: Any) -> None:
            if call > 1:
                keras.layers.Dense(2, name="late")(features["x"])

        with pytest.raises(ArgumentError, match="late/kernel"):
            self._trained(tmp_path, change)

    def test_fewer_variables(self, tmp_path: Path) -> None:
        def change(call: int, features: Any) -> None:
            if call == 1:
                keras.layers.Dense(2, name="early")(features["x"])

        with pytest.raises(ArgumentError, match="left out early/"):
            self._trained(tmp_path, change)

    def test_another_shape(self, tmp_path: Path) -> None:
        with pytest.raises(ArgumentError, match=r"float32\(1, 1\).*float32\(1, 2\)"):
            self._trained(tmp_path, lambda call, f: keras.layers.Dense(call, name="grows")(f["x"]))


def test_a_wrong_result_of_a_model_fn_is_said(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="model_fn should return an EstimatorSpec"):
        estimator.Estimator(lambda features, labels: None, str(tmp_path)).train(input_fn())

    def wrong_mode(features: Any, labels: Any) -> Any:
        return estimator.EstimatorSpec(ModeKeys.PREDICT, predictions=features["x"])

    with pytest.raises(ArgumentError, match="must be of the mode"):
        estimator.Estimator(wrong_mode, str(tmp_path)).train(input_fn())


@pytest.mark.slow
def test_batch_normalisation_and_dropout(tmp_path: Path) -> None:
    def deep(features: Any, labels: Any, mode: str) -> Any:
        layers = [keras.layers.Dense(4), keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dropout(0.5)]
        logits = keras.Sequential([*layers, keras.layers.Dense(1)])(features["x"], training=mode == ModeKeys.TRAIN)
        loss = jnp.mean((logits - labels) ** 2)
        op = train.AdamOptimizer(0.01).minimize(loss, train.get_global_step()) if mode == ModeKeys.TRAIN else None
        return estimator.EstimatorSpec(mode, loss=loss, train_op=op, predictions=logits)

    trained = estimator.Estimator(deep, str(tmp_path)).train(input_fn())
    names = trained.get_variable_names()
    moving = next(n for n in names if n.endswith("moving_mean"))
    seed = next(n for n in names if "seed_generator_state" in n)
    first = checkpoint.load(str(tmp_path / "model.ckpt-0")).arrays
    assert np.abs(trained.get_variable_value(moving)).sum() > 0
    assert (trained.get_variable_value(seed) != first[seed]).any()
    assert trained.evaluate(input_fn())["loss"] == trained.evaluate(input_fn())["loss"]


def test_plain_jax_with_keras_variables(tmp_path: Path) -> None:
    def plain(features: Any, labels: Any, mode: str) -> Any:
        weight = keras.Variable(np.zeros((1, 1), np.float32), name="weight")
        loss = jnp.mean((features["x"] @ weight.value - labels) ** 2)
        optimizer = train.GradientDescentOptimizer(0.1)
        return estimator.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss, train.get_global_step()))

    trained = estimator.Estimator(plain, str(tmp_path)).train(input_fn())
    assert trained.get_variable_names() == ["global_step", "weight"]
    assert trained.get_variable_value("weight") > 0.05


def test_text_features_are_looked_up_on_the_host(tmp_path: Path) -> None:
    words = np.array([b"cat", b"dog", b"cow", b"cat", b"dog", b"cow", b"cat"], object)

    def look_up(text: np.ndarray) -> np.ndarray:
        return np.array([[b"cat", b"dog", b"cow"].index(w) for w in text.ravel()]).reshape(text.shape)

    def of_text(features: Any, mode: str) -> Any:
        ids = features["animal"].ids(look_up)
        return estimator.EstimatorSpec(mode, predictions={"id": ids, "one": jax.nn.one_hot(ids, 3)})

    made = estimator.Estimator(of_text, str(tmp_path))
    found = list(made.predict(lambda: Dataset.from_tensor_slices({"animal": words}).batch(3)))
    assert [int(f["id"]) for f in found] == [0, 1, 2, 0, 1, 2, 0]


def test_the_members_of_estimator_cannot_be_overridden(tmp_path: Path) -> None:
    class Mine(estimator.Estimator):
        def train(self, *args: Any, **kwargs: Any) -> Any:
            return None

    with pytest.raises(ArgumentError, match="cannot override members of Estimator"):
        Mine(model_fn, str(tmp_path), params={})


def test_model_dir_rules(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="model_dir are set both"):
        line(tmp_path / "a", RunConfig(model_dir=str(tmp_path / "b")))
    assert estimator.Estimator(model_fn, config=RunConfig(model_dir=str(tmp_path)), params={}).model_dir == str(
        tmp_path
    )
    assert Path(estimator.Estimator(model_fn, params={}).model_dir).is_dir()


def test_params_are_copied(tmp_path: Path) -> None:
    params = {"rate": 0.1, "list": [1]}
    made = line(tmp_path, params=params)
    params["list"].append(2)  # type: ignore[attr-defined]
    made.params["rate"] = 5
    assert made.params == {"rate": 0.1, "list": [1]}


def test_scaffold_initialises_what_is_new(tmp_path: Path) -> None:
    def scaffolded(features: Any, labels: Any, mode: str) -> Any:
        spec = model_fn(features, labels, mode, {"rate": 0.0})
        value = {"line/bias": np.full(1, 7, np.float32)}
        return spec._replace(scaffold=estimator.Scaffold(init_fn=lambda scaffold, session: session.assign(value)))

    made = estimator.Estimator(scaffolded, str(tmp_path)).train(input_fn(), steps=1)
    assert made.get_variable_value("line/bias") == 7


def test_user_hooks_come_before_the_check_for_nan(tmp_path: Path) -> None:
    spy = Spy("loss")
    with pytest.raises(estimator.NanLossDuringTrainingError):
        line(tmp_path, params={"rate": 1e30}).train(input_fn(), hooks=[spy])
    assert np.isnan(spy.seen[-1])


@pytest.mark.slow
def test_a_strategy_evaluates_as_one_device_does(tmp_path: Path) -> None:
    strategy = ls.distribute.MirroredStrategy()
    assert strategy.num_replicas_in_sync == 4
    alone = line(tmp_path).train(input_fn(), steps=3)
    spread = line(tmp_path, RunConfig(eval_distribute=strategy))
    # Batches of 2 on 4 replicas are global batches of 8; the last one of 40 + 2 is divided anew.
    found, expected = spread.evaluate(input_fn(42, 2)), alone.evaluate(input_fn(42, 8))
    assert found == {name: pytest.approx(value, rel=1e-5) for name, value in expected.items()}


def test_a_pair_of_values_is_no_metric_of_several_replicas(tmp_path: Path) -> None:
    def with_pair(features: Any, labels: Any, mode: str) -> Any:
        spec = model_fn(features, labels, "eval", {})
        pair = (jnp.mean(labels), jnp.mean(labels))
        return estimator.EstimatorSpec(mode, loss=spec.loss, eval_metric_ops={"pair": pair})

    alone = estimator.Estimator(with_pair, str(tmp_path))
    assert "pair" in alone.evaluate(input_fn())
    config = RunConfig(eval_distribute=ls.distribute.MirroredStrategy())
    with pytest.raises(ArgumentError, match="from the features or labels"):
        estimator.Estimator(with_pair, str(tmp_path), config).evaluate(input_fn())


def test_an_evaluation_between_steps(tmp_path: Path) -> None:
    trained = line(tmp_path)
    hook = estimator.experimental.InMemoryEvaluatorHook(trained, input_fn(8), every_n_iter=4)
    trained.train(input_fn(), hooks=[hook], steps=6)
    written = event_files.scalars(trained.eval_dir())
    assert 4 in written and 6 in written
    assert written[6]["loss"] == pytest.approx(trained.evaluate(input_fn(8), name="x")["loss"], rel=1e-5)


def test_listeners_of_a_hook_of_the_user_find_the_checkpoint(tmp_path: Path) -> None:
    found: list[bool] = []

    class Looks(estimator.CheckpointSaverListener):
        def after_save(self, session: Any, global_step_value: int) -> None:
            found.append(checkpoint.checkpoint_exists(str(tmp_path / f"model.ckpt-{global_step_value}")))

    hook = estimator.CheckpointSaverHook(str(tmp_path), save_steps=2, listeners=[Looks()])
    line(tmp_path).train(input_fn(), hooks=[hook], steps=5)
    assert found == [True] * 4
