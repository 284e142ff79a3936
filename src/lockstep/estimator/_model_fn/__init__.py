"""A model_fn as a pure function of its variables."""
