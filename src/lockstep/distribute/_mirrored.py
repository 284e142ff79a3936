"""MirroredStrategy."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.distribute._cross_device_ops import CrossDeviceOps, check_cross_device_ops, local_reduction
from lockstep.distribute._devices import default_devices, devices_named
from lockstep.distribute._options import CommunicationOptions, checked_options
from lockstep.distribute._strategy import Strategy, check_batch_statistics


class MirroredStrategy(Strategy):
    """Trains on several devices of this machine.

    Args:
        devices: Device names, such as `["/gpu:0", "/gpu:1"]`. Default: all GPUs, else all CPU devices (see
            `lockstep.config.set_logical_cpu_devices`).
        cross_device_ops: How gradients are combined. Default: what XLA chooses.
        communication_options: What else `CommunicationOptions` say of gradients: here `gradient_dtype`, and, without
            `cross_device_ops`, `bytes_per_pack` and `implementation`. Default: `CommunicationOptions()`.
        batch_statistics: "global" (default): batch normalisation takes its moments over the global batch, as one
            device would. "replica": over each replica's share, as TensorFlow does.

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
        batch_statistics: str = "global",
    ) -> None:
        from lockstep._runtime.runtime import Runtime
        from lockstep._step.replicas import Replicas

        statistics = check_batch_statistics(batch_statistics)
        check_cross_device_ops(cross_device_ops)
        options = checked_options(communication_options)
        found = default_devices() if devices is None else devices_named(devices)
        reduction = local_reduction(options, cross_device_ops, found[0].platform)
        super().__init__(Replicas(Runtime(), found, statistics, reduction))
