"""Strategies of one process: several devices, one device, and the default one."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from lockstep.distribute._communication import (
    CommunicationOptions,
    CrossDeviceOps,
    check_cross_device_ops,
    checked_options,
    local_reduction,
)
from lockstep.distribute._devices import default_devices, devices_named, ready_device
from lockstep.distribute._options import LocalSteps, check_slots, rounds_of, statistics_of
from lockstep.distribute._strategy import Strategy

if TYPE_CHECKING:
    from lockstep._engine.step.replicas import Replicas


class MirroredStrategy(Strategy):
    """Trains on several devices of this machine.

    Args:
        devices: Device names, such as `["/gpu:0", "/gpu:1"]`. Default: all GPUs, else all CPU devices (see
            `lockstep.config.set_logical_cpu_devices`).
        cross_device_ops: How gradients are combined. Default: what XLA chooses.
        communication_options: What else `CommunicationOptions` say of gradients: here `gradient_dtype`,
            `power_sgd_rank` and `power_sgd_start`, and, without `cross_device_ops`, `bytes_per_pack` and
            `implementation`. Default: `CommunicationOptions()`.
        batch_statistics: "global" (default): batch normalisation takes its moments over the global batch, as one
            device would. "replica" (default with `local_steps`): over each replica's share, as TensorFlow does.
        local_steps: Has each replica train by itself for a round of steps in `fit` and `Estimator.train`; what is said
            here of gradients then concerns the changes of the weights in a round. Default: every step is one of all.
        shard_optimizer_state: Whether each replica keeps only its part of the optimizer's state ("ZeRO-1"): of each
            array that the number of replicas divides along some axis. Training is the same; memory is saved, for one
            more exchange of the weights in each step. In `fit`, `train_on_batch`, `Estimator.train`, and
            `lockstep.training.Program` with `optimizer_state`. Default: False.

    Raises:
        ArgumentError: If a device or an option is malformed or unknown.
        UnsupportedError: If the devices cannot do what `cross_device_ops` and `communication_options` ask for.
        StartupOrderError: If JAX has started with too few threads for several CPU devices.

    Source: tf.distribute.MirroredStrategy.
    """

    def __init__(
        self,
        devices: Sequence[str] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
        *,
        communication_options: CommunicationOptions | None = None,
        batch_statistics: str | None = None,
        local_steps: LocalSteps | None = None,
        shard_optimizer_state: bool = False,
    ) -> None:
        from lockstep._engine.runtime.runtime import Runtime
        from lockstep._engine.step.replicas import Replicas

        # Options before devices: a wrong one is an error before JAX has started, which cannot be undone.
        statistics = statistics_of(batch_statistics, local_steps)
        check_cross_device_ops(cross_device_ops)
        options = checked_options(communication_options)
        rounds = rounds_of(local_steps, batch_statistics, options)
        found = default_devices() if devices is None else devices_named(devices)
        reduction = local_reduction(options, cross_device_ops, found[0].platform)
        replicas = Replicas(Runtime(), found, statistics, reduction, rounds, shard_optimizer_state)
        check_slots(replicas)
        super().__init__(replicas)


class OneDeviceStrategy(Strategy):
    """Trains on one device that is named.

    Args:
        device: A device name, such as "/gpu:0" or "cpu:1". Where there is no accelerator at all it is the CPU, with a
            warning.

    Raises:
        ArgumentError: If the name is malformed or there is no device of this number.

    Source: tf.distribute.OneDeviceStrategy.
    """

    def __init__(self, device: str) -> None:
        from lockstep._engine.runtime.runtime import Runtime
        from lockstep._engine.step.replicas import Replicas

        super().__init__(Replicas(Runtime(), [ready_device(device)]))


class DefaultStrategy(Strategy):
    """One replica on the default device; its scope leaves Keras as it is.

    Source: the default strategy of tf.distribute.
    """

    def __init__(self) -> None:
        super().__init__(None)

    @property
    def num_replicas_in_sync(self) -> int:
        """1."""
        return 1

    @property
    def is_chief(self) -> bool:
        """True."""
        return True

    def _demanded_replicas(self) -> Replicas:
        from lockstep._engine.runtime.runtime import Runtime
        from lockstep._engine.step.replicas import Replicas
        from lockstep.distribute._devices import default_devices

        # Not when the strategy is made: this starts JAX, and a program that asks for the current strategy first may
        # still join a cluster.
        return Replicas(Runtime(), default_devices()[:1])

    @contextlib.contextmanager
    def scope(self) -> Generator[Strategy]:
        """Opens a context without effect."""
        yield self
