"""Evaluation: of one checkpoint, of all checkpoints of a training, by an evaluator task, or in memory."""
