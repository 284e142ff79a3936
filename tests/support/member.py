"""A process of a test cluster: makes its strategy, then runs the cases that its standard input names."""

from __future__ import annotations

import gc
import importlib
import json
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import lockstep as ls


def _strategy(kind: str) -> ls.distribute.Strategy:
    if kind == "plain":
        return ls.distribute.get_strategy()
    if kind == "mirrored":
        return ls.distribute.MirroredStrategy()
    return ls.distribute.MultiWorkerMirroredStrategy()


def _run(request: dict[str, Any], strategy: ls.distribute.Strategy) -> dict[str, Any]:
    module, name = request["case"].split(":")
    case: Callable[..., dict[str, Any]] = getattr(importlib.import_module(module), name)
    try:
        np.savez(request["result"], **case(strategy, **request["arguments"]))
    except Exception:
        return {"error": traceback.format_exc()}
    return {"done": True}


def main() -> None:
    """Serves requests until standard input ends."""
    warnings.simplefilter("error")
    # Keras' own, with numpy 2: Variable.__array__ lacks an argument.
    warnings.filterwarnings("ignore", "__array__ implementation doesn't accept", DeprecationWarning)
    strategy = _strategy(sys.argv[1])
    gc.freeze()  # Keras collects garbage with each `clear_session`: not among what was imported.
    # Only answers go where the test reads; what a case prints is for the log.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line), strategy)), file=answers, flush=True)


if __name__ == "__main__":
    main()
