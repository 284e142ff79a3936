"""Keras' `fit`, `evaluate`, `predict` and their kin, on lockstep's loop. Private.

Leans on Keras' internals (`keras.src`), and is the only package that does, except the data adapters in `_engine.input`.
"""

from __future__ import annotations
