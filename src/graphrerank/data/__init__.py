"""Readers, encoding, candidate lists and batches."""

from graphrerank.data.dataset import Qrels, RetrievalDataset

__all__ = ["Qrels", "RetrievalDataset"]
