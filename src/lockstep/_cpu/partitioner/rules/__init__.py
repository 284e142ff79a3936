"""Rules, by family of primitives; `base` says what a rule is."""

from __future__ import annotations
