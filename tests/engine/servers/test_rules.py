"""Updates by rows are those of the whole table, for every optimizer of Keras that can be divided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from lockstep._engine.servers.rule import Rule
from lockstep._engine.servers.rules import can_be_rows, rule_of
from lockstep._types import Optimizer
from lockstep.errors import ArgumentError, UnsupportedError
from tests.engine.servers.rows_oracle import KERNEL, TABLE, Servers, train_plainly, variables

optimizers: Any = keras.optimizers
constraints: Any = keras.constraints
# Schedules change, and end, in the shorter of both trainings, too.
STEPS = [120, pytest.param(500, marks=pytest.mark.exhaustive)]
COSINE = optimizers.schedules.CosineDecay(0.01, 100)
SLOW = optimizers.schedules.PiecewiseConstantDecay([30, 90], [0.001, 0.0005, 0.0001])
BY_ROWS: dict[str, Callable[[], Optimizer]] = {
    "SGD": lambda: optimizers.SGD(0.01),
    "SGD decayed": lambda: optimizers.SGD(optimizers.schedules.ExponentialDecay(0.02, 50, 0.9)),
    "momentum": lambda: optimizers.SGD(COSINE, momentum=0.9),
    "nesterov": lambda: optimizers.SGD(COSINE, momentum=0.9, nesterov=True),
    "clipvalue": lambda: optimizers.SGD(0.01, clipvalue=0.3),
    "loss_scale_factor": lambda: optimizers.SGD(0.01, loss_scale_factor=8.0),
    "Adagrad": lambda: optimizers.Adagrad(COSINE),
    "Adadelta": lambda: optimizers.Adadelta(optimizers.schedules.ExponentialDecay(0.1, 50, 0.9)),
    "RMSprop": lambda: optimizers.RMSprop(SLOW),
    "RMSprop centered": lambda: optimizers.RMSprop(0.001, momentum=0.5, centered=True),
    "Adam": lambda: optimizers.Adam(COSINE),
    "Adam constant": lambda: optimizers.Adam(0.001),
    "amsgrad": lambda: optimizers.Adam(SLOW, amsgrad=True),
    "AdamW": lambda: optimizers.AdamW(COSINE),
    "Adamax": lambda: optimizers.Adamax(COSINE),
    "Nadam": lambda: optimizers.Nadam(SLOW),
    # At a rate of zero Ftrl divides by it: Keras' weights become NaN, too.
    "Ftrl": lambda: optimizers.Ftrl(optimizers.schedules.CosineDecay(0.01, 100, 0.1), l1_regularization_strength=0.01),
    "Ftrl constant": lambda: optimizers.Ftrl(0.01, l1_regularization_strength=0.01),
    "Lion": lambda: optimizers.Lion(optimizers.schedules.PolynomialDecay(0.0001, 80)),
    "use_ema": lambda: optimizers.SGD(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=7),
    "accumulation": lambda: optimizers.Adam(0.001, gradient_accumulation_steps=3),
    "weight_decay": lambda: optimizers.Adagrad(0.01, weight_decay=0.01),
    "Muon": lambda: optimizers.Muon(0.001),
}


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", BY_ROWS)
def test_rows_are_updated_as_the_whole_table(name: str, steps: int) -> None:
    plain = train_plainly(BY_ROWS[name](), steps)
    servers = Servers(BY_ROWS[name](), 2)
    servers.train(steps)
    for variable, value in servers.weights().items():
        # Muon multiplies matrices, whose sums another program adds in another order.
        atol = 1e-6 if name == "Muon" and variable == KERNEL else 1e-7
        np.testing.assert_allclose(value, plain[variable], rtol=0, atol=atol, err_msg=variable)


@pytest.mark.slow
@pytest.mark.parametrize("pull", [True, False])
@pytest.mark.parametrize("name", ["Adam constant", "Ftrl constant", "weight_decay"])
def test_rates_that_callbacks_change_move_rows_as_the_whole_table(name: str, pull: bool) -> None:
    """Also rows at rest: Ftrl computes them from the rate. They are looked at after each change, or at the end."""

    def rate(step: int) -> float:
        return 0.01 * 0.5 ** (step // 40)

    plain = train_plainly(BY_ROWS[name](), 130, rate=rate)
    servers = Servers(BY_ROWS[name](), 2)
    servers.train(130, pull=pull, rate=rate)
    for variable, value in servers.weights().items():
        np.testing.assert_allclose(value, plain[variable], rtol=0, atol=1e-7, err_msg=variable)


@pytest.mark.slow
def test_rows_that_follow_a_constant_rate_rest() -> None:
    """Not each step of theirs is computed, as under a schedule."""
    movement = rule_of(optimizers.Ftrl(0.01), variables()).program(TABLE).movement
    assert movement is not None
    assert movement.follows_rate
    assert movement.settles is not None
    assert movement.settles < 10


def test_each_optimizer_of_keras_is_by_rows_here_or_refused() -> None:
    classes = {c for c in vars(optimizers).values() if isinstance(c, type) and c.__module__.startswith("keras.")}
    tested = {type(make()) for make in BY_ROWS.values()}
    others = {
        "Lamb",
        "Adafactor",
        "LossScaleOptimizer",
        "ScheduleFreeAdamW",
        "MultiOptimizer",
        "OptimizerMap",
        "Optimizer",
    }
    assert {c.__name__ for c in classes - tested} <= others


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: optimizers.Lamb(0.001), lambda: optimizers.Adafactor(0.001)])
def test_what_rows_depend_on_each_other_in_is_refused_by_rows_and_exact_as_a_whole(
    make: Callable[[], Optimizer],
) -> None:
    with pytest.raises(UnsupportedError, match=TABLE):
        rule_of(make(), variables())
    assert not can_be_rows(make(), variables()[0])
    plain = train_plainly(make(), 50)
    servers = Servers(make(), 2, held=variables("dense"))
    servers.train(50, pull=False)
    for variable, value in servers.weights().items():
        np.testing.assert_allclose(value, plain[variable], rtol=0, atol=1e-7, err_msg=variable)
    assert TABLE in servers.spec.rule.whole


@pytest.mark.slow
def test_a_variable_that_is_updated_whole_lies_on_one_server() -> None:
    with pytest.raises(UnsupportedError, match=r"rule\.whole"):
        Servers(optimizers.Lamb(0.001), 2, held=variables("dense"), partitions={TABLE: [30, 30]})


@pytest.mark.slow
def test_lazy_updates_leave_rows_without_gradient_alone() -> None:
    servers = Servers(optimizers.Adam(0.01), lazy=True)
    servers.train(5)
    exact = Servers(optimizers.Adam(0.01))
    exact.train(5)
    assert servers.spec.rule.program(TABLE).movement is None
    assert not np.array_equal(servers.weights()[TABLE], exact.weights()[TABLE])
    assert servers.bits()[KERNEL] == exact.bits()[KERNEL]


def test_constraints_by_row_are_applied_and_others_refused() -> None:
    table = variables()[0]
    assert can_be_rows(optimizers.SGD(), table, constraints.MaxNorm(0.1, axis=1))
    assert not can_be_rows(optimizers.SGD(), table, constraints.MaxNorm(0.1, axis=0))


def test_optimizers_that_no_server_can_run_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="LossScaleOptimizer"):
        rule_of(optimizers.LossScaleOptimizer(optimizers.SGD()), variables())
    with pytest.raises(UnsupportedError, match="global_clipnorm"):
        rule_of(optimizers.SGD(global_clipnorm=1.0), variables())


@pytest.mark.skipif(not hasattr(optimizers, "ScheduleFreeAdamW"), reason="this Keras has neither")
@pytest.mark.parametrize(
    "make",
    [
        lambda: optimizers.ScheduleFreeAdamW(0.01),
        lambda: optimizers.MultiOptimizer(
            optimizers.OptimizerMap(optimizers.SGD(0.1), {"emb/*": optimizers.Adam(0.1)})
        ),
    ],
)
def test_optimizers_whose_slots_are_no_numbers_or_of_several_are_refused(make: Callable[[], Optimizer]) -> None:
    """The first begins with copies of the weights, of which a server's rows have none until they are touched."""
    with pytest.raises(UnsupportedError, match=type(make()).__name__):
        rule_of(make(), variables())
    with pytest.raises(UnsupportedError, match=type(make()).__name__):
        can_be_rows(make(), variables()[0])


@pytest.mark.slow
def test_what_is_left_out_of_weight_decay_has_a_program_of_its_own() -> None:
    optimizer = optimizers.AdamW(0.01, weight_decay=0.1)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    rule = rule_of(optimizer, variables())
    assert rule.program_of["dense/bias"] != rule.program_of[KERNEL]


def test_rules_travel_as_text() -> None:
    rule = rule_of(optimizers.Adam(0.01), variables())
    again = Rule.from_json(rule.to_json())
    assert again == rule
    assert again.digest() == rule.digest()
    with pytest.raises(ArgumentError, match="same version"):
        Rule.from_json("{}")
