"""Seconds that `import lockstep` and `import lockstep; import keras` take, beside `import keras`.

    .venv/bin/python benchmarks/imports.py [ROUNDS]

Each import runs in a process of its own, in turn, so that drift of the machine meets all alike; medians are compared.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

PEER = "import keras"
STATEMENTS = [PEER, "import lockstep", "import lockstep, keras"]


def seconds(statement: str) -> float:
    """Runs one import in a fresh process."""
    code = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    return float(subprocess.check_output([sys.executable, "-c", code], env=environment, text=True))


def main(rounds: int) -> None:
    """Prints a table."""
    found: dict[str, list[float]] = {s: [] for s in STATEMENTS}
    for i in range(rounds + 1):
        for statement in STATEMENTS:
            taken = seconds(statement)
            if i:  # The first round warms the file cache.
                found[statement].append(taken)
    medians = {s: statistics.median(values) for s, values in found.items()}
    print(f"{'statement':<26}{'seconds':>8}{'ratio':>8}")
    for statement, median in medians.items():
        print(f"{statement:<26}{median:>8.3f}{median / medians[PEER]:>8.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
