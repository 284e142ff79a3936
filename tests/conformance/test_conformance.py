"""The runner of TensorFlow's tests: what it makes of a test that passes, and of those that do not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.verdicts import judge
from tests.support.cluster import ROOT

PROGRAM = """
from absl.testing import parameterized
from tensorflow.python.data.ops import dataset_ops
from tensorflow.python.data.kernel_tests import test_base
from tensorflow.python.framework import combinations
from tensorflow.python.ops import gen_dataset_ops
from tensorflow.python.platform import test


class SampleTest(test_base.DatasetTestBase, parameterized.TestCase):
    @combinations.generate(test_base.default_test_combinations())
    def testRange(self):
        self.assertDatasetProduces(dataset_ops.Dataset.range(3), [0, 1, 2])

    def testDiffers(self):
        self.assertDatasetProduces(dataset_ops.Dataset.range(3), [0, 1, 3])

    def testWords(self):
        with self.assertRaisesRegex(ValueError, "other words"):
            raise ValueError("words")

    def testKernel(self):
        gen_dataset_ops.range_dataset(1, 2, 3)
"""


@pytest.mark.cluster
def test_a_file_is_run_and_each_test_judged(tmp_path: Path) -> None:
    file = tmp_path / "tensorflow" / "python" / "sample_test.py"
    file.parent.mkdir(parents=True)
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "tests.conformance", str(file), "--json", str(tmp_path / "results.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    (tests,) = json.loads((tmp_path / "results.json").read_text()).values()
    assert {name.removeprefix("SampleTest."): r["verdict"] for name, r in tests.items()} == {
        "testRange_test_mode_eager_tfapiversion_1": "skipped",
        "testRange_test_mode_eager_tfapiversion_2": "passes",
        "testRange_test_mode_graph_tfapiversion_1": "skipped",
        "testRange_test_mode_graph_tfapiversion_2": "internal",
        "testDiffers": "differs",
        "testWords": "words",
        "testKernel": "internal",
    }


@pytest.mark.parametrize(
    ("result", "verdict", "cause"),
    [
        ({"outcome": "pass"}, "passes", ""),
        ({"outcome": "timeout"}, "timeout", ""),
        ({"outcome": "fail", "absent": ["graph", "tf.Graph"]}, "internal", "graphs: tf.Graph"),
        ({"outcome": "fail", "absent": ["missing", "tf.foo"]}, "differs", "missing: tf.foo"),
        ({"outcome": "fail", "error": "E", "why": "tf.foo is not available. Use"}, "differs", "missing: tf.foo"),
        ({"outcome": "fail", "error": "E", "why": "7 apples", "expected_other": True}, "words", "E: N apples"),
        ({"outcome": "fail", "error": "E", "why": "no", "lines": ["v._values[0]"]}, "internal", "private attributes"),
        ({"outcome": "fail", "error": "E", "why": "no", "lines": ["self._check(3)"]}, "differs", "E: no"),
        ({"outcome": "fail", "error": "E", "why": "no", "lines": ["super()._check(3)"]}, "differs", "E: no"),
        ({"outcome": "fail", "error": "E", "why": "no", "lines": ["f(v)._x"]}, "internal", "private attributes"),
        ({"outcome": "fail", "error": "E", "why": "at 0x7f3a"}, "differs", "E: at 0x"),
        ({"outcome": "fail", "error": "UnsupportedError", "why": "Use x."}, "refused", "Use x."),
        ({"outcome": "fail", "error": "E", "why": "'S' object has no attribute 'f'. Use g."}, "refused", None),
        ({"outcome": "fail", "absent": ["missing", "tf.tpu.foo"]}, "refused", "missing: tf.tpu.foo"),
    ],
)
def test_verdicts(result: dict[str, object], verdict: str, cause: str | None) -> None:
    found, why = judge(result)
    assert found == verdict
    assert cause is None or why == cause
