"""Settings of this process, to be made right after `import lockstep`."""

from __future__ import annotations

from lockstep._engine.runtime.local_devices import set_logical_cpu_devices as set_logical_cpu_devices

__all__ = ["set_logical_cpu_devices"]
