"""Trainable models, their checkpoints and their manifests."""
