"""What goes wrong, where and when: drawn from a seed, so that a failing run can be repeated."""

from __future__ import annotations

import random
from dataclasses import dataclass

# How long the job trains.
STEPS = 120
# What the harness does to a process, and what the program does to itself.
SIGNALS = ("SIGKILL", "SIGTERM", "SIGSTOP")
TRAINERS_OWN = ("slow input", "raising input", "NaN")
# Only the chief writes checkpoints.
CHIEFS_OWN = ("full disk", "EIO")
# Of the newest checkpoint, before a worker is killed.
DAMAGE = ("truncated file",)


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, once.

    Attributes:
        kind: What.
        victim: The task, such as "worker 1".
        step: When the victim has made this step; 0 for while it starts.
        seconds: So much later; the victim of a signal that comes at once does no further step before it has come.
    """

    kind: str
    victim: str
    step: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.kind} of {self.victim} at step {self.step} + {self.seconds:.2f} s"


def schedule(seed: int, workers: int, has_evaluator: bool) -> list[Fault]:
    """Draws one to three faults."""
    chance = random.Random(seed)
    return [_fault(chance, workers, has_evaluator) for _ in range(chance.choice((1, 1, 2, 3)))]


def _fault(chance: random.Random, workers: int, has_evaluator: bool) -> Fault:
    kind = chance.choice((*SIGNALS, *SIGNALS, *TRAINERS_OWN, *CHIEFS_OWN, *DAMAGE))
    step = chance.choice((0, *(chance.randrange(1, STEPS) for _ in range(5))))
    if kind in CHIEFS_OWN:
        return Fault(kind, "worker 0", max(step, 1), 0.0)
    if kind in TRAINERS_OWN:
        return Fault(kind, f"worker {chance.randrange(workers)}", max(step, 1), 0.0)
    victims = [f"worker {i}" for i in range(workers)]
    if has_evaluator and kind in SIGNALS:
        victims.append("evaluator 0")
    return Fault(kind, chance.choice(victims), step, chance.uniform(0.0, 3.0 if step == 0 else 0.3))
