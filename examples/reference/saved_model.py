"""Examples of the reference: exports, and clusters for tests."""

import os
import tempfile

import lockstep as ls

# isort: split
import jax.numpy as jnp
import numpy as np

folder = tempfile.mkdtemp()


def linear(variables, inputs):
    return {"y": inputs["x"] @ variables["w"]}


x = ls.data.TensorSpec([None, 3], "float32")
exported = ls.saved_model.write(
    f"{folder}/linear", {"serving_default": ls.saved_model.SignatureFunction(linear, {"x": x})}, {"w": np.ones((3, 1))}
)


# %% An export: functions with their variables, for any number of examples
def predict(variables, inputs):
    return {"y": inputs["x"] @ variables["w"]}


x = ls.data.TensorSpec([None, 3], "float32")
signature = ls.saved_model.SignatureFunction(predict, {"x": x})
name = ls.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
ls.saved_model.write(f"{folder}/model", {name: signature}, {"w": np.ones((3, 1), "float32")})

# %% An export loaded, without the model's code
model = ls.saved_model.load(f"{folder}/model")
assert isinstance(model, ls.saved_model.LoadedModel)
np.testing.assert_array_equal(model(x=np.ones((2, 3), "float32"))["y"], [[3.0], [3.0]])

# %% A signature, by name
signature = ls.saved_model.load(f"{folder}/model").signatures["serving_default"]
assert isinstance(signature, ls.saved_model.Signature)
assert isinstance(signature.inputs["x"], ls.saved_model.TensorInfo)
print(signature.inputs["x"].shape, signature.inputs["x"].dtype)

# %% Whether a directory is an export
assert ls.saved_model.contains_saved_model(f"{folder}/model")
assert not ls.saved_model.maybe_saved_model_directory(folder)

# %% Versions for a server that takes the newest
x = ls.data.TensorSpec([None, 3], "float32")
signature = ls.saved_model.SignatureFunction(lambda variables, inputs: {"y": inputs["x"] + variables["b"]}, {"x": x})
version = ls.saved_model.write_version(f"{folder}/versions", {"serving_default": signature}, {"b": np.ones(3)})
assert os.path.basename(version).isdigit()

# %% What a part of an export is for
x = ls.data.TensorSpec([None, 3], "float32")
functions = {
    tag: ls.saved_model.SignatureFunction(lambda variables, inputs: {"y": inputs["x"]}, {"x": x}, tags=(tag,))
    for tag in (ls.saved_model.SERVING, ls.saved_model.EVAL, ls.saved_model.TRAINING)
}
ls.saved_model.write(f"{folder}/parts", functions, {"w": np.ones(1)})
assert ls.saved_model.load(f"{folder}/parts", tags=ls.saved_model.EVAL).tags == (ls.saved_model.EVAL,)

# %% TensorFlow's names of a classifier's inputs and results
x = ls.data.TensorSpec([None, 3], "float32")


def classify(variables, inputs):
    chances = inputs[ls.saved_model.CLASSIFY_INPUTS] @ variables["w"]
    return {
        ls.saved_model.CLASSIFY_OUTPUT_SCORES: chances,
        ls.saved_model.CLASSIFY_OUTPUT_CLASSES: jnp.argmax(chances, axis=-1, keepdims=True),
    }


signature = ls.saved_model.SignatureFunction(
    classify, {ls.saved_model.CLASSIFY_INPUTS: x}, method=ls.saved_model.CLASSIFY_METHOD_NAME
)
ls.saved_model.write(f"{folder}/classifier", {"classify": signature}, {"w": np.ones((3, 2), "float32")})

# %% TensorFlow's names of a regression's and of a prediction's
x = ls.data.TensorSpec([None, 3], "float32")


def regress(variables, inputs):
    return {ls.saved_model.REGRESS_OUTPUTS: inputs[ls.saved_model.REGRESS_INPUTS] @ variables["w"]}


functions = {
    "regress": ls.saved_model.SignatureFunction(
        regress, {ls.saved_model.REGRESS_INPUTS: x}, method=ls.saved_model.REGRESS_METHOD_NAME
    ),
    "predict": ls.saved_model.SignatureFunction(
        lambda variables, inputs: {"y": inputs["x"]}, {"x": x}, method=ls.saved_model.PREDICT_METHOD_NAME
    ),
}
ls.saved_model.write(f"{folder}/regressor", functions, {"w": np.ones((3, 1), "float32")})

# %% Words as numbers
ids = ls.saved_model.VocabularyIds(["cat", "dog"])
assert ids(np.array([b"dog", b"bird"], object)).tolist() == [1, -1]

# %% Two workers of this machine, for a test: the function is one that they can import
with ls.testing.LocalCluster(workers=2) as cluster:
    first, second = cluster.run(os.getpid)
    assert first != second
    run = cluster.start(os.path.basename, "a/b")
    assert isinstance(run, ls.testing.Run)
    assert run.results() == ["b", "b"]
    try:
        cluster.run(os.listdir, "nowhere")
    except ls.testing.TaskError as error:
        print(sorted(error.errors))

# %% Clusters that the tests of a module share: `local_cluster` in conftest.py makes it a fixture of pytest
from lockstep.testing import local_cluster


def test_two_workers(local_cluster):
    assert len(local_cluster(workers=2).run(os.getpid)) == 2
