"""Programs written for TensorFlow, run on lockstep."""

from __future__ import annotations
