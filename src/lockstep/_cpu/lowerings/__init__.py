"""Lowerings: other operations for XLA's CPU backend in place of those that it computes slowly.

A program means the same with them as without, up to rounding; only shapes that were measured faster are rewritten.
`rewrite` applies them, `rules` says to which primitive, and a file holds each.
"""

from __future__ import annotations
