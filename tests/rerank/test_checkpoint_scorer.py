"""A checkpoint as a step of a pipeline gives what evaluate.py gives with the same retriever."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core import Queries, RetrieverFactory
from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.evaluation.reranking import rerank
from graphrerank.evaluation.systems import System
from graphrerank.models.checkpoint import load_checkpoints, save_weights
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.granker import GRankerHead
from graphrerank.models.manifest import write_manifest
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.expand import HybridExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer
from tests.operators import corpora
from tests.operators.corpora import queries
from tests.support.manifests import make_manifest

EXPAND = partial(HybridExpandRetriever, base_k=12, num_seeds=6)


class Encoder:
    """The encoder of the corpus, by its fingerprint alone."""

    fingerprint = "e" * 64

    def encode(self, texts: Any) -> torch.Tensor:
        raise AssertionError(texts)


def corpus(*, entities: bool = False) -> CorpusGraph:
    graph = corpora.corpus(60, 90)
    if not entities:
        return graph
    return graph.with_entities(EntityIncidence.from_names([text.split()[:2] for text in graph.texts], max_share=1.0))


def evaluated(graph: CorpusGraph, asked: Queries, retriever: RetrieverFactory, checkpoint: str) -> torch.Tensor:
    """Rank as evaluate.py does with a checkpoint."""
    number = torch.arange(len(asked.ids))
    dataset = Dataset("small", graph, asked.ids, asked.texts, {"test": Qrels(number, number, torch.ones(len(number)))})
    built = retriever(graph)
    prepared = PreparedDataset(dataset, asked.vectors, built.retrieve(asked), built.feature_names, "small", "e" * 64)
    loaded = list(load_checkpoints(checkpoint).values())[-1]
    prepared = prepared.with_features(loaded.reranker.retriever.feature_names)
    system = System(
        "gatv2", lambda graphs: loaded.model(*graphs.model_inputs(loaded.model.inputs)), inputs=loaded.model.inputs
    )
    return rerank(prepared, number, system).nodes


def pipeline(graph: CorpusGraph, retriever: RetrieverFactory, checkpoint: str, **settings: Any) -> Pipeline:
    steps = [
        partial(VectorSearch, retriever=retriever),
        partial(GraphRerank, scorer=partial(CheckpointScorer, checkpoint=checkpoint, device="cpu")),
    ]
    return Pipeline(graph, steps=steps, text_encoder=Encoder(), **settings)


def full_checkpoint(folder: Path, *, features: str = "full") -> str:
    """An untrained model of vectors, whose last layer is not 0."""
    torch.manual_seed(0)
    names = ["base_score", "bm25_score", "dense_score"]
    arguments = {"features": features, "num_scores": 3, "embedding_dim": 5, "hidden_channels": 8, "heads": 2}
    model = GATv2Reranker(**arguments)  # type: ignore[arg-type]
    torch.nn.init.normal_(model.lin_out.weight)
    save_weights(folder, model)
    encoder = {"name": "small", "fingerprint": "e" * 64, "dim": 5}
    described = {"retriever": {"feature_names": names}, "encoder": encoder}
    write_manifest(folder, make_manifest("gatv2_reranker", arguments, name="gatv2", **described))
    return str(folder)


@pytest.mark.parametrize("entities", [False, True])
@pytest.mark.parametrize("retriever", [partial(HybridRetriever), EXPAND, partial(BM25Retriever)])
def test_the_ranking_is_that_of_evaluate(retriever: Any, entities: bool) -> None:
    graph, asked = corpus(entities=entities), queries()
    found = pipeline(graph, retriever, "base", budget=20, batch_queries=4).retrieve(asked)
    expected = evaluated(graph, asked, partial(retriever, top_k=20), "base")
    assert torch.equal(found.ranking.nodes, expected)
    if retriever.func is not BM25Retriever:  # "base" does change the order
        assert not torch.equal(expected, retriever(graph, top_k=20).retrieve(asked).nodes)
    assert found.num_encodings.tolist() == [0] * 7
    assert set(found.seconds) == {"retrieve", "graph", "rerank"}


@pytest.mark.parametrize("features", ["full", "paper"])
def test_a_model_of_vectors_ranks_as_in_evaluate(features: str, tmp_path: Path) -> None:
    graph, asked, name = corpus(), queries(), full_checkpoint(tmp_path, features=features)
    found = pipeline(graph, partial(HybridRetriever), name, budget=20).retrieve(asked)
    assert torch.equal(found.ranking.nodes, evaluated(graph, asked, partial(HybridRetriever, top_k=20), name))


def test_vectors_of_another_encoder_are_refused(tmp_path: Path) -> None:
    name = full_checkpoint(tmp_path)
    for encoder, graph in ((None, corpus()), (Encoder(), corpus().without_edges())):
        if encoder is not None:
            encoder.fingerprint = "f" * 64
        with pytest.raises(
            ValueError, match=r"`encoder` must be that of the training of .*, small \(eeeeeeeeeeee\), got"
        ):
            CheckpointScorer(graph, checkpoint=name, text_encoder=encoder)


def test_a_model_of_pairs_is_refused(tmp_path: Path) -> None:
    save_weights(tmp_path, GRankerHead(hidden_size=8))
    write_manifest(tmp_path, make_manifest("granker_head", {"hidden_size": 8}))
    with pytest.raises(ValueError, match="needs the cross-encoder's vectors"):
        CheckpointScorer(corpus(), checkpoint=str(tmp_path))
