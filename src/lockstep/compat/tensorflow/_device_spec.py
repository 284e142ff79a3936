"""tf.DeviceSpec: the name of a device in its parts."""

from __future__ import annotations

import re
from typing import Any

from lockstep.errors import ArgumentError

_PART = re.compile(r"/(?:(job):([^/]+)|(replica):(\d+)|(task):(\d+)|(?:device:)?([a-z_]+):(\d+|\*))", re.IGNORECASE)


class DeviceSpec:
    """Job, replica, task and device of a name such as "/job:worker/task:1/device:GPU:0"; each may be `None`.

    Source: tf.DeviceSpec.
    """

    def __init__(
        self,
        job: str | None = None,
        replica: int | None = None,
        task: int | None = None,
        device_type: str | None = None,
        device_index: int | None = None,
    ) -> None:
        self._parts: tuple[Any, ...] = (
            None if job is None else str(job),
            None if replica is None else int(replica),
            None if task is None else int(task),
            None if device_type is None else str(device_type).upper(),
            None if device_index is None else int(device_index),
        )

    @classmethod
    def from_string(cls, spec: str) -> DeviceSpec:
        """Returns the parts of a name.

        Raises:
            ArgumentError: If it is none of this form.
        """
        found: dict[str, Any] = {}
        at = 0
        for match in _PART.finditer(spec):
            if match.start() != at:
                break
            at = match.end()
            job, job_name, replica, number, task, task_number, kind, index = match.groups()
            if job:
                found["job"] = job_name
            elif replica:
                found["replica"] = number
            elif task:
                found["task"] = task_number
            else:
                found.update(device_type=kind, device_index=None if index == "*" else index)
        if at != len(spec):
            raise ArgumentError(
                'A device is named by parts such as "/job:worker/replica:0/task:1/device:GPU:0". '
                f"Received: {spec!r}, of which {spec[at:]!r} is none."
            )
        return cls(**found)

    @property
    def job(self) -> Any:
        """The job."""
        return self._parts[0]

    @property
    def replica(self) -> Any:
        """The number of the replica."""
        return self._parts[1]

    @property
    def task(self) -> Any:
        """The number of the task."""
        return self._parts[2]

    @property
    def device_type(self) -> Any:
        """The kind of device, such as "GPU"."""
        return self._parts[3]

    @property
    def device_index(self) -> Any:
        """The number of the device."""
        return self._parts[4]

    def to_string(self) -> str:
        """Returns the name."""
        job, replica, task, kind, index = self._parts
        parts = [("job", job), ("replica", replica), ("task", task)]
        text = "".join(f"/{name}:{value}" for name, value in parts if value is not None)
        return text if kind is None else f"{text}/device:{kind}:{'*' if index is None else index}"

    def replace(self, **kwargs: Any) -> DeviceSpec:
        """Returns a spec with some parts of other values."""
        names = ("job", "replica", "task", "device_type", "device_index")
        return DeviceSpec(**{**dict(zip(names, self._parts, strict=True)), **kwargs})

    def make_merged_spec(self, dev: DeviceSpec) -> DeviceSpec:
        """Returns a spec with the parts of another one, where it has them."""
        pairs = zip(self._parts, dev._parts, strict=True)
        return DeviceSpec(*(mine if other is None else other for mine, other in pairs))

    def parse_from_string(self, spec: str) -> DeviceSpec:
        """Returns the parts of a name; see `from_string`."""
        return DeviceSpec.from_string(spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSpec) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    def __repr__(self) -> str:
        return f"DeviceSpec({self.to_string()!r})"
