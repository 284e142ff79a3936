"""Tests of lockstep.data."""

from __future__ import annotations
