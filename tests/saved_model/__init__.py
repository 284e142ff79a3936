"""Tests of lockstep.saved_model."""

from __future__ import annotations
