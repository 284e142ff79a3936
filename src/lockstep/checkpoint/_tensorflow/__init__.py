"""TensorFlow's checkpoints, read without TensorFlow: tables, bundles of tensors, and graphs of the objects in them."""
