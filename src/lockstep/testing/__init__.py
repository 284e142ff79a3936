"""A test kit for programs that train on several tasks: a cluster of real processes on this machine.

```python
from lockstep.testing import LocalCluster

def test_two_workers_train_alike(tmp_path):
    with LocalCluster(workers=2) as cluster:
        first, second = cluster.run(training.train, tmp_path)   # in both processes, each with its TF_CONFIG
    assert first == second
```

`local_cluster` is the same as a fixture of pytest. The guide is docs/testing.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lockstep.testing._cluster import LocalCluster, Run, TaskError

if TYPE_CHECKING:
    from lockstep.testing._fixture import local_cluster as local_cluster

__all__ = ["LocalCluster", "Run", "TaskError", "local_cluster"]


def __getattr__(name: str) -> Any:
    if name == "local_cluster":  # Needs pytest, which lockstep does not require.
        return importlib.import_module("lockstep.testing._fixture").local_cluster
    raise AttributeError(f"module 'lockstep.testing' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
