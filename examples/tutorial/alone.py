"""Your program as it is before: plain Keras, on one device."""

import lockstep as ls  # above keras: it chooses Keras' JAX backend
import keras
import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(1000, 8)).astype("float32")
y = np.tanh(x.sum(axis=1, keepdims=True))

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(32, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")

history = model.fit(x, y, batch_size=50, epochs=3, verbose=0)
print(f"loss {history.history['loss'][-1]:.5f}")
