"""Trainable models and their checkpoints; every ``forward`` takes plain tensors."""

from graphrerank.models.checkpoint import Checkpoint, load_checkpoint
from graphrerank.models.gatv2_reranker import GATv2Reranker

__all__ = ["Checkpoint", "GATv2Reranker", "load_checkpoint"]
