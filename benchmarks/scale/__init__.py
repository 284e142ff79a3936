"""Scale on paper: constants that are measured, a model of a step on N workers, and how far it is off here."""

from __future__ import annotations
