from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from lockstep._text import words
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.estimator._estimator_spec import EstimatorSpec, Scaffold
from lockstep.estimator._export.exporters import Exporter
from lockstep.estimator._hooks import CheckpointSaverListener, SessionRunHook
from lockstep.estimator._mode_keys import ModeKeys
from lockstep.estimator._model_fn.records import GroupOp, MetricOp, TrainOp, group
from lockstep.estimator._train_and_evaluate import EvalSpec, TrainSpec

LOSS = jnp.asarray(0.5)


class Rule:
    hyper: dict[str, Any] = {}  # noqa: RUF012

    def update(self, scope: Any, gradients: Any, variables: Any, hyper: Any) -> None:
        raise AssertionError


UPDATE = TrainOp.deferred(Rule(), LOSS, [], counts=True)


def train(**more: Any) -> EstimatorSpec:
    return EstimatorSpec(**{"mode": ModeKeys.TRAIN, "loss": LOSS, "train_op": UPDATE, **more})


def evaluate(**more: Any) -> EstimatorSpec:
    return EstimatorSpec(**{"mode": ModeKeys.EVAL, "loss": LOSS, **more})


def predict(**more: Any) -> EstimatorSpec:
    return EstimatorSpec(**{"mode": ModeKeys.PREDICT, "predictions": {"p": LOSS}, **more})


class Named(Exporter):
    def __init__(self, name: Any) -> None:
        self._name = name

    @property
    def name(self) -> Any:
        return self._name

    def export(self, *args: Any, **kwargs: Any) -> None:
        raise AssertionError


def test_modes() -> None:
    assert (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT) == ("train", "eval", "infer")


# EstimatorSpec.


def test_least_of_each_mode() -> None:
    spec = train()
    assert (spec.mode, spec.loss, spec.train_op) == ("train", LOSS, (UPDATE,))
    assert isinstance(spec.train_op, GroupOp)
    assert (spec.predictions, spec.eval_metric_ops, spec.export_outputs) == ({}, {}, None)
    assert (spec.training_hooks, spec.training_chief_hooks, spec.evaluation_hooks, spec.prediction_hooks) == ((),) * 4
    assert isinstance(spec.scaffold, Scaffold)
    assert evaluate().train_op is None
    assert predict().loss is None


@pytest.mark.parametrize(
    ("mode", "given", "rule"),
    [
        ("train", {"loss": LOSS}, "Missing train_op"),
        ("train", {"train_op": UPDATE}, "Missing loss"),
        ("eval", {}, "Missing loss"),
        ("infer", {"loss": LOSS, "train_op": UPDATE}, "Missing predictions"),
        ("test", {"loss": LOSS}, "mode must be"),
    ],
)
def test_what_a_mode_needs(mode: str, given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ArgumentError, match=rule):
        EstimatorSpec(mode, **given)


def test_all_fields_may_be_given_in_any_mode() -> None:
    hook = SessionRunHook()
    for mode in ("train", "eval", "infer"):
        spec = EstimatorSpec(
            mode,
            predictions=LOSS,
            loss=LOSS,
            train_op=UPDATE,
            eval_metric_ops={"m": (LOSS, LOSS)},
            training_chief_hooks=[hook],
            training_hooks=iter([hook]),
            evaluation_hooks=(hook,),
            prediction_hooks=[hook],
        )
        assert spec.training_hooks == spec.training_chief_hooks == (hook,)
        assert spec.evaluation_hooks == spec.prediction_hooks == (hook,)


@pytest.mark.parametrize("loss", [jnp.ones(()), jnp.ones(1), jnp.ones((1, 1)), np.float32(1), np.ones(1)])
def test_a_loss_is_one_number(loss: Any) -> None:
    assert evaluate(loss=loss).loss.shape == ()


@pytest.mark.parametrize("loss", [jnp.ones(2), 0.5, "loss", [LOSS], lambda: LOSS])
def test_what_is_no_loss(loss: Any) -> None:
    with pytest.raises(ArgumentError, match=r"Loss must be scalar|loss must be a tensor"):
        evaluate(loss=loss)


