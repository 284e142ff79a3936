"""Moving from TensorFlow: a scanner of programs, and conversions of checkpoints and models.

The command line imports it when one of its commands is used. Nothing here imports TensorFlow, but the export to
TensorFlow's own format.
"""
