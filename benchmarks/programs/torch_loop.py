"""A training loop in PyTorch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def as_tensors(x: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """Returns tensors as PyTorch's layers want them: channels first (laid out last), classes int64."""
    images = torch.from_numpy(x)
    if images.ndim == 4:
        images = images.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    return images, torch.from_numpy(y.astype(np.int64))


def adam(model: Any) -> Any:
    """Adam with its rate in Keras."""
    return torch.optim.Adam(model.parameters(), 1e-3)


def sgd(model: Any) -> Any:
    """SGD without momentum."""
    return torch.optim.SGD(model.parameters(), 1e-3)


def momentum(model: Any) -> Any:
    """SGD with momentum."""
    return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def rate(
    model: Any,
    optimizer: Any,
    data: tuple[Any, Any],
    batch: int,
    seconds: float,
    device: str = "cpu",
    bfloat16: bool = False,
    warm_up: int = 10,
) -> float:
    """Trains on consecutive batches; returns steps/s after the warm-up."""
    step = _step(model, optimizer, device, bfloat16)
    source = _endless(data, batch, device)
    for _ in range(warm_up):
        step(*next(source))
    _finish(device)
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        step(*next(source))
        steps += 1
        if steps % 8 == 0:
            _finish(device)
    _finish(device)
    return steps / (time.perf_counter() - start)


def timed(step: Callable[[Any, Any], None], batches: Any, steps: int) -> float:
    """Returns steps/s of so many steps."""
    start = time.perf_counter()
    for _ in range(steps):
        step(*next(batches))
    return steps / (time.perf_counter() - start)


def _step(model: Any, optimizer: Any, device: str, bfloat16: bool) -> Callable[[Any, Any], None]:
    model.train()
    loss_of = torch.nn.CrossEntropyLoss()

    def step(x: Any, y: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16) if bfloat16 else contextlib.nullcontext():
            loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def plain_step(model: Any, optimizer: Any) -> Callable[[Any, Any], None]:
    """A step on the CPU in float32."""
    return _step(model, optimizer, "cpu", False)


def _endless(data: tuple[Any, Any], batch: int, device: str) -> Any:
    x, y = (a.to(device) if device != "cpu" else a for a in data)
    while True:
        for i in range(0, len(x) - batch + 1, batch):
            yield x[i : i + batch], y[i : i + batch]


def shuffled(data: tuple[Any, Any], batch: int, seed: int) -> Any:
    """Yields batches of rows that are chosen at random."""
    x, y = data
    random = torch.Generator().manual_seed(seed)
    while True:
        rows = torch.randint(len(x), (batch,), generator=random)
        yield x[rows], y[rows]


def _finish(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()
