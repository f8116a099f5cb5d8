"""KET-RAG's solutions, sweeps and rerankers."""

from graphrerank.experiments.ket.job import KETSolutions, Rerankers

__all__ = ["KETSolutions", "Rerankers"]
