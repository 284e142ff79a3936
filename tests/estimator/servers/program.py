"""The program of each task of a job: trains all cases, one after another."""

from __future__ import annotations

import sys
from pathlib import Path

import lockstep as ls  # Above Keras: it chooses Keras' JAX backend.

# isort: split
import numpy as np

from tests.estimator.servers.cases import CASES, train_case


def main() -> None:
    folder, mode, staleness = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    options = {"mode": "sync"} if mode == "sync" else {"mode": "async", "staleness": staleness}
    strategy = ls.distribute.ParameterServerStrategy(**options)
    if ls.cluster_resolver.TFConfigClusterResolver().task_type == "ps":
        strategy._servers.job.serve_until_end()
        return
    for name in CASES:
        values = train_case(name, folder / name, strategy)
        if values:
            np.savez(folder / f"{name}.npz", **{key.replace("/", "|"): value for key, value in values.items()})


if __name__ == "__main__":
    main()
