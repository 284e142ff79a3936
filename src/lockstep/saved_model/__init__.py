"""Exported models: directories that any process with JAX can serve, without the code that made them.

    model = lockstep.saved_model.load("/models/mine/1700000000")
    model(x=np.zeros((3, 4), np.float32))                # {"scores": array of shape (3, 2)}
    model.signatures["predict"](x=...)

`Estimator.export_saved_model` and the exporters write them; `write` exports any function that JAX can trace. In such a
directory are

    saved_model.json         signatures: names, dtypes, shapes; which program belongs to which; digests of the files
    variables.npz            the variables, for numpy.load
    programs/NAME.jax        of each signature, a program (StableHLO) for any number of examples, on CPU, GPU and TPU
    assets.extra/            files that were added

It appears when it is complete. There is no code of the host in it, and no pickle.

Programs are what `jax.export` serialises, so they can be called without lockstep (jax promises to read them for at
least six months):

    import jax.export, numpy as np
    with open("programs/serving_default.jax", "rb") as file:
        program = jax.export.deserialize(bytearray(file.read()))
    variables = dict(np.load("variables.npz"))
    outputs = program.call(variables, {"x": np.zeros((3, 4), np.float32)})

What the host does ahead of a program (parse examples, look up words) is not in it. Such a program takes the features of
examples as "examples/NAME", and integers for text as "NAME#0"; `saved_model.json` lists them.
"""

from __future__ import annotations

from lockstep.saved_model._description import TensorInfo as TensorInfo
from lockstep.saved_model._function import SignatureFunction as SignatureFunction
from lockstep.saved_model._host_functions import VocabularyIds as VocabularyIds
from lockstep.saved_model._loaded import LoadedModel as LoadedModel
from lockstep.saved_model._loaded import Signature as Signature
from lockstep.saved_model._loaded import load as load
from lockstep.saved_model._names import CLASSIFY_INPUTS as CLASSIFY_INPUTS
from lockstep.saved_model._names import CLASSIFY_METHOD_NAME as CLASSIFY_METHOD_NAME
from lockstep.saved_model._names import CLASSIFY_OUTPUT_CLASSES as CLASSIFY_OUTPUT_CLASSES
from lockstep.saved_model._names import CLASSIFY_OUTPUT_SCORES as CLASSIFY_OUTPUT_SCORES
from lockstep.saved_model._names import DEFAULT_SERVING_SIGNATURE_DEF_KEY as DEFAULT_SERVING_SIGNATURE_DEF_KEY
from lockstep.saved_model._names import EVAL as EVAL
from lockstep.saved_model._names import PREDICT_METHOD_NAME as PREDICT_METHOD_NAME
from lockstep.saved_model._names import REGRESS_INPUTS as REGRESS_INPUTS
from lockstep.saved_model._names import REGRESS_METHOD_NAME as REGRESS_METHOD_NAME
from lockstep.saved_model._names import REGRESS_OUTPUTS as REGRESS_OUTPUTS
from lockstep.saved_model._names import SERVING as SERVING
from lockstep.saved_model._names import TRAINING as TRAINING
from lockstep.saved_model._read import contains_saved_model as contains_saved_model
from lockstep.saved_model._read import maybe_saved_model_directory as maybe_saved_model_directory
from lockstep.saved_model._write import write as write
from lockstep.saved_model._write import write_version as write_version

__all__ = [
    "CLASSIFY_INPUTS",
    "CLASSIFY_METHOD_NAME",
    "CLASSIFY_OUTPUT_CLASSES",
    "CLASSIFY_OUTPUT_SCORES",
    "DEFAULT_SERVING_SIGNATURE_DEF_KEY",
    "EVAL",
    "PREDICT_METHOD_NAME",
    "REGRESS_INPUTS",
    "REGRESS_METHOD_NAME",
    "REGRESS_OUTPUTS",
    "SERVING",
    "TRAINING",
    "LoadedModel",
    "Signature",
    "SignatureFunction",
    "TensorInfo",
    "VocabularyIds",
    "contains_saved_model",
    "load",
    "maybe_saved_model_directory",
    "write",
    "write_version",
]
