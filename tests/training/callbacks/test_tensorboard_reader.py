"""TensorBoard's own reader and plugins open what is written, the graphs of all kinds of models among it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import lockstep as ls
from lockstep.errors import ArgumentError, UnsupportedError
from lockstep.training.callbacks import TensorBoard
from lockstep.training.callbacks._graph import graph_def_of, graph_of

pytest.importorskip("tensorboard")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

X = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def sequential() -> Any:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="one"), keras.layers.Dense(1, name="two")])


def functional() -> Any:
    first, second = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    shared = keras.layers.Dense(4, name="shared")
    # Numbers and keywords among the arguments, which the plugin cannot read in Keras' own configuration.
    both = keras.ops.add(shared(first), 1.0) * 2 + shared(second)
    nested = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name="inner")], name="nested")(both)
    attended = keras.layers.MultiHeadAttention(1, 2, name="attended")(nested[:, None, :], value=both[:, None, :])
    cells = keras.layers.RNN([keras.layers.LSTMCell(2), keras.layers.LSTMCell(2)], name="cells")(attended)
    return keras.Model([first, second], {"x": keras.layers.Dense(1, name="x")(cells), "y": [cells]})


def one_in_one() -> Any:
    inner_input = keras.Input((3,))
    inner = keras.Model(inner_input, keras.layers.Dense(2, name="deep")(inner_input), name="inner")
    outer = keras.Input((3,), name="outer")
    return keras.Model(outer, keras.layers.Dense(1, name="last", dtype="mixed_float16")(inner(outer)))


def nodes_of(model: Any) -> dict[str, list[str]]:
    """Returns the nodes that TensorBoard draws, with their inputs."""
    from tensorboard.plugins.graph.keras_util import keras_model_to_graph_def

    graph = keras_model_to_graph_def(json.loads(graph_of(model.to_json())))
    return {node.name: list(node.input) for node in graph.node}


def test_the_graph_of_a_sequence() -> None:
    nodes = nodes_of(sequential())
    (name,) = {node.partition("/")[0] for node in nodes}
    assert nodes[f"{name}/two"] == [f"{name}/one"]


@pytest.mark.slow
def test_the_graph_of_a_functional_model_has_all_layers_and_their_inputs() -> None:
    nodes = {
        name.partition("/")[2]: [i.partition("/")[2] for i in inputs] for name, inputs in nodes_of(functional()).items()
    }
    assert {"a", "b", "shared", "nested/inner", "attended", "cells", "x"} <= nodes.keys()
    assert sorted(nodes["shared"]) == ["a", "b"] and nodes["x"] == ["cells"]
    # A keyword argument is an input as any other.
    assert len(nodes["attended"]) == 2
    # Every input is a node.
    assert {i for inputs in nodes.values() for i in inputs} <= nodes.keys() | {"nested"}


@pytest.mark.parametrize("make", [sequential, functional, one_in_one])
def test_the_graph_that_opens_first_has_the_same_layers(make: Any) -> None:
    from tensorboard.compat.proto.graph_pb2 import GraphDef

    model = make()
    drawn = GraphDef.FromString(graph_def_of(model.to_json()))
    nodes = {node.name: list(node.input) for node in drawn.node}
    assert nodes.keys() == {name.partition("/")[2] for name in nodes_of(model)}
    inputs = {name for each in nodes.values() for name in each}
    assert inputs <= nodes.keys()
    assert {node.op for node in drawn.node if not node.input} == {"InputLayer"}


def test_a_model_in_a_model() -> None:
    nodes = {name.partition("/")[2]: inputs for name, inputs in nodes_of(one_in_one()).items()}
    assert "inner/deep" in nodes and [i.rpartition("/")[2] for i in nodes["last"]] == ["deep"]


@pytest.mark.slow
def test_tensorboard_reads_all_that_a_run_writes(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

    with ls.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = sequential()
        model.compile("sgd", "mse")
    board = TensorBoard(tmp_path, histogram_freq=1, write_images=True, hparams={"units": 2, "rate": 0.1, "kind": "a"})
    model.fit(X, Y, validation_data=(X, Y), epochs=2, verbose=0, callbacks=[board])
    file = ls.summary.EventFile(tmp_path / "train")
    file.text("notes", "**bold** text", 1)
    file.close()
    reader = EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    reader.Reload()
    plugins = {
        run: {p: sorted(reader.PluginRunToTagToContent(p).get(run, {})) for p in PLUGINS} for run in reader.Runs()
    }
    assert {"epoch_loss", "epoch_learning_rate"} <= set(plugins["train"]["scalars"])
    assert "epoch_loss" in plugins["validation"]["scalars"]
    assert plugins["train"]["graph_keras_model"] == ["keras"]
    assert plugins["train"]["text"] == ["notes"]
    assert reader.Runs()["train"]["graph"]
    (root,) = [run for run in plugins if plugins[run]["hparams"]]
    assert root == "."
    assert plugins[root]["hparams"] == ["_hparams_/session_end_info", "_hparams_/session_start_info"]
    assert any("histogram" in tag for tag in plugins["train"]["histograms"])
    assert any("image" in tag for tag in plugins["train"]["images"])


PLUGINS = ("scalars", "histograms", "images", "text", "hparams", "graph_keras_model")


def test_hyperparameters_are_read_by_their_plugin(tmp_path: Path) -> None:
    from tensorboard.plugins.hparams import plugin_data_pb2

    file = ls.summary.EventFile(tmp_path)
    file.hparams({"rate": np.float32(0.5), "deep": True, "kind": "a"}, group="g")
    file.close()
    (event,) = [e for e in ls.summary.read_events(tmp_path) if e.summary.value]
    data = plugin_data_pb2.HParamsPluginData.FromString(event.summary.value[0].metadata.plugin_data.content)
    found = data.session_start_info
    assert found.group_name == "g" and found.hparams["rate"].number_value == 0.5
    assert found.hparams["deep"].bool_value and found.hparams["kind"].string_value == "a"
    with pytest.raises(ArgumentError, match="layers=\\[1\\]"):
        TensorBoard(tmp_path, hparams={"layers": [1]})


def test_the_callback_of_keras_says_what_to_use(tmp_path: Path) -> None:
    with ls.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = sequential()
        model.compile("sgd", "mse")
    with pytest.raises(UnsupportedError, match=r"Use lockstep\.callbacks\.TensorBoard"):
        model.fit(X, Y, verbose=0, callbacks=[keras.callbacks.TensorBoard(tmp_path)])


@pytest.mark.slow
def test_a_profile_has_the_steps_of_the_training(tmp_path: Path) -> None:
    with ls.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = sequential()
        model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=8, verbose=0, callbacks=[TensorBoard(tmp_path, profile_batch=(3, 5))])
    (file,) = tmp_path.glob("train/plugins/profile/*/*.xplane.pb")
    content = file.read_bytes()
    # The names of the marker and of its statistic, as the profiler's file holds them.
    assert b"train" in content and b"step_num" in content
