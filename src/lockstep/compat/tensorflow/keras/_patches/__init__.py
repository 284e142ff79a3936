"""Changes of Keras' own classes; README.md of `lockstep.compat.tensorflow` lists them, and says why each is needed.

Importing a module of this package makes its changes.
"""

from __future__ import annotations

from lockstep.compat.tensorflow.keras._patches import adapting as adapting
from lockstep.compat.tensorflow.keras._patches import building as building
from lockstep.compat.tensorflow.keras._patches import data_order as data_order
from lockstep.compat.tensorflow.keras._patches import layers as layers
from lockstep.compat.tensorflow.keras._patches import logits as logits
from lockstep.compat.tensorflow.keras._patches import metrics as metrics
from lockstep.compat.tensorflow.keras._patches import models as models
from lockstep.compat.tensorflow.keras._patches import optimizer_rules as optimizer_rules
from lockstep.compat.tensorflow.keras._patches import optimizers as optimizers
from lockstep.compat.tensorflow.keras._patches import saving as saving
from lockstep.compat.tensorflow.keras._patches import steps as steps
from lockstep.compat.tensorflow.keras._patches import text as text
from lockstep.compat.tensorflow.keras._patches import tracing as tracing
from lockstep.compat.tensorflow.keras._patches import variables as variables
