"""Trainable models and their checkpoints; every ``forward`` takes plain tensors."""

from graphrerank.models.checkpoint import Checkpoint, find_checkpoint, load_checkpoint, load_checkpoints
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.granker_head import GRankerHead

__all__ = ["Checkpoint", "GATv2Reranker", "GRankerHead", "find_checkpoint", "load_checkpoint", "load_checkpoints"]
