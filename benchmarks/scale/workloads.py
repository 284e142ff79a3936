"""What is predicted, and what that rests on. None of these constants was measured here, unless a line says so.

`gpu.json` in results/, where a run of `gpu.py` on a GPU has left it, replaces the steps it has measured.
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.scale.model import Network, Workload

WORKERS = [2**i for i in range(11)]

# Line rate x 0.9 for what headers and imperfect pipelining take. Latency of a hop, software included: 30 us over TCP,
# 5 us over RDMA. All three are assumptions; the measured latency of Gloo on loopback is in the table beside them.
NETWORKS = [
    Network("10 Gb/s", 30e-6, 0.9 * 10e9 / 8),
    Network("100 Gb/s", 5e-6, 0.9 * 100e9 / 8),
    Network("400 Gb/s", 5e-6, 0.9 * 400e9 / 8),
]

# A V100 with mixed precision: flax' ImageNet example, 8 GPUs, 4.3 h; 1.281 million images, 100 epochs assumed.
_RESNET_IMAGES = 1.281e6 * 100 / (4.3 * 3600) / 8
# An H100: torchtitan, Llama-3.1-8B, 5,762 tokens/s per GPU (2024-12), that is 6 x 8.03e9 x 5,762 FLOP/s. The same rate
# is assumed for 350 million parameters.
_TRANSFORMER_TOKENS = 5762 * 8.03e9 / 350e6

WORKLOADS = [
    Workload(
        "MobileNetV2",
        128 / (2 * _RESNET_IMAGES),
        3_504_872,
        source="batch 128; assumed: twice ResNet-50's images/s",
    ),
    Workload(
        "ResNet-50",
        128 / _RESNET_IMAGES,
        25_557_032,
        source=(
            f"batch 128; {_RESNET_IMAGES:,.0f} images/s on a V100 (flax' ImageNet example: 8 GPUs in 4.3 h, 100 epochs "
            "assumed)"
        ),
    ),
    Workload(
        "transformer, 350 M",
        32_768 / _TRANSFORMER_TOKENS,
        350_000_000,
        source=f"32,768 tokens; {_TRANSFORMER_TOKENS:,.0f} tokens/s on an H100 (torchtitan's FLOP/s for Llama-3.1-8B)",
    ),
]


def workloads(measured: Path) -> list[Workload]:
    """Returns the workloads, with steps from the JSON of a GPU run where there is one."""
    steps = _steps(measured)
    return [_with_step(w, *steps[w.name]) if w.name in steps else w for w in WORKLOADS]


def _with_step(work: Workload, seconds: float, source: str) -> Workload:
    return Workload(work.name, seconds, work.parameters, work.bytes_each, work.deviation, source)


def _steps(path: Path) -> dict[str, tuple[float, str]]:
    """Seconds of a step of each network that lockstep trained on a GPU; a smoke run on the CPU does not count."""
    if not path.exists():
        return {}
    result = json.loads(path.read_text())
    found = {}
    for case in result["cases"] if result.get("device", "cpu") != "cpu" else []:
        rates = [r["examples/s"] for s in case["sides"] if s["name"] == "lockstep" for r in s["rounds"]]
        if rates and case.get("batch"):
            middle = sorted(rates)[len(rates) // 2]
            found[case["name"]] = (case["batch"] / middle, f"measured: {result['device']}, {result['date']}")
    return found
