"""tf.DeviceSpec: the parts of a device's name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lockstep.errors import ArgumentError

__all__ = ["DeviceSpec"]


@dataclass(frozen=True, repr=False)
class DeviceSpec:
    """The parts of a device's name, such as `/job:worker/replica:0/task:1/device:GPU:2`; `None` where it has none.

    Attributes:
        job: Name of the job.
        replica: Number of the replica.
        task: Number of the task.
        device_type: Such as "CPU" or "GPU", in capitals.
        device_index: Number of the device in its task.

    Source: tf.DeviceSpec.
    """

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    device_type: str | None = None
    device_index: int | None = None

    def __post_init__(self) -> None:
        for name in ("replica", "task", "device_index"):
            value: Any = getattr(self, name)
            object.__setattr__(self, name, None if value is None else int(value))
        kind = self.device_type
        object.__setattr__(self, "device_type", None if kind is None else str(kind).upper())

    @classmethod
    def from_string(cls, spec: str) -> DeviceSpec:
        """Returns the parts of a name.

        Raises:
            ArgumentError: If it has a part that is none of a device's name.
        """
        found: dict[str, Any] = {}
        for part in spec.split("/"):
            key, *values = part.split(":")
            if not key and not values:
                continue
            if key in ("job", "replica", "task") and len(values) == 1:
                found[key] = values[0] if key == "job" else _number(values[0], spec)
            elif key == "device" and len(values) == 2:
                found |= {"device_type": values[0], "device_index": _index(values[1:], spec)}
            elif key.upper() in ("CPU", "GPU", "TPU") and len(values) <= 1:
                found |= {"device_type": key, "device_index": _index(values, spec)}
            else:
                raise ArgumentError(
                    f"Unknown attribute {key!r} is encountered while parsing the device spec: {spec!r}. Write "
                    "/job:NAME/replica:N/task:N/device:TYPE:N, or a part of it."
                )
        return cls(**found)

    def parse_from_string(self, spec: str) -> DeviceSpec:
        """Returns the parts of a name, as `from_string`."""
        return self.from_string(spec)

    def to_string(self) -> str:
        """Returns the name; "" if there is no part."""
        parts = [(n, getattr(self, n)) for n in ("job", "replica", "task")]
        text = "".join(f"/{name}:{value}" for name, value in parts if value is not None)
        if self.device_type is None:
            return text
        return f"{text}/device:{self.device_type}:{'*' if self.device_index is None else self.device_index}"

    def make_merged_spec(self, dev: DeviceSpec) -> DeviceSpec:
        """Returns the parts of another spec, and of this one where that has none."""
        return replace(self, **{name: value for name, value in vars(dev).items() if value is not None})

    def replace(self, **kwargs: str | int | None) -> DeviceSpec:
        """Returns a spec with other parts."""
        return replace(self, **kwargs)  # pyright: ignore[reportArgumentType]

    def __repr__(self) -> str:
        return f"<DeviceSpec({', '.join(f'{name}={value}' for name, value in vars(self).items())})>"


def _index(values: list[str], spec: str) -> int | None:
    return None if not values or values[0] == "*" else _number(values[0], spec)


def _number(text: str, spec: str) -> int:
    if not text.isdecimal():
        raise ArgumentError(f"A device's numbers are whole numbers. Received: {text!r} in {spec!r}. Example: /GPU:0.")
    return int(text)
