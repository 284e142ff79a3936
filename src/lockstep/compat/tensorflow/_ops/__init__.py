"""TensorFlow's operations, on host arrays, JAX arrays and Keras' symbolic tensors; private."""

from __future__ import annotations
