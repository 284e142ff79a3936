"""Transformations, one idea a file. Private."""

from __future__ import annotations
