"""lockstep beside its peers. `run.py` is the command; README.md says how to read what it writes."""

from __future__ import annotations
