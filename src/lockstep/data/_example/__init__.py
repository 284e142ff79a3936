"""TensorFlow's messages for examples and tensors, without TensorFlow: building, parsing."""

from __future__ import annotations
