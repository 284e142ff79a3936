"""Keras 2's preprocessing layers of text and categories, which in Keras 3 need TensorFlow."""

from __future__ import annotations
