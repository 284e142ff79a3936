"""Hyperparameters, as TensorBoard's HParams plugin reads them."""

from __future__ import annotations

import importlib
import numbers
import time
from collections.abc import Mapping
from typing import Any, Literal

from lockstep.errors import ArgumentError
from lockstep.summary._protos import messages

_PLUGIN = "hparams"
_START, _END = "_hparams_/session_start_info", "_hparams_/session_end_info"


def session_start(values: Mapping[str, Any], group: str) -> Any:
    """Returns a `Summary` that begins a session with these hyperparameters.

    Args:
        values: Numbers, texts or booleans by name.
        group: Sessions of one name are repetitions of one experiment.

    Raises:
        ArgumentError: If a value is something else.
    """
    plugin = importlib.import_module("tensorboardX.proto.plugin_hparams_pb2")
    info = plugin.SessionStartInfo(start_time_secs=time.time(), group_name=group)
    for name, value in values.items():
        if isinstance(value, bool):
            info.hparams[name].bool_value = value
        elif isinstance(value, str):
            info.hparams[name].string_value = value
        elif isinstance(value, numbers.Real):
            info.hparams[name].number_value = float(value)
        else:
            raise ArgumentError(
                "A hyperparameter is a number, a text or a bool, which TensorBoard's table can show. Received: "
                f"{name}={value!r:.60}. Give its name, or repr({name})."
            )
    return _summary(_START, plugin.HParamsPluginData(session_start_info=info))


def session_end(status: Literal["SUCCESS", "FAILURE"]) -> Any:
    """Returns a `Summary` that ends a session."""
    plugin = importlib.import_module("tensorboardX.proto.plugin_hparams_pb2")
    api = importlib.import_module("tensorboardX.proto.api_pb2")
    info = plugin.SessionEndInfo(status=api.Status.Value(f"STATUS_{status}"), end_time_secs=time.time())
    return _summary(_END, plugin.HParamsPluginData(session_end_info=info))


def _summary(tag: str, content: Any) -> Any:
    summaries = messages("summary")
    about = summaries.SummaryMetadata.PluginData(plugin_name=_PLUGIN, content=content.SerializeToString())
    # No tensor: the plugin reads the metadata alone.
    value = summaries.Summary.Value(tag=tag, metadata=summaries.SummaryMetadata(plugin_data=about))
    return summaries.Summary(value=[value])
