"""tf.train.Checkpoint and CheckpointManager: a loop that is stopped and goes on is one that was not stopped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep.compat.tensorflow as tf
from lockstep.errors import ArgumentError, CheckpointError, UnsupportedError

TWO = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)


class Loop:
    """What a program makes anew each time it starts."""

    def __init__(self, directory: Path, **others: Any) -> None:
        with TWO.scope():
            keras.utils.set_random_seed(3)
            self.model = tf.keras.Sequential([tf.keras.layers.Dense(4, "tanh"), tf.keras.layers.Dense(1)])
            self.model.build((None, 3))
            self.optimizer = tf.keras.optimizers.Adam(0.1)
            self.step = tf.Variable(0, trainable=False)
        self.iterator = iter(tf.data.Dataset.from_tensor_slices(X).shuffle(24).batch(6).repeat())
        self.checkpoint = tf.train.Checkpoint(
            model=self.model, optimizer=self.optimizer, counts={"step": self.step}, data=self.iterator
        )
        self.manager = tf.train.CheckpointManager(self.checkpoint, directory, max_to_keep=2, **others)

    def train(self, steps: int) -> list[Any]:
        for _ in range(steps):
            TWO.run(self._step, args=(next(self.iterator),))
            self.step.assign_add(1)
        return self.model.get_weights()

    def _step(self, x: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(x) - x[:, :1]) ** 2) / 2
        variables = self.model.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


@pytest.mark.slow
def test_going_on_is_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    tf.random.set_seed(5)
    first = Loop(tmp_path)
    assert first.manager.restore_or_initialize() is None and first.checkpoint.restore(None).assert_consumed()
    first.train(3)
    saved = first.manager.save()
    expected = first.train(4)
    second = Loop(tmp_path)
    assert second.manager.restore_or_initialize() == saved == tf.train.latest_checkpoint(tmp_path)
    assert int(second.step) == 3 and int(second.optimizer.iterations) == 3
    for ours, theirs in zip(second.train(4), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [os.path.basename(second.manager.save()) for _ in range(2)] == ["ckpt-2", "ckpt-3"]
    assert [os.path.basename(name) for name in second.manager.checkpoints] == ["ckpt-2", "ckpt-3"]


def test_an_optimizer_that_waits_is_saved_as_it_will_be(tmp_path: Path) -> None:
    first = Loop(tmp_path)
    first.train(2)
    first.manager.save()
    second = Loop(tmp_path)
    second.checkpoint.restore(second.manager.latest_checkpoint)
    second.manager.save()  # Nothing has built the optimizer.
    third = Loop(tmp_path)
    third.checkpoint.restore(third.manager.latest_checkpoint)
    third.train(0)
    third.optimizer.build(third.model.trainable_variables)
    for ours, theirs in zip(third.optimizer.variables, first.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_names_intervals_and_first_values(tmp_path: Path) -> None:
    called: list[int] = []
    loop = Loop(tmp_path)
    manager = tf.train.CheckpointManager(
        loop.checkpoint,
        tmp_path / "x",
        None,
        checkpoint_name="at",
        step_counter=loop.step,
        checkpoint_interval=3,
        init_fn=lambda: called.append(1),
    )
    assert manager.restore_or_initialize() is None and called == [1]
    names: list[Any] = []
    for _ in range(5):
        names.append(manager.save())
        loop.step.assign_add(1)
    assert [n and os.path.basename(n) for n in names] == ["at-0", None, None, "at-3", None]
    assert manager.save(check_interval=False) == str(tmp_path / "x" / "at-5")
    with pytest.raises(ArgumentError, match="counts by step_counter"):
        tf.train.CheckpointManager(loop.checkpoint, tmp_path, None, checkpoint_interval=3)


def test_single_files(tmp_path: Path) -> None:
    v, parts = tf.Variable([1.0, 2.0]), [tf.Variable(3.0), {"m": tf.keras.metrics.Mean()}]
    checkpoint = tf.train.Checkpoint(v=v, parts=parts, inner=tf.train.Checkpoint(v))
    path = checkpoint.save(tmp_path / "some")
    assert path == str(tmp_path / "some-1") and int(checkpoint.save_counter) == 1
    written = checkpoint.write(str(tmp_path / "other"))
    v.assign([5.0, 6.0])
    checkpoint.read(written).expect_partial()
    np.testing.assert_array_equal(v.numpy(), [1, 2])


def test_what_cannot_be_restored_says_why(tmp_path: Path) -> None:
    path = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])).save(tmp_path / "v")
    with pytest.raises(CheckpointError, match=r"request for 'w'; it has save_counter, v"):
        tf.train.Checkpoint(w=tf.Variable(1.0)).restore(path)
    with pytest.raises(CheckpointError, match=r"Received: v, of shape \(2,\) in the checkpoint, and \(\) here"):
        tf.train.Checkpoint(v=tf.Variable(1.0)).restore(path)
    with pytest.raises(ArgumentError, match=r"Received: n=3.*tf\.Variable"):
        tf.train.Checkpoint(n=3)
    with pytest.raises(ArgumentError, match=r"options must be None or tf\.train\.CheckpointOptions"):
        tf.train.Checkpoint(v=tf.Variable(1.0)).save(tmp_path / "v", options=1)


def test_options_change_nothing(tmp_path: Path) -> None:
    options = tf.train.CheckpointOptions(experimental_io_device="/job:localhost", enable_async=True)
    path = tf.train.Checkpoint(v=tf.Variable(3.0)).save(tmp_path / "v", options=options)
    v = tf.Variable(1.0)
    tf.train.Checkpoint(v=v).restore(path, options=options)
    assert v.numpy() == 3.0
    with pytest.raises(UnsupportedError, match="Call them after"):
        tf.train.CheckpointOptions(experimental_write_callbacks=[print])


def test_a_part_of_what_was_saved_is_restored_by_its_path(tmp_path: Path) -> None:
    class Net(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.l1 = tf.keras.layers.Dense(2)

        def call(self, x: Any) -> Any:
            return self.l1(x)

    net = Net()
    net(X)
    path = tf.train.Checkpoint(net=net).save(tmp_path / "ckpt")
    bias, kernel = tf.Variable([7.0, 7.0]), tf.Variable(tf.zeros([3, 2]))
    layer = tf.train.Checkpoint(bias=bias)
    tf.train.Checkpoint(net=tf.train.Checkpoint(l1=layer)).restore(path).assert_existing_objects_matched()
    assert bias.numpy().tolist() == [0.0, 0.0]
    # What is assigned later has its value then.
    layer.kernel = kernel
    np.testing.assert_array_equal(kernel.numpy(), net.l1.kernel.numpy())
    shapes = tf.train.load_checkpoint(tmp_path).get_variable_to_shape_map()
    assert shapes["net/l1/kernel/.ATTRIBUTES/VARIABLE_VALUE"] == [3, 2]


def test_modules_and_lists_get_values_as_they_grow(tmp_path: Path) -> None:
    class Late(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w: Any = None

        def __call__(self) -> Any:
            if self.w is None:
                self.w = tf.Variable([1.0, 1.0], name="w")
            return self.w

    class Outer(tf.Module):
        def __init__(self) -> None:
            super().__init__()
            self.late = Late()

    saved = tf.train.Checkpoint(outer=Outer(), listed=[tf.Variable(4.0)])
    saved.outer.late().assign([5.0, 6.0])
    saved.listed.append(tf.Variable(8.0))
    saved.mapped = {"two": saved.listed[1]}
    path = saved.save(tmp_path / "ckpt")
    found = tf.train.Checkpoint(outer=Outer())
    found.restore(path)
    assert found.outer.late().numpy().tolist() == [5.0, 6.0]
    # One variable, by another of its paths.
    found.mapped = {"two": tf.Variable(0.0)}
    assert found.mapped["two"].numpy() == 8.0
    found.listed = []
    found.listed.append(tf.Variable(0.0))
    assert found.listed[0].numpy() == 4.0
