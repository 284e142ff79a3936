"""Trains a network of the zoo for an epoch with a progress bar: `first_step.py SIDE NETWORK`."""

from __future__ import annotations

import sys
from pathlib import Path

# The checkout, not this directory, is where modules are looked for.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from benchmarks.zoo.measure import compiled, networks  # noqa: E402

# The bar must count to two digits, or its steps look like epochs.
_STEPS = 10


def main(side: str, name: str) -> None:
    """Trains."""
    network = networks()[name]
    _, model = compiled(side, network)
    x, y = network.examples(network.batch * _STEPS)
    model.fit(x, y, batch_size=network.batch, shuffle=False, verbose=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
