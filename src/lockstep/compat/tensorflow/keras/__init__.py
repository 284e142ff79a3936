"""`tf.keras` for programs written for TensorFlow 2 with Keras 2, on Keras 3 and JAX.

Every public module of `keras` is a module here, and what differs in nothing is the very object of `keras`: names are
looked up in the live module each time, so that what is replaced there (`keras.datasets.mnist.load_data`) is replaced
here. What Keras 2 had and Keras 3 lacks is added where it has a meaning; where it has none, the error says what to do.

Importing this package changes classes of Keras itself, because programs use `keras` and `tf.keras` side by side, and
models do not know through which name they were made. The changes turn errors into what Keras 2 did:

* `Layer`: `weights=`, `batch_input_shape=`, `dynamic=False` of the constructor; `add_weight("name", ...)`;
  `input_shape`, `output_shape`, `get_input_at`, `get_output_at` and their `_shape` forms; `reset_states`.
* `Model`: `save` to a path without extension (a directory), `save_format=`, `options=None`, `save_traces=`;
  `save_weights` and `load_weights` of `cp.ckpt` and of `.h5`; `fit_generator` and its kin; `workers=`,
  `use_multiprocessing=`, `max_queue_size=`; `state_updates`, `updates`; arguments of `compile` that have no effect.
* `Sequential`: `predict_classes`, `predict_proba`; `input` and `output` before it is called; a first layer with
  `batch_input_shape=`.
* `Optimizer`: `lr`, `get_weights`, `weights`, `lr=`, whole numbers as learning rate. `Metric`: the name as first
  argument, `reset_states`, `add_weight("name")`. `reduction="auto"` of losses. `ImageDataGenerator` with new SciPy.

Three things that work in Keras 3 look different afterwards: `Model.metrics_names` gives Keras 2's names (`accuracy`
instead of `compile_metrics`), `input_shape=` of a layer no longer warns, and assigning `optimizer.lr` sets the learning
rate, where Keras 3 stores an attribute that nothing reads.

Source: `tf.keras` of TensorFlow 2.15.
"""

from __future__ import annotations

from typing import Any as _Any

from lockstep.compat.tensorflow.keras import _patches
from lockstep.compat.tensorflow.keras import _views as _views
from lockstep.compat.tensorflow.keras._saves import latest_checkpoint as latest_checkpoint

_patches.install()
_views.install()


def __getattr__(name: str) -> _Any:
    return _views.lookup("", name)


def __dir__() -> list[str]:
    return _views.names("")
