"""`lockstep.launch`: functions of a notebook as source, on workers that `lockstep run` starts and supervises."""

from __future__ import annotations