def test_traced_values_are_tensors() -> None:
    def step(x: Any) -> Any:
        spec = train(loss=jnp.sum(x, keepdims=True), predictions={"x": x})
        return spec.loss, spec.predictions["x"]

    loss, x = jax.jit(step)(jnp.ones(3))
    assert (loss.shape, x.shape) == ((), (3,))


def test_a_variable_counts_by_its_value() -> None:
    assert isinstance(evaluate(loss=keras.Variable(1.0)).loss, jax.Array)


def test_updates() -> None:
    assert train(train_op=group(UPDATE, UPDATE)).train_op == (UPDATE, UPDATE)
    assert train(train_op=[UPDATE]).train_op == (UPDATE,)
    assert train(train_op=group()).train_op == ()
    # What assigned a variable was carried out where it was written.
    assert train(train_op=LOSS).train_op == ()
    with pytest.raises(ArgumentError, match="minimize"):
        train(train_op="minimize")


def test_predictions() -> None:
    text = words(jnp.arange(2), ["a", "b"])
    assert predict(predictions=LOSS).predictions is LOSS
    assert predict(predictions={"a": LOSS, "t": text}).predictions == {"a": LOSS, "t": text}
    for wrong in (1.0, [LOSS], {"a": None}, {"a": [LOSS]}, {"a": {"b": LOSS}}):
        with pytest.raises(ArgumentError, match=r"predictions.* must be a tensor"):
            predict(predictions=wrong)


def test_metrics() -> None:
    metric = keras.metrics.Mean()
    given = {"k": metric, "f": MetricOp(LOSS, LOSS, metric), "p": (LOSS, LOSS)}
    assert evaluate(eval_metric_ops=given).eval_metric_ops == given
    for wrong in ([metric], {"m": LOSS}, {"m": (LOSS,)}, {"m": (LOSS, "update")}, {1: metric}):
        with pytest.raises(ArgumentError, match="eval_metric_ops"):
            evaluate(eval_metric_ops=wrong)


@pytest.mark.parametrize("name", ["loss", "global_step"])
def test_names_that_results_have_already(name: str) -> None:
    with pytest.raises(ArgumentError, match="results named loss and global_step"):
        evaluate(eval_metric_ops={name: (LOSS, LOSS)})
    train(eval_metric_ops={name: (LOSS, LOSS)})


@pytest.mark.parametrize("name", ["training_hooks", "training_chief_hooks", "evaluation_hooks", "prediction_hooks"])
@pytest.mark.parametrize("wrong", [[object()], SessionRunHook, [SessionRunHook], 3])
def test_hooks_must_be_hooks(name: str, wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{name} must be a list of SessionRunHook"):
        train(**{name: wrong})


def test_export_outputs() -> None:
    from lockstep.estimator._export.outputs import PredictOutput, RegressionOutput

    (default,) = predict().export_outputs.items()  # type: ignore[union-attr]
    assert default[0] == "serving_default"
    assert isinstance(default[1], PredictOutput)
    one, two = PredictOutput({"p": LOSS}), RegressionOutput(jnp.ones(2))
    assert predict(export_outputs={"head": two}).export_outputs == {"head": two, "serving_default": two}
    both = {"head": two, "serving_default": one}
    assert predict(export_outputs=both).export_outputs == both
    assert train(export_outputs={"head": 1}).export_outputs == {"head": 1}
    with pytest.raises(ArgumentError, match="specified as the default"):
        predict(export_outputs={"a": one, "b": two})
    for wrong in ([one], {"a": LOSS}):
        with pytest.raises(ArgumentError, match="must be dict of ExportOutputs"):
            predict(export_outputs=wrong)


def test_replacing_fields() -> None:
    spec = evaluate()
    assert spec._replace(predictions=LOSS).predictions is LOSS
    assert spec._replace(mode="eval").loss is LOSS
    with pytest.raises(ArgumentError, match="keeps its mode"):
        spec._replace(mode="train")
    with pytest.raises(ArgumentError, match="has mode, predictions"):
        spec._replace(nothing=1)
    with pytest.raises(ArgumentError, match="Loss must be scalar"):
        spec._replace(loss=jnp.ones(2))


# Scaffold.


def test_a_scaffold_runs_a_function() -> None:
    seen: list[Any] = []
    scaffold = Scaffold(init_fn=lambda *given: seen.append(given), local_init_op=group())
    assert scaffold.init_fn is not None
    scaffold.init_fn("session")
    assert seen == [(scaffold, "session")]
    copied = Scaffold(copy_from_scaffold=scaffold)
    assert copied.init_fn is not None
    copied.init_fn("other")
    assert seen[1:] == [(copied, "other")]
    assert Scaffold().init_fn is None
    assert train(scaffold=scaffold).scaffold is scaffold


@pytest.mark.parametrize("name", ["init_op", "saver", "summary_op", "local_init_op", "ready_op", "init_feed_dict"])
def test_what_a_scaffold_cannot_do(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"Scaffold.{name} must be None"):
        Scaffold(**{name: object()})


def test_what_is_no_scaffold() -> None:
    with pytest.raises(ArgumentError, match="init_fn must be a function"):
        Scaffold(init_fn=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="copy_from_scaffold must be"):
        Scaffold(copy_from_scaffold=3)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="scaffold must be"):
        train(scaffold=3)


