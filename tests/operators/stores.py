"""What tests of the stores of vectors share: a corpus with ties, questions to it, and the retrievers installed here."""

from pathlib import Path
from typing import Any

import torch

from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph
from graphrerank.installation.extras import missing_modules
from graphrerank.operators.lancedb_retriever import LanceDBRetriever
from graphrerank.operators.qdrant_retriever import QdrantRetriever
from tests.operators.corpora import corpus_of, queries_of

DIM = 8
WORDS = ("river", "mountain", "harbour", "bridge", "castle", "forest", "island", "desert", "glacier", "lagoon")


def corpus(num_nodes: int = 120, *, seed: int = 0, half: bool = False, with_vectors: bool = True) -> CorpusGraph:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.nn.functional.normalize(torch.randn(num_nodes, DIM, generator=generator), dim=1)
    vectors[num_nodes // 2 :: 3] = vectors[min(1, num_nodes - 1)].clone()  # more equal ones than any margin
    texts = [f"{WORDS[i % 10]} {WORDS[i // 10 % 10]} number{i}" for i in range(num_nodes)]
    return corpus_of(texts, (vectors.half() if half else vectors) if with_vectors else None)


def questions(graph: CorpusGraph, count: int = 5) -> Queries:
    generator = torch.Generator().manual_seed(7)
    drawn = torch.nn.functional.normalize(torch.randn(count - 1, DIM, generator=generator), dim=1)
    vectors = torch.cat([drawn, graph.encoded[1:2].float()])  # the last one's nearest are all tied
    return queries_of(["castle forest", "", "number17 river", 'NOT "glacier (', "bridge"][:count], vectors)


def _lance(folder: Path, graph: CorpusGraph, *, name: str | None = None, **settings: Any) -> LanceDBRetriever:
    path = None if name is None else folder / name
    return LanceDBRetriever(graph, path=path, cache=folder / "tables", bm25_weight=0.0, **settings)


def _qdrant(folder: Path, graph: CorpusGraph, *, name: str | None = None, **settings: Any) -> QdrantRetriever:
    return QdrantRetriever(graph, url=None, path=folder / "qdrant", collection=name, **settings)


lance = None if missing_modules("lancedb") else _lance
qdrant = None if missing_modules("qdrant") else _qdrant
