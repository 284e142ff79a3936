"""`strategy_combinations`: the strategies that TensorFlow's tests name. Devices of the CPU stand for GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lockstep.compat.tensorflow as tf
from tests.conformance.helpers.combinations import NamedDistribution, NamedObject, combine
from tests.conformance.helpers.combinations import set_virtual_cpus_to_at_least as set_virtual_cpus_to_at_least


def _mirrored(*devices: str) -> Callable[[], Any]:
    return lambda: tf.distribute.MirroredStrategy(list(devices))


def _central(*devices: str) -> Callable[[], Any]:
    return lambda: tf.distribute.experimental.CentralStorageStrategy(list(devices))


def _multi_worker(name: str, workers: int, gpus: int = 0) -> NamedDistribution:
    make = tf.distribute.MultiWorkerMirroredStrategy
    return NamedDistribution(name, make, has_chief=True, num_workers=workers - 1, required_gpus=gpus)


MirroredStrategy = tf.distribute.MirroredStrategy
OneDeviceStrategy = tf.distribute.OneDeviceStrategy
CollectiveAllReduceStrategy = tf.distribute.MultiWorkerMirroredStrategy

default_strategy = NamedDistribution("Default", tf.distribute.get_strategy)
one_device_strategy = NamedDistribution("OneDeviceCPU", lambda: tf.distribute.OneDeviceStrategy("/cpu:0"))
one_device_strategy_gpu = NamedDistribution("OneDeviceGPU", lambda: tf.distribute.OneDeviceStrategy("/cpu:0"))
one_device_strategy_on_worker_1 = NamedDistribution("OneDeviceOnWorker1CPU", one_device_strategy._make)
one_device_strategy_gpu_on_worker_1 = NamedDistribution("OneDeviceOnWorker1GPU", one_device_strategy._make)
mirrored_strategy_with_one_cpu = NamedDistribution("Mirrored1CPU", _mirrored("/cpu:0"))
mirrored_strategy_with_one_gpu = NamedDistribution("Mirrored1GPU", _mirrored("/cpu:0"))
mirrored_strategy_with_gpu_and_cpu = NamedDistribution("MirroredCPUAndGPU", _mirrored("/cpu:1", "/cpu:0"))
mirrored_strategy_with_two_cpus = NamedDistribution("Mirrored2CPUs", _mirrored("/cpu:0", "/cpu:1"))
mirrored_strategy_with_two_gpus = NamedDistribution("Mirrored2GPUs", _mirrored("/cpu:0", "/cpu:1"))
mirrored_strategy_with_two_gpus_no_merge_call = NamedDistribution(
    "Mirrored2GPUsNoMergeCall", _mirrored("/cpu:0", "/cpu:1")
)
mirrored_strategy_with_cpu_1_and_2 = NamedDistribution("Mirrored2CPU", _mirrored("/cpu:1", "/cpu:2"))
central_storage_strategy_with_two_gpus = NamedDistribution("CentralStorage2GPUs", _central("/cpu:0", "/cpu:1"))
central_storage_strategy_with_gpu_and_cpu = NamedDistribution("CentralStorageCPUAndGPU", _central("/cpu:1", "/cpu:0"))
tpu_strategy = NamedDistribution("TPU", tf.distribute.get_strategy, required_tpu=True)
tpu_strategy_packed_var = NamedDistribution("TPUPackedVar", tf.distribute.get_strategy, required_tpu=True)
tpu_strategy_spmd = NamedDistribution("TPUUseSPMD", tf.distribute.get_strategy, required_tpu=True)
tpu_strategy_one_step = NamedDistribution("TPUOneStep", tf.distribute.get_strategy, required_tpu=True)
tpu_strategy_one_core = NamedDistribution("TPUOneCore", tf.distribute.get_strategy, required_tpu=True)
tpu_strategy_one_step_one_core = NamedDistribution("TPUOneStepOneCore", tf.distribute.get_strategy, required_tpu=True)
cloud_tpu_strategy = NamedDistribution("CloudTPU", tf.distribute.get_strategy, required_tpu=True)
multi_worker_mirrored_2x1_cpu = _multi_worker("MultiWorkerMirrored2x1CPU", 2)
multi_worker_mirrored_2x1_gpu = _multi_worker("MultiWorkerMirrored2x1GPU", 2, 1)
multi_worker_mirrored_2x1_gpu_noshare = _multi_worker("MultiWorkerMirrored2x1GPUNoShare", 2, 1)
multi_worker_mirrored_2x2_gpu = _multi_worker("MultiWorkerMirrored2x2GPU", 2, 2)
multi_worker_mirrored_2x2_gpu_no_merge_call = _multi_worker("MultiWorkerMirrored2x2GPUNoMergeCall", 2, 2)
multi_worker_mirrored_4x1_cpu = _multi_worker("MultiWorkerMirrored4x1CPU", 4)


def parameter_server_strategy_fn(name: str, num_workers: int, num_ps: int, required_gpus: int = 0, **_: Any) -> Any:
    return NamedDistribution(
        name,
        tf.distribute.get_strategy,
        num_workers=num_workers,
        num_ps=num_ps,
        has_chief=True,
        required_gpus=required_gpus,
    )


parameter_server_strategy_3worker_2ps_cpu = parameter_server_strategy_fn("ParameterServer3Worker2PSCPU", 3, 2)
parameter_server_strategy_1worker_2ps_cpu = parameter_server_strategy_fn("ParameterServer1Worker2PSCPU", 1, 2)
parameter_server_strategy_3worker_2ps_1gpu = parameter_server_strategy_fn("ParameterServer3Worker2PS1GPU", 3, 2, 1)
parameter_server_strategy_1worker_2ps_1gpu = parameter_server_strategy_fn("ParameterServer1Worker2PS1GPU", 1, 2, 1)


def _named(cls: str, v1: str) -> Callable[[], Any]:
    def make() -> Any:
        return getattr(tf.compat.v1.train, cls)(v1)

    return make


def _optimizers(names: Sequence[tuple[str, Callable[[], Any]]]) -> list[Any]:
    return [NamedObject(name, make) for name, make in names]


gradient_descent_optimizer_v1_fn, adagrad_optimizer_v1_fn, adam_optimizer_v1_fn, rmsprop_optimizer_v1_fn = _optimizers(
    [
        ("GradientDescentV1", lambda: tf.compat.v1.train.GradientDescentOptimizer(0.001)),
        ("AdagradV1", lambda: tf.compat.v1.train.AdagradOptimizer(0.001)),
        ("AdamV1", lambda: tf.compat.v1.train.AdamOptimizer(0.001, epsilon=1)),
        ("RmsPropV1", lambda: tf.compat.v1.train.RMSPropOptimizer(0.001)),
    ]
)
optimizers_v1 = [gradient_descent_optimizer_v1_fn, adagrad_optimizer_v1_fn]
(
    gradient_descent_optimizer_keras_v2_fn,
    adagrad_optimizer_keras_v2_fn,
    adam_optimizer_keras_v2_fn,
    rmsprop_optimizer_keras_v2_fn,
    ftrl_optimizer_keras_v2_fn,
) = _optimizers(
    [
        ("GradientDescentKerasV2", lambda: tf.keras.optimizers.SGD(0.001)),
        ("AdagradKerasV2", lambda: tf.keras.optimizers.Adagrad(0.001)),
        ("AdamKerasV2", lambda: tf.keras.optimizers.Adam(0.001, epsilon=1.0)),
        ("RmsPropKerasV2", lambda: tf.keras.optimizers.RMSprop(0.001)),
        ("FtrlKerasV2", lambda: tf.keras.optimizers.Ftrl(0.001)),
    ]
)
optimizers_v2 = [gradient_descent_optimizer_keras_v2_fn, adagrad_optimizer_keras_v2_fn]
optimizers_v1_and_v2 = optimizers_v1 + optimizers_v2
graph_and_eager_modes = ["graph", "eager"]

two_replica_strategies = [
    *(mirrored_strategy_with_gpu_and_cpu, mirrored_strategy_with_two_gpus, multi_worker_mirrored_2x1_cpu),
    *(multi_worker_mirrored_2x1_gpu, tpu_strategy, central_storage_strategy_with_gpu_and_cpu),
]
four_replica_strategies = [multi_worker_mirrored_2x2_gpu]
multidevice_strategies = [mirrored_strategy_with_gpu_and_cpu, mirrored_strategy_with_two_gpus, tpu_strategy]
multiworker_strategies = [multi_worker_mirrored_2x1_cpu, multi_worker_mirrored_2x1_gpu, multi_worker_mirrored_2x2_gpu]
strategies_minus_default_minus_tpu = [
    *(
        one_device_strategy,
        one_device_strategy_gpu,
        mirrored_strategy_with_gpu_and_cpu,
        mirrored_strategy_with_two_gpus,
    ),
    central_storage_strategy_with_gpu_and_cpu,
]
strategies_minus_tpu = [default_strategy, *strategies_minus_default_minus_tpu]
strategies_minus_default_and_tpu = strategies_minus_default_minus_tpu
tpu_strategies = [tpu_strategy, tpu_strategy_packed_var, tpu_strategy_spmd, cloud_tpu_strategy]
all_strategies_minus_default = [*strategies_minus_default_minus_tpu, tpu_strategy]
all_strategies = [*strategies_minus_tpu, tpu_strategy]


def all_strategy_combinations() -> list[Any]:
    return combine(distribution=all_strategies)


def all_strategy_minus_default_and_tpu_combinations() -> list[Any]:
    return combine(distribution=strategies_minus_default_minus_tpu)


def all_strategy_combinations_minus_default() -> list[Any]:
    return combine(distribution=all_strategies_minus_default)


def distributions_and_v1_optimizers() -> list[Any]:
    return combine(distribution=_FOR_OPTIMIZERS, optimizer_fn=optimizers_v1)


def distributions_and_v2_optimizers() -> list[Any]:
    return combine(distribution=_FOR_OPTIMIZERS, optimizer_fn=optimizers_v2)


def distributions_and_v1_and_v2_optimizers() -> list[Any]:
    return combine(distribution=_FOR_OPTIMIZERS, optimizer_fn=optimizers_v1_and_v2)


_FOR_OPTIMIZERS = [
    *(one_device_strategy, mirrored_strategy_with_gpu_and_cpu, mirrored_strategy_with_two_gpus),
    mirrored_strategy_with_two_gpus_no_merge_call,
]
