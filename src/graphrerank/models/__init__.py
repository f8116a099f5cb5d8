"""Trainable models and their checkpoints; every ``forward`` takes plain tensors."""

from graphrerank.models.checkpoint import Checkpoint, find_checkpoint, load_checkpoint, load_checkpoints, load_primary
from graphrerank.models.complexity_adapter import ComplexityAdapter
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.granker_head import GRankerHead
from graphrerank.models.manifest import AdapterManifest, Manifest, RerankerManifest, parse_manifest
from graphrerank.models.pyg_reranker import PyGReranker
from graphrerank.models.registry import register_model
from graphrerank.models.trained_head import TrainedHead, load_trained_head

__all__ = [
    "AdapterManifest",
    "Checkpoint",
    "ComplexityAdapter",
    "GATv2Reranker",
    "GRankerHead",
    "Manifest",
    "PyGReranker",
    "RerankerManifest",
    "TrainedHead",
    "find_checkpoint",
    "load_checkpoint",
    "load_checkpoints",
    "load_primary",
    "load_trained_head",
    "parse_manifest",
    "register_model",
]
