"""Models and loops that are measured, as each side writes them."""

from __future__ import annotations
