"""tf.function: compiled by signature, with variables as state; as Python's where it cannot be compiled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError, DataNotFoundError, UnsupportedError


def is_compiling() -> bool:
    return tf.inside_function()


def test_a_signature_is_compiled_once() -> None:
    seen: list[Any] = []

    @tf.function
    def double(x: Any, by: Any = 2, *, flag: bool = True) -> Any:
        seen.append(is_compiling())
        return x * by if flag else x

    assert double(tf.constant(1.0)).tolist() == 2 and double(np.float32(4.0)).tolist() == 8
    assert all(seen) and double.experimental_get_tracing_count() == 1
    count = len(seen)
    double(tf.constant(3.0))
    assert len(seen) == count
    assert double(tf.constant([1.0, 2.0])).tolist() == [2, 4] and double(x=tf.constant(1.0), by=3).tolist() == 3
    assert double(tf.constant(1.0), flag=False).tolist() == 1 and double(tf.constant(1), 2).dtype == "int32"
    assert double.experimental_get_tracing_count() == 5
    assert "Tensor(shape=(2,), dtype=float32)" in double.pretty_printed_concrete_signatures()


def test_numbers_are_arguments_with_reduce_retracing() -> None:
    @tf.function(reduce_retracing=True)
    def half(x: Any) -> Any:
        return x / 2

    assert [float(half(x)) for x in (1.0, 2.0, 5.0)] == [0.5, 1, 2.5] and half.experimental_get_tracing_count() == 1


def test_variables_are_state() -> None:
    v, frozen = tf.Variable(1.0), tf.Variable(10.0, trainable=False)

    @tf.function
    def step(x: Any) -> Any:
        v.assign_add(x)
        frozen.assign(frozen * 2.0)
        return v * frozen, None, "text", {"b": v, "a": x}

    first, none, text, rest = step(tf.constant(2.0))
    assert (float(first), none, text, list(rest), float(rest["b"])) == (60, None, "text", ["b", "a"], 3)
    v.assign(0.0)
    assert float(step(tf.constant(2.0))[0]) == 80 and (float(v), float(frozen)) == (2, 40)


def test_derivatives_of_all_kinds_in_it() -> None:
    v = tf.Variable(2.0)

    @tf.function
    def step(x: Any) -> Any:
        assert is_compiling()
        with tf.GradientTape() as outer:
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = tf.reduce_sum(v**3 * x)
            by_v, by_x = tape.gradient(y, [v, x])
        return by_v, by_x, outer.gradient(by_v, v), tape.jacobian(y, x)

    assert [np.asarray(g).tolist() for g in step(tf.constant([1.0, 2.0]))] == [36, [8, 8], 36, [8, 8]]


class Holder(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight: Any = None
        self.calls = 0

    @tf.function
    def __call__(self, x: Any) -> Any:
        self.calls += 1
        if self.weight is None:
            self.weight = tf.Variable(tf.ones((3,)))
        return x * self.weight


def test_variables_made_at_the_first_call() -> None:
    first, second = Holder(), Holder()
    assert first(tf.ones((3,))).tolist() == [1, 1, 1]
    first.weight.assign([1.0, 2.0, 3.0])
    assert first(tf.ones((3,))).tolist() == [1, 2, 3] and second(tf.ones((3,))).tolist() == [1, 1, 1]
    calls = first.calls
    first(tf.ones((3,)))
    assert first.calls == calls and [v.shape for v in first.trainable_variables] == [(3,)]


def test_a_regularised_network_first_built_in_it() -> None:
    model = tf.keras.Sequential([tf.keras.layers.Dense(2, kernel_regularizer="l2", kernel_initializer="ones")])
    optimizer = tf.keras.optimizers.SGD(0.5)

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x)) + tf.add_n(model.losses)
        slopes = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(slopes, model.trainable_variables, strict=True))
        return loss

    # The sum is 6, the penalty 0.01 for each of six ones; then each weight is 1 - 0.5 * (1 + 0.02).
    losses = [float(step(tf.ones((1, 3)))) for _ in range(2)]
    np.testing.assert_allclose(losses, [6.06, 6 * 0.49 - 1 + 0.06 * 0.49**2], rtol=1e-5)


def test_what_cannot_be_compiled_runs_as_it_is() -> None:
    v = tf.Variable(1.0)

    @tf.function
    def positive(x: Any) -> Any:
        v.assign_add(1.0)
        return x * 2.0 if tf.reduce_sum(x) > 0 else -x

    assert positive(tf.constant([1.0])).tolist() == [2] and positive(tf.constant([-1.0])).tolist() == [1]
    assert positive(tf.constant([3.0])).tolist() == [6] and float(v) == 4
    length = tf.function(tf.strings.length)
    assert int(length(tf.constant("abc"))) == 3

    @tf.function
    def by_numpy(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.py_function(lambda a: a * float(np.asarray(a)), [x], tf.float32)
        return tape.gradient(y, x)

    assert float(by_numpy(tf.constant(3.0))) == 3


def test_datasets_are_read_in_it() -> None:
    data, v = tf.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0]), tf.Variable(1.0)

    @tf.function
    def epoch(data: Any) -> Any:
        total = 0.0
        for x in data:
            with tf.GradientTape() as tape:
                loss = v * x
            v.assign_sub(tape.gradient(loss, v) * 0.1)
            total += loss
        return total

    assert float(epoch(data)) == pytest.approx(1 + 0.9 * 2 + 0.7 * 3) and float(v) == pytest.approx(0.4)
    elements: Iterator[Any] = iter(data)
    following = tf.function(lambda: next(elements) * 2.0)
    assert [float(following()) for _ in range(3)] == [2, 4, 6]


def test_strategies_run_in_it() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    v = tf.Variable(1.0, aggregation=tf.VariableAggregation.MEAN)

    @tf.function
    def step(x: Any) -> Any:
        return strategy.reduce("SUM", strategy.run(lambda a: v.assign_add(a) * 1.0, args=(x,)), axis=None)

    assert [float(step(tf.constant(2.0))) for _ in range(3)] == [3, 5, 7] and float(v) == 7


def test_it_is_recorded_by_a_tape_around_it() -> None:
    v = tf.Variable(3.0)
    function = tf.function(lambda x: x * v)
    function(tf.constant(1.0))
    with tf.GradientTape() as tape:
        y = function(tf.constant(2.0))
    assert float(tape.gradient(y, v)) == 2


def test_signatures() -> None:
    @tf.function(input_signature=[{"a": tf.TensorSpec([None], tf.float32)}, tf.TensorSpec([], tf.int32)])
    def times(x: Any, n: Any = 2) -> Any:
        return x["a"] * tf.cast(n, tf.float32)

    assert times({"a": [1.0, 2.0]}, 3).tolist() == [3, 6] and times({"a": [1.0]}).tolist() == [2]
    with pytest.raises(ArgumentError, match="must have shape"):
        times({"a": 1.0}, 3)
    with pytest.raises(ArgumentError, match="structure of the input_signature"):
        times([1.0], 3)


def test_printing_happens_in_each_call(tmp_path: Path) -> None:
    @tf.function
    def show(x: Any) -> Any:
        tf.print("now", x, output_stream=f"file://{tmp_path}/shown")
        return x

    show(tf.constant(1))
    show(tf.constant(2))
    jax.effects_barrier()
    assert (tmp_path / "shown").read_text().split() == ["now", "1", "now", "2"]


def test_errors_of_the_program_are_raised_once() -> None:
    calls: list[bool] = []

    @tf.function
    def fails(x: Any) -> Any:
        calls.append(tf.inside_function())
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails(tf.constant(1.0))
    assert calls == [True]


def test_who_has_read_a_variable_keeps_its_value() -> None:
    v = tf.Variable(tf.zeros((1000,)))

    @tf.function
    def step() -> Any:
        v.assign_add(tf.ones((1000,)))
        return v

    before, view = v.value(), v.numpy()
    after = [step() for _ in range(3)]
    assert [float(a[0]) for a in (before, view, *after, v.numpy())] == [0, 0, 1, 2, 3, 3]
    with tf.GradientTape() as tape:
        y = tf.reduce_sum(v * v)
    step()
    assert float(tape.gradient(y, v)[0]) == 6 and float(v.numpy()[0]) == 4


def test_traces_are_those_of_tensorflow() -> None:
    calls: list[int] = []
    holder = Holder()
    holder(tf.ones((3,)))
    assert holder.calls == 2
    holder(tf.ones((1, 3)))
    assert holder.calls == 3

    @tf.function
    def plain(x: Any, n: Any = 2) -> Any:
        calls.append(1)
        return x * n

    for arguments in ((1,), (2.0,), ()):
        plain(tf.constant(1.0), *arguments)
    plain(tf.constant(1.0), 2)
    plain(n=2, x=tf.constant(1.0))
    assert len(calls) == plain.experimental_get_tracing_count() == 3


def test_a_tape_around_it_records_it_as_one_operation() -> None:
    w, calls = tf.Variable(3.0), list[bool]()

    @tf.function
    def cubic(x: Any) -> Any:
        calls.append(tf.inside_function())
        return w * x * x

    x = tf.constant(2.0)
    for _ in range(2):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(x)
                y = cubic(x)
            by_x = tape.gradient(y, x)
        assert float(by_x) == 12 and float(tape.gradient(y, w)) == 4 and float(outer.gradient(by_x, x)) == 6
    assert calls == [True]
    captured = tf.function(lambda: x * x)
    captured()
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = captured()
    assert float(tape.gradient(y, x)) == 4


def test_concrete_functions() -> None:
    @tf.function
    def power(x: Any, exponent: Any, factor: Any = 1.0) -> Any:
        return {"y": x**exponent * factor}

    concrete = power.get_concrete_function(tf.TensorSpec([2], tf.float32), 3)
    assert concrete(tf.constant([1.0, 2.0]))["y"].tolist() == [1, 8]
    assert concrete.structured_outputs == {"y": tf.TensorSpec([2], tf.float32)}
    assert concrete.structured_input_signature[0][0] == tf.TensorSpec([2], tf.float32)
    with pytest.raises(TypeError, match="power is for"):
        concrete(tf.constant([1.0]))


def test_graphs_of_concrete_functions() -> None:
    v = tf.Variable(2.0, name="v")

    @tf.function
    def f(x: Any) -> Any:
        v.assign_add(1.0)
        return tf.nn.relu(x) * v

    concrete = f.get_concrete_function(tf.TensorSpec([3], tf.float32))
    graph = concrete.graph
    kinds = [operation.type for operation in graph.get_operations()]
    assert kinds[0] == "Placeholder" and kinds[-2:] == ["Identity", "AssignVariableOp"] and "Mul" in kinds
    x, result = graph.get_operation_by_name("x"), graph.get_tensor_by_name("Identity:0")
    assert x.outputs[0].shape == [3] and result.op.inputs[0].op.type == "Mul" and result.dtype == tf.float32
    assert [node.name for node in graph.as_graph_def().node] == [o.name for o in graph.get_operations()]
    assert [t.name for t in concrete.function_def.signature.input_arg] == ["x:0"]
    assert "v/ReadVariableOp" in [operation.name for operation in graph.get_operations()]
    with pytest.raises(DataNotFoundError, match=r"operations named x"):
        graph.get_operation_by_name("y")
    with pytest.raises(UnsupportedError, match="whole shapes"):
        f.get_concrete_function(tf.TensorSpec([None], tf.float32)).graph  # noqa: B018


def test_a_batch_of_several_replicas_is_an_argument() -> None:
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensors(np.float32([[1.0], [2.0]])))

    @tf.function(input_signature=[data.element_spec])
    def double(batch: Any) -> Any:
        return strategy.run(lambda x: 2 * x, args=(batch,))

    found = strategy.experimental_local_results(double(next(iter(data))))
    assert [np.asarray(part).tolist() for part in found] == [[[2.0]], [[4.0]]]


def test_an_array_that_grows_in_a_loop_runs_as_it_is() -> None:
    @tf.function
    def f(count: Any) -> Any:
        found = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
        for i in tf.range(count):
            found = found.write(i, tf.cast(i, tf.float32) * 2.0)
        return found.stack()

    assert f(tf.constant(3)).numpy().tolist() == [0.0, 2.0, 4.0]


def test_functions_of_cython_are_called_as_they_are() -> None:
    draw = np.random.default_rng(0)

    @tf.function
    def f(x: Any) -> Any:
        return x * float(draw.uniform(1.0, 1.0))

    assert f(tf.constant(3.0)).numpy() == 3.0


def test_errors_of_jax_say_what_to_write() -> None:
    def note(function: Any) -> str:
        with pytest.raises(Exception) as caught:
            jax.jit(function)(np.float32(1.0))
        return "".join(getattr(caught.value, "__notes__", ()))

    assert "tf.cond" in note(lambda x: 1 if x else 2) and "tf.print" in note(float)
    assert "tf.where" in note(lambda x: jax.numpy.ones(2)[jax.numpy.array([True, False]) & (x > 0)])
    kept: list[Any] = []
    jax.jit(lambda x: kept.append(x) or x)(1.0)
    assert "Return it" in note(lambda x: x + kept[0])
