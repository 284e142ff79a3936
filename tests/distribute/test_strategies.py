"""Strategies: what they accept, refuse, and say of themselves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import lockstep as ls
from lockstep.distribute._devices import device_named, devices_named
from lockstep.errors import ArgumentError, ClusterSpecError, StartupOrderError, UnsupportedError

distribute = ls.distribute


@pytest.mark.parametrize(
    "name", ["cpu:1", "CPU:1", "/cpu:1", "/device:CPU:1", "/job:localhost/replica:0/task:0/device:CPU:1", " cpu:1 "]
)
def test_devices_have_tensorflow_s_names(name: str) -> None:
    assert device_named(name) is jax.local_devices()[1]


@pytest.mark.parametrize("name", ["cpu", "cpu:", "cpu:-1", "cpu:1.5", ":1", "", "xpu:0", "cpu:0:1", 0, None])
def test_malformed_device_names_are_refused(name: Any) -> None:
    with pytest.raises(ArgumentError, match=r"named by type and number\. Received: .*Examples"):
        device_named(name)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"Received: 'cpu:4'; JAX finds 4 CPU devices.*set_logical_cpu_devices"):
        device_named("cpu:4")
    with pytest.raises(ArgumentError, match=r"Received: '/gpu:0'; JAX finds 0 GPU devices.*Leave `devices` out"):
        device_named("/gpu:0")


@pytest.mark.parametrize("names", [[], "cpu:0", None])
def test_device_lists_must_be_lists(names: Any) -> None:
    with pytest.raises(ArgumentError, match="list of at least one device name"):
        devices_named(names)


def test_a_device_holds_one_replica() -> None:
    with pytest.raises(ArgumentError, match="a device twice"):
        distribute.MirroredStrategy(["cpu:0", "/CPU:0"])


def test_replicas_are_counted() -> None:
    assert distribute.MirroredStrategy().num_replicas_in_sync == 4
    assert distribute.MirroredStrategy(["cpu:2", "cpu:0"]).num_replicas_in_sync == 2
    assert distribute.OneDeviceStrategy("/cpu:3").num_replicas_in_sync == 1
    assert distribute.get_strategy().num_replicas_in_sync == 1


def test_without_a_cluster_workers_are_one() -> None:
    strategy = distribute.MultiWorkerMirroredStrategy()
    assert strategy.num_replicas_in_sync == 4
    assert isinstance(strategy.cluster_resolver, ls.cluster_resolver.TFConfigClusterResolver)
    assert distribute.MirroredStrategy().cluster_resolver is None


@pytest.mark.parametrize(
    ("kind", "index"),
    [("worker", 0), ("chief", 0), ("evaluator", 0)],
)
def test_a_cluster_of_one_and_an_evaluator_train_alone(kind: str, index: int) -> None:
    jobs = {"worker": ["a:1", "b:1"]} if kind == "evaluator" else {kind: ["a:1"], "ps": ["p:1"]}
    resolver = ls.cluster_resolver.SimpleClusterResolver(
        ls.cluster_resolver.ClusterSpec(jobs), task_type=kind, task_id=index
    )
    assert distribute.MultiWorkerMirroredStrategy(resolver).num_replicas_in_sync == 4


def test_a_ps_task_is_refused() -> None:
    spec = ls.cluster_resolver.ClusterSpec({"worker": ["a:1"], "ps": ["p:1"]})
    resolver = ls.cluster_resolver.SimpleClusterResolver(spec, task_type="ps", task_id=0)
    with pytest.raises(ClusterSpecError, match=r"takes no part in synchronous training\. This process is ps 0"):
        distribute.MultiWorkerMirroredStrategy(resolver)


def test_jax_must_not_have_started_before_workers_join() -> None:
    jax.local_devices()
    spec = ls.cluster_resolver.ClusterSpec({"worker": ["127.0.0.1:1", "127.0.0.1:2"]})
    resolver = ls.cluster_resolver.SimpleClusterResolver(spec, task_type="worker", task_id=0)
    with pytest.raises(StartupOrderError) as caught:
        distribute.MultiWorkerMirroredStrategy(resolver)
    assert "Collective ops must be configured at program startup" in str(caught.value)
    assert "test_strategies.py:" in str(caught.value)
    assert "`distribute.MultiWorkerMirroredStrategy(resolver)`" in str(caught.value)


def test_cpu_devices_are_set_before_jax_starts() -> None:
    jax.local_devices()
    with pytest.raises(StartupOrderError, match=r"--devices-per-worker 2"):
        ls.config.set_logical_cpu_devices(2)
    for count in (0, -1, 1.5, True, "2"):
        with pytest.raises(ArgumentError, match="positive integer"):
            ls.config.set_logical_cpu_devices(count)  # pyright: ignore[reportArgumentType]


def test_a_scope_makes_its_strategy_current() -> None:
    strategy = distribute.MirroredStrategy()
    default = distribute.get_strategy()
    assert not distribute.has_strategy() and not distribute.in_cross_replica_context()
    with strategy.scope() as entered:
        assert entered is strategy is distribute.get_strategy()
        assert distribute.has_strategy() and distribute.in_cross_replica_context()
        with strategy.scope(), default.scope():
            assert distribute.get_strategy() is strategy
    assert distribute.get_strategy() is default


def test_a_scope_holds_for_its_thread() -> None:
    seen: list[bool] = []
    with distribute.MirroredStrategy().scope():
        thread = threading.Thread(target=lambda: seen.append(distribute.has_strategy()))
        thread.start()
        thread.join()
    assert seen == [False]


def test_scopes_of_different_strategies_are_not_nested() -> None:
    outer, inner = distribute.MirroredStrategy(), distribute.OneDeviceStrategy("cpu:0")
    with outer.scope():
        with pytest.raises(StartupOrderError, match="MirroredStrategy is open; received OneDeviceStrategy"):
            inner.scope().__enter__()
        assert distribute.get_strategy() is outer


def test_nccl_needs_gpus() -> None:
    make: list[Callable[[], Any]] = [
        lambda: distribute.MirroredStrategy(cross_device_ops=distribute.NcclAllReduce()),
        lambda: distribute.experimental.MultiWorkerMirroredStrategy(
            distribute.experimental.CollectiveCommunication.NCCL
        ),
        lambda: distribute.MultiWorkerMirroredStrategy(
            communication_options=distribute.CommunicationOptions(implementation="nccl")
        ),
    ]
    for each in make:
        with pytest.raises(UnsupportedError, match=r"needs GPUs.*of type 'cpu'"):
            each()


@pytest.mark.parametrize("platform", ["gpu", "cuda"])
def test_nccl_on_gpus_is_left_to_xla(platform: str) -> None:
    assert distribute.NcclAllReduce().reduction(platform) is None
    packed = distribute.NcclAllReduce(num_packs=3).reduction(platform)
    assert packed is not None and (packed.algorithm, packed.packs) == ("all_reduce", 3)


@pytest.mark.parametrize(
    "arguments",
    [
        {"cross_device_ops": "nccl"},
        {"cross_device_ops": distribute.HierarchicalCopyAllReduce},
        {"batch_statistics": "local"},
    ],
    ids=str,
)
def test_wrong_options_of_mirrored_strategy(arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="Received"):
        distribute.MirroredStrategy(**arguments)


@pytest.mark.parametrize("packs", [-1, 1.5, True, "1"])
@pytest.mark.parametrize("kind", [distribute.NcclAllReduce, distribute.HierarchicalCopyAllReduce])
def test_wrong_numbers_of_packs(kind: Any, packs: Any) -> None:
    with pytest.raises(ArgumentError, match="num_packs must be a non-negative integer"):
        kind(packs)


@pytest.mark.parametrize(
    "arguments",
    [
        {"bytes_per_pack": -1},
        {"bytes_per_pack": 0.5},
        {"timeout_seconds": 0},
        {"timeout_seconds": float("inf")},
        {"implementation": "MPI"},
        {"implementation": 3},
    ],
    ids=str,
)
def test_wrong_communication_options(arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match="Received"):
        distribute.CommunicationOptions(**arguments)


def test_communication_options_must_be_some() -> None:
    with pytest.raises(ArgumentError, match="must be a CommunicationOptions"):
        distribute.MultiWorkerMirroredStrategy(None, "RING")  # pyright: ignore[reportArgumentType]


def test_without_a_strategy_a_dataset_is_not_divided() -> None:
    strategy = ls.distribute.get_strategy()
    found = list(strategy.experimental_distribute_dataset(ls.data.Dataset.range(5).batch(2)))
    assert [np.asarray(v).tolist() for v in found] == [[0, 1], [2, 3], [4]]


def test_replicas_get_their_shares_and_text_stays_on_the_host() -> None:
    strategy = ls.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    dataset = ls.data.Dataset.from_tensor_slices((np.arange(14), [f"{i}" for i in range(14)])).batch(8)
    elements = list(strategy.experimental_distribute_dataset(dataset))
    assert [[v.tolist() for v in e[0].values] for e in elements] == [
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[8, 9, 10], [11, 12, 13]],
    ]
    numbers, words = elements[1]
    assert [next(iter(v.devices())).id for v in numbers.values] == [0, 1]
    assert words.values[1].tolist() == [b"11", b"12", b"13"]
    assert strategy.experimental_local_results((numbers, 3))[0][1] == 3


def test_values_can_stay_on_the_host() -> None:
    strategy = ls.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    options = ls.distribute.InputOptions(experimental_fetch_to_device=False)
    (element,) = strategy.experimental_distribute_dataset(ls.data.Dataset.range(4).batch(4), options)
    assert all(isinstance(v, np.ndarray) for v in element.values)


def test_what_is_no_dataset_is_refused() -> None:
    strategy = ls.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    with pytest.raises(ls.errors.ArgumentError, match=r"needs a lockstep.data.Dataset. Received: list"):
        strategy.experimental_distribute_dataset([1, 2])  # pyright: ignore[reportArgumentType]
    with pytest.raises(ls.errors.ArgumentError, match="must consist of batches"):
        next(iter(strategy.experimental_distribute_dataset(ls.data.Dataset.range(4))))
