"""The public names, listed by hand: a name that comes or goes is a decision."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

import pytest

import lockstep

PUBLIC = {
    "lockstep": [
        "__version__",
        "callbacks",
        "cluster_resolver",
        "compat",
        "config",
        "data",
        "datasets",
        "distribute",
        "errors",
    ],
    "lockstep.callbacks": ["TensorBoard"],
    "lockstep.compat": ["tensorflow", "tensorflow_datasets"],
    "lockstep.cluster_resolver": [
        "ClusterResolver",
        "ClusterSpec",
        "KubernetesClusterResolver",
        "MPIClusterResolver",
        "SimpleClusterResolver",
        "SlurmClusterResolver",
        "TFConfigClusterResolver",
        "Task",
        "TorchrunClusterResolver",
        "UnionResolver",
    ],
    "lockstep.config": ["set_logical_cpu_devices"],
    "lockstep.data": [
        "AUTOTUNE",
        "ArrayRecordDataset",
        "AutoShardPolicy",
        "CsvDataset",
        "Dataset",
        "DatasetIterator",
        "DatasetSpec",
        "DistributeOptions",
        "FixedLengthRecordDataset",
        "INFINITE_CARDINALITY",
        "InputContext",
        "Options",
        "ParquetDataset",
        "SHARD_HINT",
        "TFRecordDataset",
        "TFRecordOptions",
        "TFRecordWriter",
        "TensorSpec",
        "TextLineDataset",
        "ThreadingOptions",
        "UNKNOWN_CARDINALITY",
        "image_dataset_from_directory",
        "numpy_function",
        "py_function",
    ],
    "lockstep.datasets": [
        "ClassLabel",
        "DatasetBuilder",
        "DatasetInfo",
        "FeaturesDict",
        "Image",
        "Mnist",
        "ReadConfig",
        "ReadInstruction",
        "Split",
        "SplitInfo",
        "Tensor",
        "Text",
        "Tokens",
        "as_numpy",
        "builder",
        "disable_progress_bar",
        "enable_progress_bar",
        "load",
        "load_mnist",
        "names",
    ],
    "lockstep.distribute": [
        "CommunicationImplementation",
        "CommunicationOptions",
        "CrossDeviceOps",
        "DistributedDataset",
        "DistributedIterator",
        "HierarchicalCopyAllReduce",
        "InputContext",
        "InputOptions",
        "MirroredStrategy",
        "MultiWorkerMirroredStrategy",
        "NcclAllReduce",
        "OneDeviceStrategy",
        "PerReplica",
        "ReductionToOneDevice",
        "Strategy",
        "experimental",
        "get_strategy",
        "has_strategy",
        "in_cross_replica_context",
    ],
    "lockstep.distribute.experimental": [
        "CollectiveCommunication",
        "CommunicationImplementation",
        "CommunicationOptions",
        "MultiWorkerMirroredStrategy",
    ],
    "lockstep.errors": [
        "AddressError",
        "ArgumentError",
        "ClusterSpecError",
        "DataNotFoundError",
        "InputError",
        "JoinError",
        "LockstepError",
        "MismatchError",
        "MissingTaskError",
        "PeerError",
        "StartupOrderError",
        "UnsupportedError",
    ],
}


# What lockstep/__init__.py needs for importing its parts late.
_TOOLS = {"annotations", "importlib", "ModuleType", "TYPE_CHECKING", "Any"}


def _public_modules(package: ModuleType = lockstep) -> list[str]:
    found = [package.__name__]
    if package.__name__ == "lockstep.compat":  # Other libraries' names; tests/compat compares them with the docs.
        return found
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("_"):
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            found += _public_modules(module) if info.ispkg else [module.__name__]
    return found


def test_every_public_module_is_listed() -> None:
    assert sorted(_public_modules()) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_exported_names(name: str) -> None:
    module = importlib.import_module(name)
    assert sorted(module.__all__) == sorted(PUBLIC[name])
    assert set(module.__all__) <= set(dir(module))
    public = {n for n in vars(module) if not n.startswith("_")} - _TOOLS
    assert public <= set(PUBLIC[name]), "a public name that __all__ leaves out"


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_public_is_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    for exported in module.__all__:
        value = getattr(module, exported)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name}.{exported}"


def test_the_tree_of_errors_is_in_the_docstring() -> None:
    assert lockstep.errors.__doc__
    for name in PUBLIC["lockstep.errors"]:
        assert name in lockstep.errors.__doc__
        assert issubclass(getattr(lockstep.errors, name), lockstep.errors.LockstepError)
