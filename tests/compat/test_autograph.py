"""Python's conditions and loops over tensors in a tf.function: TensorFlow's results, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lockstep.compat.tensorflow as tf

_best, _count = tf.Variable(9.0), tf.Variable(0.0)
_traces: list[Any] = []


def absolute(x: Any) -> Any:
    _traces.append(tf.inside_function())
    if x > 0:
        return x
    return -x


def collatz(n: Any) -> Any:
    count = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        count += 1
    return count


def sum_of_some(x: Any) -> Any:
    total = 0.0
    for value in x:
        if value < 0:
            continue
        if value > 10:
            break
        total += value
    return total


def over_range(n: Any) -> Any:
    total = 0
    for i in tf.range(n):
        total += i
    for j in range(n):
        total += j
    return total


def which(x: Any, y: Any) -> Any:
    if (x > 0 and y > 0) or not x < 5:
        return 1
    elif x < 0 or y < 0:
        return 2
    else:
        return 3


def assigns(x: Any) -> Any:
    if x < _best:
        _best.assign(x)
    for _ in tf.range(tf.cast(x, tf.int32)):
        _count.assign_add(1.0)
    return _best * 10.0 + _count


def slope(x: Any) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x
        for _ in tf.range(3):
            y = y * x
        if y > 0:
            y = y * 2.0
    return tape.gradient(y, x)


def only_in_the_loop(x: Any) -> Any:
    for _ in tf.range(3):
        y = x * 2.0
    return y


def squares(n: Any) -> Any:
    array = tf.TensorArray(tf.float32, size=4, element_shape=[])
    for i in tf.range(4):
        array = array.write(i, tf.cast(i * n, tf.float32) ** 2)
    return array.stack()


def helped(x: Any) -> Any:
    return absolute(tf.reduce_sum(x)) + int(x[0])


# What TensorFlow 2.15 returns.
@pytest.mark.parametrize(
    ("function", "arguments", "results"),
    [
        (absolute, [3.0, -2.0], [3, 2]),
        (collatz, [27], [111]),
        (sum_of_some, [[1.0, -2.0, 3.0, 20.0, 5.0]], [4]),
        (over_range, [5], [20]),
        (slope, [2.0], [64]),
        (only_in_the_loop, [1.0], [2]),
        (squares, [1], [[0, 1, 4, 9]]),
        (helped, [[-2.5, -3.0]], [3.5]),
    ],
)
def test_results_are_those_of_tensorflow(function: Callable[..., Any], arguments: Any, results: Any) -> None:
    compiled = tf.function(function)
    assert [np.asarray(compiled(tf.constant(a))).tolist() for a in arguments] == results
    assert compiled.experimental_get_tracing_count() == 1


def test_conditions_are_joined() -> None:
    compiled = tf.function(which)
    found = [compiled(tf.constant(x), tf.constant(y)) for x, y in ((1, 1), (-1, 1), (0, 0), (7, -1))]
    assert [int(f) for f in found] == [1, 2, 3, 1]


def test_variables_are_assigned_in_branches_and_loops() -> None:
    compiled = tf.function(assigns)
    assert [float(compiled(tf.constant(x))) for x in (3.0, 5.0, 2.0)] == [33, 38, 30]
    assert (float(_best), float(_count)) == (2, 10) and compiled.experimental_get_tracing_count() == 1


def test_a_function_is_traced_once() -> None:
    compiled = tf.function(absolute)
    _traces.clear()
    assert [float(compiled(tf.constant(x))) for x in (1.0, -4.0)] == [1, 4] and _traces == [True]


def test_data_is_read_by_python_and_the_body_is_compiled() -> None:
    seen: list[Any] = []

    @tf.function
    def until(data: Any) -> Any:
        count, total = 0, 0.0
        for x in data:
            seen.append(tf.inside_function())
            count += 1
            total += x
            if total > 3.0:
                break
        return count, total

    data = tf.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0, 4.0])
    assert [float(value) for value in until(data)] == [3, 6] and seen == [True]


def test_what_only_one_branch_defines() -> None:
    @tf.function
    def half(x: Any) -> Any:
        if x > 0:
            y = x
        return y  # pyright: ignore[reportPossiblyUnbound]

    with pytest.raises(ValueError, match="'y' must also be initialized in the else branch"):
        half(tf.constant(1.0))


def test_what_is_not_to_be_converted_runs_as_it_is() -> None:
    plain = tf.function(absolute, autograph=False)
    unconverted = tf.function(tf.autograph.experimental.do_not_convert(absolute))
    assert float(plain(tf.constant(-1.0))) == float(unconverted(tf.constant(-1.0))) == 1
    assert "if_stmt" in tf.autograph.to_code(absolute) and tf.autograph.to_graph(absolute)(-3) == 3


class Doubling(tf.keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs * 2.0 if tf.reduce_sum(inputs) > 0 else inputs


def test_layers_and_replicas_are_converted() -> None:
    model = tf.keras.Sequential([tf.keras.Input((2,)), Doubling()])
    model.compile("sgd", "mse")
    assert model.predict(np.ones((1, 2)), verbose=0).tolist() == [[2, 2]]
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    assert float(strategy.run(absolute, args=(tf.constant(-3.0),))) == 3


def test_tensors_of_conditions_and_loops_keep_their_structure() -> None:
    v = tf.Variable(1.0)

    @tf.function
    def choose(x: Any) -> Any:
        tf.cond(x > 0, lambda: v.assign_add(1.0), lambda: v.assign(0.0))
        return tf.cond(x > 0, lambda: {"b": x, "a": 1.0}, lambda: {"b": -x, "a": 2.0})

    @tf.function
    def count(n: Any) -> Any:
        return tf.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + v.assign_add(1.0)), (0, 0.0))

    found = choose(tf.constant(1.0))
    assert list(found) == ["b", "a"] and [float(x) for x in found.values()] == [1, 1] and float(v) == 2
    assert [float(x) for x in count(tf.constant(3))] == [3, 12] and float(v) == 5