# TrainSpec and EvalSpec.


def input_fn() -> Any:
    raise AssertionError


def test_defaults() -> None:
    assert TrainSpec(input_fn) == (input_fn, None, (), ())
    assert EvalSpec(input_fn) == (input_fn, 100, None, (), (), 120, 600)


def test_all_that_may_be_given() -> None:
    hook, listener, exporter = SessionRunHook(), CheckpointSaverListener(), Named("a")
    spec = TrainSpec(input_fn, 2, [hook], [listener])
    assert (spec.max_steps, spec.hooks, spec.saving_listeners) == (2, (hook,), (listener,))
    spec = EvalSpec(input_fn, None, "name", [hook], exporter, 3, 0)
    assert (spec.steps, spec.name, spec.hooks, spec.exporters) == (None, "name", (hook,), (exporter,))
    assert (spec.start_delay_secs, spec.throttle_secs) == (3, 0)
    assert EvalSpec(input_fn, exporters=[exporter, Named("b")]).exporters[0] is exporter


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"input_fn": "x"}, "input_fn must be a function"),
        ({"max_steps": 0}, "Must specify max_steps > 0"),
        ({"max_steps": -1}, "Must specify max_steps > 0"),
        ({"max_steps": True}, "Must specify max_steps > 0"),
        ({"hooks": [1]}, "hooks must be a list of SessionRunHook"),
        ({"saving_listeners": [SessionRunHook()]}, "saving_listeners must be a list of CheckpointSaverListener"),
    ],
)
def test_what_a_train_spec_refuses(given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ArgumentError, match=rule):
        TrainSpec(**{"input_fn": input_fn, **given})


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"input_fn": None}, "input_fn must be a function"),
        ({"steps": 0}, "Must specify steps > 0"),
        ({"name": 123}, "name must be a string"),
        ({"hooks": [1]}, "hooks must be a list of SessionRunHook"),
        ({"exporters": "a"}, "exporters must be a list of Exporter"),
        ({"exporters": [Named("a"), None]}, "exporters must be a list of Exporter"),
        ({"exporters": [Named("a"), Named("a")]}, "name of its own"),
        ({"exporters": [Named("a"), Named("b"), Named("a")]}, "name of its own"),
        ({"exporters": Named("")}, "name of its own"),
        ({"exporters": Named(None)}, "name of its own"),
        ({"exporters": Named(3)}, "name of its own"),
        ({"start_delay_secs": -1}, "Must specify start_delay_secs >= 0"),
        ({"throttle_secs": -1}, "Must specify throttle_secs >= 0"),
        ({"throttle_secs": "1"}, "Must specify throttle_secs >= 0"),
        ({"throttle_secs": float("nan")}, "Must specify throttle_secs >= 0"),
    ],
)
def test_what_an_eval_spec_refuses(given: dict[str, Any], rule: str) -> None:
    with pytest.raises(ArgumentError, match=rule):
        EvalSpec(**{"input_fn": input_fn, **given})
