"""OneDeviceStrategy."""

from __future__ import annotations

from lockstep.distribute._devices import devices_named
from lockstep.distribute._strategy import Strategy


class OneDeviceStrategy(Strategy):
    """Trains on one device that is named.

    Args:
        device: A device name, such as "/gpu:0" or "cpu:1".

    Raises:
        ArgumentError: If the name is malformed or there is no such device.

    Source: tf.distribute.OneDeviceStrategy.
    """

    def __init__(self, device: str) -> None:
        from lockstep._engine.runtime.runtime import Runtime
        from lockstep._engine.step.replicas import Replicas

        super().__init__(Replicas(Runtime(), devices_named([device])))
