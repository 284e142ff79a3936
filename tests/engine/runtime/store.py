"""A key-value store in memory with the manners of jax's coordination service, for tasks that are threads of a test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from lockstep._engine.runtime.control import Control


class ServiceGone(Exception):
    """Stands for jaxlib's error when the first task, with the service, has gone."""


class Store:
    """What all clients share.

    Args:
        pause: Called before every access, with the name of the operation; may sleep, to mix up the order.
    """

    def __init__(self, pause: Callable[[str], None] = lambda operation: None) -> None:
        self._values: dict[str, str] = {}
        self._changed = threading.Condition()
        self._pause = pause
        self.gone = False

    @property
    def keys(self) -> set[str]:
        """All keys."""
        with self._changed:
            return set(self._values)

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Stores `value`, or says that there is one."""
        self._enter("set")
        with self._changed:
            if key in self._values and not allow_overwrite:
                raise RuntimeError(f"ALREADY_EXISTS: Config key {key} already exists.")
            self._values[key] = value
            self._changed.notify_all()

    def key_value_try_get(self, key: str) -> str:
        """Returns the value of `key`, or says that there is none."""
        self._enter("get")
        with self._changed:
            if key not in self._values:
                raise RuntimeError(f"NOT_FOUND: Config key {key} not found.")
            return self._values[key]

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """Returns everything below `key`."""
        self._enter("list")
        with self._changed:
            return [(k, v) for k, v in self._values.items() if k.startswith(key.rstrip("/") + "/")]

    def key_value_delete(self, key: str) -> None:
        """Removes `key` and everything below it."""
        self._enter("delete")
        with self._changed:
            for found in [k for k in self._values if k == key or k.startswith(key.rstrip("/") + "/")]:
                del self._values[found]

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Waits for `key`."""
        self._enter("get")
        with self._changed:
            if not self._changed.wait_for(lambda: key in self._values, timeout_in_ms / 1e3):
                raise RuntimeError(f"DEADLINE_EXCEEDED: GetKeyValue() timed out with key: {key}")
            return self._values[key]

    def _enter(self, operation: str) -> None:
        self._pause(operation)
        if self.gone:
            raise ServiceGone("UNAVAILABLE: Failed to send RPC to coordination service.")


def controls(tasks: int, store: Store | None = None) -> list[Control]:
    """Returns the controls of so many tasks that share a store."""
    store = store or Store()
    names = tuple(f"worker {i}" for i in range(tasks))
    return [Control(store, i, names) for i in range(tasks)]


def check_manners(client: Any) -> None:
    """What the product relies on, and what both the store here and jax's own client do."""
    client.key_value_set("manners/a/1", "one")
    client.key_value_set("manners/a/2", "two")
    client.key_value_set("manners/ab", "three")
    assert client.key_value_try_get("manners/a/1") == "one"
    assert client.blocking_key_value_get("manners/a/2", 1000) == "two"
    assert sorted(client.key_value_dir_get("manners/a/")) == [("manners/a/1", "one"), ("manners/a/2", "two")]
    assert client.key_value_dir_get("manners/none/") == []
    _assert_raises("ALREADY_EXISTS", lambda: client.key_value_set("manners/a/1", "other"))
    client.key_value_set("manners/a/1", "other", allow_overwrite=True)
    assert client.key_value_try_get("manners/a/1") == "other"
    client.key_value_delete("manners/a/1")
    client.key_value_delete("manners/none")
    _assert_raises("NOT_FOUND", lambda: client.key_value_try_get("manners/a/1"))
    began = time.monotonic()
    _assert_raises("DEADLINE_EXCEEDED", lambda: client.blocking_key_value_get("manners/a/1", 200))
    assert 0.15 < time.monotonic() - began < 5
    later = threading.Timer(0.1, client.key_value_set, ("manners/later", "now"))
    later.start()
    assert client.blocking_key_value_get("manners/later", 5000) == "now"
    later.join()


def _assert_raises(status: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except Exception as error:
        assert status in str(error), error
    else:
        raise AssertionError(f"nothing was raised instead of {status}")
