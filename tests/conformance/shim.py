"""Makes `import tensorflow` and its internal modules give lockstep.compat's names, in a process of tests."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.conformance.absent import Absent

_COMPAT = "lockstep.compat.tensorflow"
_HELPERS = "tests.conformance.helpers"
# Modules of TensorFlow's tests for which there are ones of our own.
HELPERS = {
    "tensorflow.python.platform.test": "case",
    "tensorflow.python.platform.googletest": "case",
    "tensorflow.python.eager.test": "case",
    "tensorflow.python.framework.test_util": "modes",
    "tensorflow.python.framework.combinations": "combinations",
    "tensorflow.python.framework.test_combinations": "combinations",
    "tensorflow.python.distribute.combinations": "combinations",
    "tensorflow.python.distribute.strategy_combinations": "strategies",
    "tensorflow.python.distribute.test_util": "distribute",
    "tensorflow.python.distribute.multi_worker_test_base": "workers",
    "tensorflow.python.distribute.multi_process_runner": "workers",
    "tensorflow.python.data.kernel_tests.test_base": "datasets",
    "tensorflow.python.data.kernel_tests.checkpoint_test_base": "positions",
    "tensorflow.python.eager.context": "context",
    "tensorflow.python.data.ops.test_mode": "context",
    "tensorflow.python.tf2": "context",
    "tensorflow.python.compat.v2_compat": "context",
    "tensorflow.python.compat.compat": "context",
    "tensorflow.python.data.util.nest": "nest",
    "tensorflow.python.types.core": "core_types",
    "tensorflow_estimator.python.estimator.model_fn": "model_fn",
    "tensorflow_estimator.python.estimator.canned.metric_keys": "keys",
    "tensorflow_estimator.python.estimator.canned.prediction_keys": "keys",
}
# Internal modules whose names are those of a module of ours: looked up there after the table.
_OTHERS = {
    "tensorflow.python.distribute.values": "lockstep.distribute",
    "tensorflow.python.distribute.distribute_lib": "lockstep.distribute",
    "tensorflow.core.protobuf.config_pb2": f"{_COMPAT}.compat.v1",
    "tensorflow.core.example.example_pb2": f"{_COMPAT}.train",
    "tensorflow.core.example.feature_pb2": f"{_COMPAT}.train",
    "tensorflow.python.util.compat": f"{_COMPAT}.compat",
    "tensorflow.python.ops.variables": _COMPAT,
    "tensorflow.python.framework.tensor": _COMPAT,
    "tensorflow_estimator.python.estimator.util.tf_keras": f"{_COMPAT}.keras",
    "tensorflow_estimator.python.estimator.util.tf_keras_v1": f"{_COMPAT}.keras",
}
# Public names that stand for graphs and sessions, which lockstep leaves out on purpose.
GRAPH = frozenset(
    [
        "Graph",
        "Operation",
        "v1.Graph",
        "v1.Session",
        "v1.InteractiveSession",
        "v1.placeholder",
        "v1.get_default_session",
        "v1.sparse_placeholder",
        "v1.train.MonitoredSession",
        "v1.train.Server",
        "v1.train.Saver",
        "distribute.Server",
        "v1.train.Supervisor",
        "v1.Operation",
        "v1.disable_eager_execution",
        "v1.disable_v2_behavior",
        "v1.global_variables_initializer",
        "v1.tables_initializer",
        "v1.train.import_meta_graph",
        "v1.train.export_meta_graph",
        "v1.graph_util",
        "v1.MetaGraphDef",
        "v1.GraphDef",
        "graph_util",
        "v1.train.SingularMonitoredSession",
        "v1.train.MonitoredTrainingSession",
        "v1.RunOptions",
        "v1.RunMetadata",
        "v1.data.make_initializable_iterator",
        "v1.train.queue_runner",
        "train.Coordinator",
        "v1.train.SessionManager",
        "v1.QueueBase",
        "queue",
    ]
)
# Files of the given directories that hold what several files of tests share.
_SHARED = (
    "_test_base",
    "_test_lib",
    "_testing_utils",
    "testing_utils",
    "_testing_utils_v1",
    "test_util",
    "single_loss_example",
)


class _Stand(ModuleType):
    """Module of TensorFlow that is not lockstep's: its names come from the table, or are absent."""

    def __getattr__(self, name: str) -> Any:
        # Python's own names; `__internal__` is TensorFlow's, of what it keeps to itself.
        if name.startswith("__") and name != "__internal__":
            raise AttributeError(name)
        return look_up(self.__name__, name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = roots

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] not in ("tensorflow", "tensorflow_estimator"):
            return None
        if fullname not in HELPERS and fullname.rpartition(".")[2].endswith(_SHARED):
            for root in self._roots:
                file = root.joinpath(*fullname.split(".")).with_suffix(".py")
                if file.is_file():
                    see_methods(fullname)
                    return importlib.util.spec_from_file_location(fullname, file)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Stand(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        public = name.replace("tensorflow", _COMPAT, 1)
        if name.startswith("tensorflow_estimator") and not name.startswith("tensorflow_estimator.python"):
            public = name.replace("tensorflow_estimator", f"{_COMPAT}.estimator", 1)
        if name in HELPERS:
            sys.modules[name] = importlib.import_module(f"{_HELPERS}.{HELPERS[name]}")
        elif not name.startswith(("tensorflow.python", "tensorflow.core", "tensorflow_estimator.python")):
            try:
                sys.modules[name] = importlib.import_module(public)
            except ModuleNotFoundError:
                return


def see_methods(module: str) -> None:
    """Lets a module of tests see TensorFlow's methods of arrays, as one that imports lockstep.compat does."""
    importlib.import_module(f"{_COMPAT}._visibility").note_importer(module)


def look_up(module: str, name: str) -> Any:
    """Returns what an internal module of TensorFlow calls `name`, a stand-in if lockstep lacks it.

    Raises:
        AttributeError: It may be a module.
    """
    from lockstep.compat.tensorflow.python import _table
    from tests.conformance.helpers import graphs

    # First: a module may have the name of a function in it.
    if f"{module}.{name}" in _known_modules():
        return importlib.import_module(f"{module}.{name}")
    public = _table.public_names(module, name)
    for found in public:
        if found.removeprefix("v1.") in graphs.NAMES:
            return graphs.NAMES[found.removeprefix("v1.")]
        try:
            return _table.find(found)
        except (AttributeError, ImportError):
            continue
    other = _OTHERS.get(module)
    if other:
        try:
            return getattr(importlib.import_module(other), name)
        except AttributeError:
            pass
    if public:
        kind = "graph" if any(n in GRAPH or n.rpartition(".")[0] in GRAPH for n in public) else "missing"
        return Absent(kind, f"tf.{public[0].replace('v1.', 'compat.v1.')}")
    return Absent("internal", f"{module}.{name}")


def _known_modules() -> set[str]:
    if not _modules:
        from lockstep.compat.tensorflow.python import _table

        _modules.update(_table.modules(), HELPERS, _OTHERS)
        for root in _roots:
            files = (f for package in ("tensorflow", "tensorflow_estimator") for f in (root / package).rglob("*.py"))
            found = [f.relative_to(root).with_suffix("").parts for f in files]
            _modules.update(".".join(parts[:end]) for parts in found for end in range(1, len(parts) + 1))
    return _modules


_modules: set[str] = set()
_roots: list[Path] = []


def install(roots: Sequence[Path]) -> None:
    """Puts the shim in front of all other ways to import `tensorflow`; `roots` hold the packages of the tests."""
    _roots.extend(roots)
    sys.meta_path.insert(0, _Finder(roots))
    from tests.conformance.helpers import case, graphs

    # Programs of tests say tf.test.TestCase, whose comparisons in compat are fewer.
    public = importlib.import_module(f"{_COMPAT}.test")
    for name in ("TestCase", "get_temp_dir", "main", "mock", "test_src_dir_path"):
        setattr(public, name, getattr(case, name))
    # The process has its devices from the start.
    devices = importlib.import_module(f"{_COMPAT}.config")
    for name in ("set_logical_device_configuration", "set_visible_devices"):
        setattr(devices, name, lambda *args, **kwargs: None)
    for module in (importlib.import_module(_COMPAT), importlib.import_module(f"{_COMPAT}.compat.v1")):
        graphs.install(module)
