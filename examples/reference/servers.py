"""Examples of the reference: parameter servers."""

import lockstep as ls

# isort: split
import keras
import numpy as np

ids, wanted = np.arange(64).reshape(16, 4) % 100, np.ones((16, 1), "float32")

# %% A table on parameter servers: under `lockstep run --workers 2 --ps 2`; in one process, a job of one task
strategy = ls.distribute.ParameterServerStrategy(mode="sync")
with strategy.scope():
    model = keras.Sequential(
        [
            keras.Input((4,), dtype="int32"),
            keras.layers.Embedding(100, 8),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adagrad(0.1), "mse")
history = model.fit(ids, wanted, batch_size=8, epochs=2, verbose=0)
assert history.history["loss"][1] < history.history["loss"][0]

# %% How tables are cut into ranges of rows
partitioner = ls.distribute.experimental.partitioners.FixedShardsPartitioner(num_shards=2)
assert partitioner((100, 8), np.dtype("float32")) == [2, 1]

# %% The strategy by its first name
strategy = ls.distribute.experimental.ParameterServerStrategy(
    variable_partitioner=ls.distribute.experimental.partitioners.MinSizePartitioner(min_shard_bytes=256 << 10)
)
