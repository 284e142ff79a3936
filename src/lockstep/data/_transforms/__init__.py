"""Transformations: nodes of plans, and the cursors over them."""

from __future__ import annotations
