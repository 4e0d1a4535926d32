"""Encoders of this project's own blocks, saved by `model.checkpoints.saving`."""
