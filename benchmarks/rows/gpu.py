"""One GPU: rows 1 to 3, and ResNet-50 in bfloat16, beside a bare jax loop and PyTorch.

Examples are made up, and lie on the GPU for the peers; lockstep is given arrays in the host's memory, as in a program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.harness.case import KERAS, LOOP, OURS, SCAN, TORCH, Bar, Case, Side

_RATE = "examples/s"
_COMPILED = "PyTorch, torch.compile"


def cases(device: str, smoke: bool) -> list[Case]:
    """Returns the cases for `device`, `cuda` or `cpu`; `smoke` makes them so small that only the path is tried."""
    side, large, small, steps = (32, 4, 4, 2) if smoke else (224, 256, 128, 4)
    text = {"batch": 4 if smoke else 128, "steps": 2 if smoke else 16}
    picture = {"side": side, "steps": steps, "bfloat16": True}
    tiny = {"count": 640, "logged": 2} if smoke else {}
    own = {"device": device, **tiny, "least": 2, "warm_up": 2 if smoke else 10, "every": 8}
    return [
        _steps(1, "Estimator", "Estimator tutorial's CNN, batch 64", "benchmarks.rows.estimator", own),
        _steps(2, "MLP", "MLP 784-256-256-10, batch 32, Adam", "benchmarks.rows.mlp", own),
        _network("MobileNetV2", {**own, **picture, "model": "mobilenet", "batch": small}),
        _network("LSTM", {**own, **text, "model": "lstm"}),
        _network("Transformer", {**own, **text, "model": "transformer"}),
        _network("ResNet-50", {**own, **picture, "model": "resnet", "batch": small}),
        _network("ResNet-50 (larger batch)", {**own, **picture, "model": "resnet", "batch": large}),
    ]


def _steps(row: int, name: str, title: str, module: str, own: Mapping[str, Any]) -> Case:
    metric = "steps/s"
    return Case(
        row=row,
        name=name,
        title=title,
        module=module,
        metrics={metric: "as on the CPU"},
        needs=["digits"],
        sides=[
            Side(OURS, "lockstep", "lockstep", "ours", own),
            Side(KERAS, "keras_on_jax", "jax", options=own),
            Side(TORCH, "pytorch", "torch", options=own),
            Side(LOOP, "jax_loop", "jax", "ceiling", own),
            Side(SCAN, "jax_scan", "jax", "ceiling", own),
        ],
        bars=[_figure(other, metric) for other in (LOOP, SCAN, KERAS, TORCH)],
    )


def _network(name: str, own: Mapping[str, Any]) -> Case:
    exact = ", bfloat16" if own.get("bfloat16") else ""
    return Case(
        row=3,
        name=name,
        title=f"{name}: batch {own['batch']}{exact}, `fit`",
        module="benchmarks.rows.networks",
        metrics={_RATE: f"whole epochs of {own['steps']} steps after the first one"},
        sides=[
            Side(OURS, "lockstep", "lockstep", "ours", own),
            Side(KERAS, "keras_on_jax", "jax", options=own),
            Side(TORCH, "pytorch", "torch", options=own),
            Side(_COMPILED, "pytorch", "torch", options={**own, "compiled": True}, quick=False),
            Side(LOOP, "jax_loop", "jax", "ceiling", own),
        ],
        bars=[_figure(other, _RATE) for other in (LOOP, KERAS, TORCH)],
        batch=own["batch"],
    )


def _figure(other: str, metric: str) -> Bar:
    return Bar(f"x {other}", (OURS, metric), [(other, metric)], None)
