"""A zoo of networks that nobody tuned for, each beside TensorFlow 2.15 and Keras on JAX."""
