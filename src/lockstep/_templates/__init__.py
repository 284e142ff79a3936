"""Deployment files for schedulers, written from one description of a job; plain text, which its owner edits."""

from __future__ import annotations
