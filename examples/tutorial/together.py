"""The same program on all workers together: two lines more."""

import lockstep as ls
import keras
import numpy as np

strategy = ls.distribute.MultiWorkerMirroredStrategy()  # Joins the other workers.

rng = np.random.default_rng(0)
x = rng.normal(size=(1000, 8)).astype("float32")
y = np.tanh(x.sum(axis=1, keepdims=True))

keras.utils.set_random_seed(0)
with strategy.scope():  # A model that is made here belongs to all of them.
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, "tanh"), keras.layers.Dense(1)])
    model.compile("adam", "mse")

history = model.fit(x, y, batch_size=50, epochs=3, verbose=0)  # 50 is the global batch, on any number of workers.
if strategy.is_chief:
    print(f"loss {history.history['loss'][-1]:.5f}")
