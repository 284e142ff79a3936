"""Logs of training for TensorBoard, without TensorFlow."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import keras
import numpy as np

from lockstep._types import Model, Optimizer
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.summary import EventFile
from lockstep.summary.internal import goes_on_without, session_start
from lockstep.training.callbacks._graph import graph_def_of, graph_of


class TensorBoard(keras.callbacks.TensorBoard):
    """Writes what `keras.callbacks.TensorBoard` writes, in the same places, without TensorFlow.

    `log_dir/train` gets `epoch_<metric>` and `epoch_learning_rate`, `log_dir/validation` gets `epoch_<metric>` and
    `evaluation_<metric>_vs_iterations`. In a cluster only the chief writes. What cannot be written, such as on a full
    disk, is a warning in the log with its path; training goes on.

    Args:
        log_dir: Where; no other callback may write there. Default: `"logs"`.
        histogram_freq: After how many epochs the distribution of each weight is written (`<path>/histogram`). 0: never.
        write_graph: Whether the model's configuration is written, from which TensorBoard draws the conceptual graph;
            of Sequential and functional models only. There is no other graph: what runs is compiled by XLA.
        write_images: Whether weights are also written as pictures (`<path>/image`), when histograms are.
        write_steps_per_second: Whether `epoch_steps_per_second` (and `batch_steps_per_second`) is written.
        update_freq: `"epoch"`; or after how many batches `batch_<metric>` is written, `"batch"` for each.
        profile_batch: The batch, or the first and last one, counted from 1, that JAX' profiler records into
            `log_dir/train/plugins/profile`. 0: none.
        embeddings_freq: Must be 0: the projector reads TensorFlow's checkpoints only.
        embeddings_metadata: Must be None.
        hparams: Hyperparameters of this run, for the HParams tab: numbers, texts or booleans by name. They are written
            to `log_dir` itself, and shown beside the last metrics of `train` and `validation`.

    Source: `tf.keras.callbacks.TensorBoard`.

    Raises:
        ArgumentError: If a frequency or `profile_batch` is out of range.
        UnsupportedError: If embeddings are asked for.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: Any = "epoch",
        profile_batch: Any = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: Any = None,
        *,
        hparams: Mapping[str, Any] | None = None,
    ) -> None:
        # Not that of the base class, which prepares TensorFlow's profiler; deriving from it says what this is.
        keras.callbacks.Callback.__init__(self)
        if embeddings_freq or embeddings_metadata:
            raise UnsupportedError(
                "TensorBoard's projector reads embeddings from TensorFlow's checkpoints, which nothing here writes: "
                f"embeddings_freq={embeddings_freq!r} was given. Leave it out."
            )
        self.log_dir = os.fspath(log_dir)
        self.histogram_freq = _frequency("histogram_freq", histogram_freq, least=0)
        self.write_graph = write_graph
        self.write_images = write_images
        self.write_steps_per_second = write_steps_per_second
        self.update_freq: Any = update_freq
        if update_freq != "epoch":
            self.update_freq = 1 if update_freq == "batch" else _frequency("update_freq", update_freq, least=1)
        self._profiled = _batch_range(profile_batch)
        self._traces = os.path.join(self.log_dir, "train")
        # Names as keras.callbacks.TensorBoard has them; ".v2" is the suffix of tf.summary.create_file_writer.
        self._train = EventFile(os.path.join(self.log_dir, "train"), ".v2")
        self._validation = EventFile(os.path.join(self.log_dir, "validation"), ".v2")
        self._hparams = dict(hparams or {})
        self._session = EventFile(self.log_dir, ".v2")
        if self._hparams:
            session_start(self._hparams, "")  # Refuses, before training, what cannot be shown.
        # Of this fit, as Keras counts them; `set_state` sets those of an interrupted one.
        self._steps = self._steps_before_epoch = 0
        self._batch_start = self._epoch_start = time.perf_counter()
        self._is_tracing = self._is_training = False

    @property
    def looks_at_batches(self) -> bool:
        """Returns whether it must be called after each batch; otherwise one dispatch may run several."""
        return self.update_freq != "epoch" or self._profiled is not None

    def get_state(self) -> dict[str, int]:
        """Returns how many batches there were, for a training that goes on after an interruption."""
        return {"steps": self._steps, "steps_before_epoch": self._steps_before_epoch}

    def set_state(self, state: dict[str, int]) -> None:
        """Goes on with that number."""
        self._steps, self._steps_before_epoch = state["steps"], state["steps_before_epoch"]

    def set_model(self, model: Model) -> None:
        """Takes the model, and writes its configuration if asked to."""
        keras.callbacks.Callback.set_model(self, model)
        self._close()
        # The configuration of a subclassed model does not say how its layers are connected.
        if self.write_graph and type(model).__name__ in ("Functional", "Sequential"):
            try:
                json = model.to_json()
                configuration, graph = graph_of(json), graph_def_of(json)
            except Exception as error:
                warnings.warn(f"TensorBoard gets no graph: the model cannot be put into JSON ({error}).", stacklevel=2)
                return
            self._train.text_of_plugin("keras", "graph_keras_model", configuration, 0)
            self._train.graph(graph)

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Counts batches from the start."""
        self._is_training = True
        self._steps = self._steps_before_epoch = 0
        if self._hparams:
            self._session.hparams(self._hparams)
            self._session.flush()

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Ends a profile that is still running, and closes the files."""
        self._is_training = False
        self._end_trace()
        if self._hparams:
            self._session.end_hparams()
        self._close()

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Remembers when, and after how many batches, the epoch began."""
        self._steps_before_epoch = self._steps
        self._epoch_start = time.perf_counter()

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Starts the profile, if this is its first batch."""
        self._batch_start = time.perf_counter()
        if self._profiled and not self._is_tracing and self._number(batch) == self._profiled[0]:
            with goes_on_without(self._traces):
                jax.profiler.start_trace(self._traces)
                self._is_tracing = True

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the metrics so far, if it is time to, and ends the profile after its last batch."""
        before, self._steps = self._steps, self._number(batch)
        if self.update_freq != "epoch" and self._steps // self.update_freq > before // self.update_freq:
            self._write_batch(dict(logs or {}), self._steps - before)
        if self._is_tracing and self._profiled and self._steps >= self._profiled[1]:
            self._end_trace()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the metrics of the epoch, the learning rate, and what else was asked for."""
        logs = dict(logs or {})
        # Keras has one dict for both; TensorBoard shows equal names of two directories as two lines of one chart.
        names = [name for name in logs if name.startswith("val_")]
        _write_all(self._validation, {f"epoch_{name[4:]}": logs.pop(name) for name in names}, epoch)
        if logs:
            logs.update(_learning_rates(self._trained.optimizer))
            if self.write_steps_per_second:
                seconds = time.perf_counter() - self._epoch_start
                logs["steps_per_second"] = (self._steps - self._steps_before_epoch) / seconds
        _write_all(self._train, {f"epoch_{name}": value for name, value in logs.items()}, epoch)
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            self._write_weights(epoch)

    def on_test_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Does nothing: all is written when the evaluation ends."""

    def on_test_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Does nothing: all is written when the evaluation ends."""

    def on_test_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Writes the metrics of an evaluation over the number of training steps."""
        optimizer = self._trained.optimizer
        if optimizer is not None and hasattr(optimizer, "iterations"):
            values = {f"evaluation_{name}_vs_iterations": value for name, value in (logs or {}).items()}
            _write_all(self._validation, values, int(np.asarray(optimizer.iterations)))
        if not self._is_training:
            self._close()

    @property
    def _trained(self) -> Any:
        return self.model

    def _number(self, batch: int) -> int:
        """Returns the number of a batch, counted from 1 over all epochs of a `fit`."""
        return self._steps_before_epoch + batch + 1

    def _write_batch(self, logs: dict[str, Any], steps: int) -> None:
        if self.write_steps_per_second:
            # Batches of one dispatch are reported one after the other: the clock may not have moved.
            logs["steps_per_second"] = steps / max(time.perf_counter() - self._batch_start, 1e-9)
        _write_all(self._train, {f"batch_{name}": value for name, value in logs.items()}, self._steps)

    def _write_weights(self, epoch: int) -> None:
        channels_last = keras.config.image_data_format() == "channels_last"
        for weight in (weight for layer in self._trained.layers for weight in layer.weights):
            value = np.asarray(keras.ops.convert_to_numpy(weight))
            self._train.histogram(f"{weight.path}/histogram", value.astype("float32"), epoch)
            if self.write_images:
                images, tag = list(_images(value, channels_last)), f"{weight.path}/image"
                # Keras shows three, as many as it asks TensorBoard for.
                for number, image in enumerate(images[:3]):
                    self._train.image(tag if len(images) == 1 else f"{tag}/{number}", image, epoch)
        self._train.flush()

    def _end_trace(self) -> None:
        if self._is_tracing:
            self._is_tracing = False
            with goes_on_without(self._traces):
                jax.profiler.stop_trace()

    def _close(self) -> None:
        for file in (self._train, self._validation, self._session):
            file.close()


def _write_all(file: EventFile, values: dict[str, Any], step: int) -> None:
    for tag, value in values.items():
        file.scalar(tag, value, step)
    file.flush()


def _learning_rates(optimizer: Optimizer) -> dict[str, float]:
    # A LossScaleOptimizer wraps the one that has the rate.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if hasattr(optimizer, "optimizers"):
        return {f"learning_rate_{one.name}": float(np.asarray(one.learning_rate)) for one in optimizer.optimizers}
    if isinstance(optimizer, keras.optimizers.Optimizer):
        return {"learning_rate": float(np.asarray(optimizer.learning_rate))}
    return {}


def _frequency(name: str, value: Any, least: int) -> int:
    # True is a whole number to Python, and not what somebody means by a frequency.
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ArgumentError(f"{name} is a whole number, at least {least}: received {value!r}.")
    return value


def _batch_range(profile_batch: Any) -> tuple[int, int] | None:
    """Returns the first and the last batch to profile, counted from 1, or `None` for none.

    Args:
        profile_batch: A number, a pair of numbers, or a text `"first,last"`; 0 for none.

    Raises:
        ArgumentError: If it is something else.
    """
    parts = profile_batch.split(",") if isinstance(profile_batch, str) else profile_batch
    parts = [parts, parts] if isinstance(parts, int) else list(parts) if isinstance(parts, (list, tuple)) else []
    if len(parts) == 1:
        parts *= 2
    try:
        first, last = (int(part) for part in parts)
    except (TypeError, ValueError):
        first, last = -1, -1
    if (first, last) == (0, 0):
        return None
    if not 0 < first <= last:
        raise ArgumentError(
            "profile_batch is 0, the number of a batch from 1 on, or a pair of first and last batch: received "
            f"{profile_batch!r}. Leave it out to profile nothing."
        )
    return first, last


def _images(weight: np.ndarray, channels_last: bool) -> Iterator[np.ndarray]:
    """Yields images (height, width, 1) in 0..255 of a bias, a matrix or the kernels of a convolution; of others none.

    Args:
        weight: A bias (one row), a matrix (the longer side across), or a stack of kernels of a convolution.
        channels_last: Whether the kernels of a stack are along its last axis.
    """
    weight = np.squeeze(weight)
    images: list[np.ndarray] = []
    if weight.ndim == 1:
        images = [weight[None, :]]
    elif weight.ndim == 2:
        images = [weight.T if weight.shape[0] > weight.shape[1] else weight]
    elif weight.ndim == 3:
        images = list(np.moveaxis(weight, -1, 0) if channels_last else weight)
    for image in images:
        # A weight that is NaN should be looked at, and not end the training that writes it.
        values = np.nan_to_num(image[:, :, None].astype("float32"))
        low, high = float(values.min()), float(values.max())
        # A picture of one value alone is black: there is no range to stretch.
        yield (values - low) * (255.0 / (high - low) if high > low else 0.0)
