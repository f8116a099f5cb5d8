"""Trainable models and their checkpoints; every ``forward`` takes plain tensors."""
