"""Readers, encoding, candidate lists and batches."""

from graphrerank.data.dataset import Dataset, Qrels

__all__ = ["Dataset", "Qrels"]
