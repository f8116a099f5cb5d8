from pathlib import Path

import pytest
import torch

from graphrerank.data.corpus_folder.opening import open_corpus
from graphrerank.data.corpus_folder.preparation import prepare_corpus
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.content_hash import content_hash


class Encoder:
    name, fingerprint = "lengths", "lengths-1"

    def encode(self, texts: list[str]) -> torch.Tensor:
        return torch.tensor([[float(len(text)), 1.0] for text in texts])


def corpus() -> CorpusGraph:
    edges = torch.tensor([[0, 1]])
    graph = CorpusGraph.from_edges(["a", "b", "c"], ["x", "", "c\u00e9 \ud800"], edges)
    return graph.with_embedding(Encoder().encode(list(graph.texts)))


@pytest.mark.parametrize("vectors", ["float32", "float16"])
def test_a_folder_and_memory_have_the_same(tmp_path: Path, vectors: str) -> None:
    qrels = {"test": Qrels(torch.tensor([0]), torch.tensor([1]), torch.ones(1))}
    dataset = Dataset("tiny", corpus(), ["q"], ["x"], qrels)
    prepare_corpus(dataset, tmp_path / "c", encoder=Encoder(), vectors=vectors, part_size=2)  # type: ignore[arg-type]
    mapped = open_corpus(tmp_path / "c").graph
    in_memory = corpus().with_embedding(corpus().encoded.to(getattr(torch, vectors)))
    assert mapped.vectors.content is not None
    assert content_hash(mapped) == content_hash(in_memory) == content_hash(mapped.with_embedding(mapped.embedding))


def test_each_part_counts_and_edges_do_not() -> None:
    graph = corpus()
    others = [
        graph.with_passages(ids=["a", "b", "d"]),
        graph.with_passages(ids=["ab", "", "c"]),
        graph.with_passages(texts=["", "x", graph.texts[2]]),
        graph.with_embedding(graph.encoded + 1),
        graph.with_embedding(graph.encoded.half()),
    ]
    assert len({content_hash(other) for other in (graph, *others)}) == 6
    assert content_hash(graph.without_edges()) == content_hash(graph)
