"""Does what an optimizer does to gradients before it applies them, done where the whole gradient is: on the task."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import Any

from keras.src.optimizers.loss_scale_optimizer import LossScaleOptimizer

from lockstep._engine.servers.rules import demand_one
from lockstep.errors import UnsupportedError

_CLIPS = ("clipnorm", "global_clipnorm", "clipvalue")


def check_optimizer(optimizer: Any, shares: int) -> None:
    """Raises `UnsupportedError` for what servers cannot do as one optimizer of the whole model would."""
    if isinstance(optimizer, LossScaleOptimizer):
        raise UnsupportedError(
            "Whether a loss scale holds is decided over all gradients, of which each server has a part. Received: "
            f"{type(optimizer).__name__}. Use the policy mixed_bfloat16, which needs no loss scale, or "
            "MultiWorkerMirroredStrategy."
        )
    demand_one(optimizer)
    clip = next((name for name in _CLIPS if getattr(optimizer, name, None)), None)
    if clip is None:
        return
    if optimizer.gradient_accumulation_steps:
        raise UnsupportedError(
            f"Gradients are clipped on the task that computes them, before servers add them up. Received: {clip} "
            "together with gradient_accumulation_steps, where the sum would be clipped. Leave one of them out."
        )
    if shares > 1:
        raise UnsupportedError(
            f"What is clipped must be the gradient of the whole batch. Received: {clip}={getattr(optimizer, clip)} "
            f"with replicas={shares}, of which each has its share. Leave {clip} or `replicas` out."
        )


def clipped_as_applied(optimizer: Any, gradients: Sequence[Any]) -> list[Any]:
    """Returns gradients as `optimizer.apply` hands them to its update: without the loss scale, and clipped."""
    places = [i for i, g in enumerate(gradients) if g is not None]
    kept = [gradients[i] for i in places]
    if optimizer.loss_scale_factor is not None:
        kept = [g / optimizer.loss_scale_factor for g in kept]
    found: list[Any] = [None] * len(gradients)
    for place, gradient in zip(places, optimizer._clip_gradients(kept), strict=True):
        found[place] = gradient
    return found


@contextlib.contextmanager
def nothing_clipped(optimizer: Any) -> Generator[None]:
    """Encloses what describes an optimizer for servers, which get gradients that are clipped already."""
    before = {name: getattr(optimizer, name) for name in (*_CLIPS, "loss_scale_factor")}
    try:
        for name in before:
            setattr(optimizer, name, None)
        yield
    finally:
        for name, value in before.items():
            setattr(optimizer, name, value)
