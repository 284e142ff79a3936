"""Programs written for TensorFlow run on lockstep with only their import lines changed, in short settings.

They lie beside the project, not in it; where they do not, conftest.py leaves these tests out.
"""

from __future__ import annotations

import ast
import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import ROOT, environment, tf_configs

pytestmark = pytest.mark.cluster

SHARED = ROOT.parent / "shared"
RUN = SHARED / "programs" / "run.py"
PICTURES = SHARED / "data" / "cats_vs_dogs" / "train"
SECONDS = 400.0


def started(*arguments: object, **variables: str) -> subprocess.Popen[str]:
    """Starts a program."""
    env = environment(KERAS_MAX_STEPS_PER_EPOCH="40", **variables)
    command = [sys.executable, str(RUN), *map(str, arguments)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def result(process: subprocess.Popen[str]) -> str:
    """What follows RESULT in the output of a program that ends well."""
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output
    lines = [line for line in output.splitlines() if line.startswith("RESULT")]
    assert len(lines) == 1, output
    return lines[0].removeprefix("RESULT ")


def test_cluster_resolver() -> None:
    assert json.loads(result(started("cluster_resolver.py"))) == {
        "cluster": {"ps": ["host4:2222", "host5:2222"], "worker": ["host1:2222", "host2:2222", "host3:2222"]},
        "master": "host2:2222",
        "overridden": ["ps", "grpc://host2:2222"],
        "rpc_layer": None,
        "task": ["worker", 1],
    }


def test_keras_mirrored() -> None:
    loss, accuracy = ast.literal_eval(result(started("keras_mirrored.py")))
    assert loss < 1.0
    assert accuracy > 0.7


def test_keras_fault_tolerance_continues(tmp_path: Path) -> None:
    first = ast.literal_eval(result(started("keras_fault_tolerance.py", tmp_path)))
    second = ast.literal_eval(result(started("keras_fault_tolerance.py", tmp_path)))
    assert second["val_sparse_categorical_accuracy"] > first["val_sparse_categorical_accuracy"]
    assert second["loss"][0] < 0.8 * first["loss"][0]


@pytest.mark.parametrize("workers", [pytest.param(2, marks=pytest.mark.exhaustive), 4])
def test_keras_multiworker(tmp_path: Path, workers: int) -> None:
    env = environment(KERAS_MAX_STEPS_PER_EPOCH="15")
    command = [sys.executable, "-m", "lockstep._launch", "run", "--workers", str(workers)]
    done = subprocess.run(
        [*command, str(RUN), "keras_multiworker.py", str(tmp_path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [line.partition("RESULT ")[2] for line in done.stdout.splitlines() if "RESULT " in line]
    histories = {line[line.index("} {") + 2 :] for line in shown}
    assert len(shown) == workers
    assert len(histories) == 1, "all workers report the same"
    assert ast.literal_eval(histories.pop())["loss"][-1] < 2.35
    assert (tmp_path / "tb" / "train").is_dir()


@pytest.fixture
def digits(tmp_path: Path) -> str:
    """The first of MNIST's."""
    directory = tmp_path / "data" / "mnist"
    directory.mkdir(parents=True)
    for kind, count in (("train", 640), ("t10k", 128)):
        for name, size in (("images-idx3", 784), ("labels-idx1", 1)):
            source = SHARED / "data" / "mnist" / f"{kind}-{name}-ubyte.gz"
            raw = gzip.decompress(source.read_bytes())
            header = 4 + 4 * raw[3]
            short = raw[:4] + count.to_bytes(4, "big") + raw[8 : header + count * size]
            (directory / source.name).write_bytes(gzip.compress(short, 1))
    return str(directory.parent)


def test_estimator_alone(tmp_path: Path, digits: str) -> None:
    model_dir = tmp_path / "model"
    metrics, exports = ast.literal_eval(
        result(started("estimator_multiworker.py", model_dir, LOCKSTEP_DATA_DIR=digits))
    )
    assert metrics["global_step"] == 10
    assert 2.0 < metrics["loss"] < 2.6
    assert exports == []


@pytest.mark.parametrize("evaluator", [(), ("--evaluator",)], ids=["", "with an evaluator"])
def test_estimator_on_two_workers(tmp_path: Path, digits: str, evaluator: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "lockstep._launch", "run", "--workers", "2", *evaluator]
    done = subprocess.run(
        [*command, str(RUN), "estimator_multiworker.py", str(tmp_path / "model")],
        env=environment(LOCKSTEP_DATA_DIR=digits),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = [line.partition("RESULT ")[2] for line in done.stdout.splitlines() if "RESULT " in line]
    assert len(shown) == 2 + len(evaluator)
    assert len(set(shown)) == 1, "every task returns the same"
    metrics, _ = ast.literal_eval(shown[0])
    assert metrics["global_step"] == 5
    assert 2.0 < metrics["loss"] < 2.6


@pytest.fixture
def pictures(tmp_path: Path) -> str:
    """A few of the pictures."""
    for kind in ("cat", "dog"):
        directory = tmp_path / "data" / "cats_vs_dogs" / "train" / kind
        directory.mkdir(parents=True)
        for path in sorted((PICTURES / kind).glob("*.jpg"))[:8]:
            shutil.copy(path, directory)
    return str(tmp_path / "data")


@pytest.mark.exhaustive
def test_mobilenet_on_two_workers_beside_an_unused_ps(pictures: str) -> None:
    configs: list[Any] = [json.loads(c) for c in tf_configs(2)]
    for config in configs:
        config["cluster"]["ps"] = ["127.0.0.1:1"]
    processes = [
        started("mobilenet_mirrored.py", 1, 4, LOCKSTEP_DATA_DIR=pictures, TF_CONFIG=json.dumps(c)) for c in configs
    ]
    histories = [ast.literal_eval(result(p)) for p in processes]
    assert histories[0] == histories[1]
    assert 0 < histories[0]["loss"][0] < 10
