"""Metrics of a task for Prometheus, which asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras

from lockstep._engine.keras.ownership import ownership
from lockstep._engine.runtime.progress import DEVICES, READING, STEP, Progress
from lockstep._engine.runtime.runtime import Runtime
from lockstep.errors import AddressError, ArgumentError, UnsupportedError
from lockstep.training._training import Training
from lockstep.training.callbacks._logger import library


class Prometheus(keras.callbacks.Callback):
    """Serves metrics of each task to Prometheus, at `http://ADDRESS:PORT/metrics`, while `fit` runs.

    Needs the extra `lockstep[prometheus]`. Figures are read when Prometheus asks, so that training pays nothing for
    them. Each task serves its own: the first task of a machine at `port`, and task i at `port` + i.

    | metric | meaning |
    |---|---|
    | `lockstep_steps_total` | steps of training that this process has made |
    | `lockstep_step` | the number of the last step, which goes on counting over restarts |
    | `lockstep_seconds_total{place}` | seconds of the main thread by place: input, steps, callbacks, checkpoints, ... |
    | `lockstep_input_wait_seconds_total` | seconds that steps waited for this task's own input |
    | `lockstep_step_seconds` | mean seconds of a step since the last request |
    | `lockstep_input_buffer_chunks` | chunks of batches that are read ahead |
    | `lockstep_heartbeat_age_seconds{task}` | seconds since the last heartbeat of each task, as this one has seen it |

    Args:
        port: The port of the first task.
        address: The address to listen on. Default: this machine alone.

    Raises:
        AddressError: If the port is in use, when training begins.
        ArgumentError: If the port is out of range.
        UnsupportedError: If the library is not installed, or the model is one of plain Keras.

    Source: `prometheus_client.start_http_server`.
    """

    # One dispatch may run several steps: nothing is called after each.
    looks_at_batches = False

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        super().__init__()
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"port is a number from 1 to 65535: received {port!r}.")
        self._client = library("prometheus_client", "prometheus")
        library("prometheus_client.core", "prometheus")
        self._port, self._address = port, address
        self._server: Any = None
        self._thread: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Starts to serve."""
        runtime = self._runtime()
        port = self._port + runtime.process
        # A registry of its own: the default one holds what the program itself counts.
        registry = self._client.CollectorRegistry()
        registry.register(_Collector(self._client.core, runtime))
        try:
            self._server, self._thread = self._client.start_http_server(port, addr=self._address, registry=registry)
        except OSError as error:
            raise AddressError(
                f"Prometheus needs port {port} on {self._address} for {runtime.tasks[runtime.process]}, and it cannot "
                f"be used: {error.strerror}. Choose another port."
            ) from error

    def on_train_end(self, logs: Any = None) -> None:
        """Stops to serve."""
        self._close()

    def on_preempted(self) -> None:
        """Stops to serve."""
        self._close()

    def _close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            # `shutdown` ends the thread's loop only; this frees the port for the next `fit`.
            self._server.server_close()
            self._thread.join()
        self._server = self._thread = None

    def _runtime(self) -> Runtime:
        model: Any = self.model
        if isinstance(model, Training):
            return model.runtime
        owned = ownership(model)
        if owned is None:
            raise UnsupportedError(
                "Prometheus needs a model that belongs to a strategy, whose loop has these figures. Received: a model "
                "of plain Keras. Create or compile it in a scope: with lockstep.distribute.MirroredStrategy().scope()"
            )
        return owned.replicas.runtime


class _Collector:
    """Reads the figures of a task when it is asked to."""

    def __init__(self, core: Any, runtime: Runtime) -> None:
        self._core = core
        self._runtime = runtime
        self._before = _steps_and_seconds(runtime.preemption.progress)

    def collect(self) -> Iterator[Any]:
        """Yields families of metrics, as prometheus_client asks for."""
        core, account = self._core, self._runtime.preemption.progress
        spent = account.charged()
        steps = core.CounterMetricFamily("lockstep_steps", "Steps of training that this process has made.")
        steps.add_metric([], account.steps)
        yield steps
        if account.step is not None:
            yield core.GaugeMetricFamily("lockstep_step", "Number of the last step.", value=account.step)
        places = core.CounterMetricFamily("lockstep_seconds", "Seconds of the main thread by place.", labels=["place"])
        for place, seconds in spent.items():
            places.add_metric([place], seconds)
        yield places
        waited = core.CounterMetricFamily("lockstep_input_wait_seconds", "Seconds that steps waited for their input.")
        waited.add_metric([], spent.get(READING, 0.0))
        yield waited
        yield from self._step_seconds(account)
        if account.buffered is not None:
            fill = account.buffered()
            yield core.GaugeMetricFamily("lockstep_input_buffer_chunks", "Chunks of batches read ahead.", value=fill)
        ages = core.GaugeMetricFamily("lockstep_heartbeat_age_seconds", "Since the last heartbeat.", labels=["task"])
        for task, seconds in self._runtime.heartbeat_ages().items():
            ages.add_metric([task], seconds)
        yield ages

    def _step_seconds(self, account: Progress) -> Iterator[Any]:
        before, now = self._before, _steps_and_seconds(account)
        if (steps := now[0] - before[0]) > 0:
            # Only with new steps: of two requests during one long step the second would begin to count in its middle.
            self._before = now
            mean = (now[1] - before[1]) / steps
            yield self._core.GaugeMetricFamily("lockstep_step_seconds", "Mean seconds of a step.", value=mean)


def _steps_and_seconds(account: Progress) -> tuple[int, float]:
    """Returns the number of steps, and the seconds that they took: in calls, and waiting for the devices."""
    spent = account.charged()
    return account.steps, sum(spent.get(place, 0.0) for place in (STEP, DEVICES))
