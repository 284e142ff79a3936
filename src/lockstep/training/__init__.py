"""Training outside of Keras' `fit`: programs of one's own, callbacks, functions that run once per replica."""

from __future__ import annotations

from lockstep.training import callbacks as callbacks
from lockstep.training import random as random
from lockstep.training._function import function as function
from lockstep.training._memory import MemoryEstimate as MemoryEstimate
from lockstep.training._memory import estimate_memory as estimate_memory
from lockstep.training._program import Program as Program
from lockstep.training._record import Record as Record
from lockstep.training._record import record as record
from lockstep.training._training import Every as Every
from lockstep.training._training import Training as Training

__all__ = [
    "Every",
    "MemoryEstimate",
    "Program",
    "Record",
    "Training",
    "callbacks",
    "estimate_memory",
    "function",
    "random",
    "record",
]
