"""The engine: runtime, step programs, input, the loop, and Keras' models on them; the same on CPU and GPU."""
