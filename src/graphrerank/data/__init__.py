"""Readers, encoding, candidate lists and batches."""

from graphrerank.data.attack import load_attack
from graphrerank.data.candidates import PreparedDataset, prepare
from graphrerank.data.dataset import Qrels, RetrievalDataset
from graphrerank.data.encoder import SentenceTransformerEncoder, packaged_model
from graphrerank.data.vector_cache import VectorCache

__all__ = [
    "PreparedDataset",
    "Qrels",
    "RetrievalDataset",
    "SentenceTransformerEncoder",
    "VectorCache",
    "load_attack",
    "packaged_model",
    "prepare",
]
