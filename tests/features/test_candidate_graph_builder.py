"""The builder alone; tests/rerank/test_input_agreement.py compares what its callers get."""

from dataclasses import replace

import pytest
import torch

from graphrerank.core import ModelInputs, Queries, Ranking
from graphrerank.core.model_inputs import PAIRS, SCORES, VECTORS
from graphrerank.corpus import CorpusGraph, TypedEdges
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.features.candidate_graph_builder import (
    CandidateGraphBuilder,
    CandidateList,
    CorpusCandidates,
    ListVectors,
)
from graphrerank.features.candidate_texts import CandidateTexts
from tests.support.encoders import HashPairEncoder

REFERENCE, OTHER = 0, len(EDGE_TYPES) - 1
TYPED = ModelInputs((*SCORES.names, "edge_type"), unread=SCORES.unread)


def corpus_candidates() -> CorpusCandidates:
    """Four passages, of which d has no edge; two queries, the second with one candidate fewer."""
    edges, types = torch.tensor([[0, 1], [0, 1], [1, 2]]), torch.tensor([REFERENCE, OTHER, OTHER])
    graph = CorpusGraph.from_edges(
        list("abcd"), ["worm", "usb drive", "cake", "usb"], edges, torch.tensor([1.0, 2.0, 3.0]), edge_type=types
    )
    nodes = torch.tensor([[2, 0, 1], [3, 1, -1]])
    scores = torch.tensor([[3.0, 2.0, 1.0], [9.0, 8.0, -torch.inf]])
    ranking = Ranking(nodes, scores, scores.masked_fill(nodes < 0, 0.0).unsqueeze(-1))
    return CorpusCandidates(graph, Queries(["q", "r"], ["usb worm", "usb"]), ranking, ["base_score"])


def test_edges_and_scores_worked_by_hand() -> None:
    graphs = CandidateGraphBuilder(SCORES, ["hops", "base_score", "query_coverage"]).from_corpus(corpus_candidates())
    assert graphs.ptr.tolist() == [0, 3, 5]
    assert graphs.nodes.tolist() == [2, 0, 1, 3, 1]
    # packed: 0 is c, 1 is a, 2 is b; sorted by target, then by the source's number in the corpus
    assert graphs.edge_index.T.tolist() == [[2, 0], [2, 1], [1, 2], [0, 2]]
    assert graphs.edge_attr.tolist() == [3, 2, 2, 3]  # of two types between a and b the larger weight
    assert graphs.edge_type is None
    assert graphs.x[:, :2].tolist() == [[0, 3], [0, 2], [0, 1], [0, 9], [0, 8]]
    worm, usb = torch.log1p(torch.tensor(3.5 / 1.5)), torch.log1p(torch.tensor(2.5 / 2.5))
    expected = torch.stack([torch.tensor(0.0), worm / (worm + usb), usb / (worm + usb), *torch.ones(2)])
    torch.testing.assert_close(graphs.x[:, 2], expected)
    assert graphs.inputs == {}


def test_edges_keep_their_types_or_are_left_out() -> None:
    typed = CandidateGraphBuilder(TYPED).from_corpus(corpus_candidates())
    found = zip(*typed.edge_index.tolist(), typed.edge_type.tolist(), typed.edge_attr.tolist(), strict=True)
    assert list(found) == [
        (2, 0, OTHER, 3.0),
        (2, 1, REFERENCE, 1.0),
        (2, 1, OTHER, 2.0),
        (1, 2, REFERENCE, 1.0),
        (1, 2, OTHER, 2.0),
        (0, 2, OTHER, 3.0),
    ]
    alone = CandidateGraphBuilder(SCORES).from_corpus(replace(corpus_candidates(), with_edges=False))
    assert alone.edge_index.shape == (2, 0)
    assert torch.equal(alone.x, typed.x)


def test_degrees_are_those_of_the_corpus_or_among_the_listed() -> None:
    encoder = HashPairEncoder()
    builder = CandidateGraphBuilder(PAIRS, pair_encoder=encoder)
    candidates = corpus_candidates()
    graphs = builder.from_corpus(replace(candidates, with_edges=False))  # no edges for the model, and yet degrees
    assert graphs.inputs["degree"].tolist() == [1, 1, 2, 0, 2]
    texts = [("usb worm", text) for text in ("cake", "worm", "usb drive")] + [("usb", "usb"), ("usb", "usb drive")]
    assert encoder.pairs == texts
    assert torch.equal(graphs.inputs["pair_vectors"], encoder.encode(*map(list, zip(*texts, strict=True))))
    listed = builder.from_lists([some_list(), some_list()])
    assert listed.inputs["degree"].tolist() == [1, 2, 1] * 2


def some_list(**changes: object) -> CandidateList:
    """Three passages in a row, the first edge twice."""
    pairs = torch.tensor([[0, 1], [1, 0], [1, 2], [2, 1], [0, 1]])
    edges = TypedEdges(pairs, torch.tensor([1.0, 1.0, 1.0, 1.0, 5.0]), torch.tensor([0, 0, 1, 1, 0]))
    found = CandidateList(
        {"base_score": torch.tensor([3.0, 2.0, 1.0])},
        edges,
        CandidateTexts("usb", ["worm", "usb drive", "cake"]),
        ListVectors(torch.ones(1, 2), torch.eye(3)[:, :2]),
    )
    return replace(found, **changes)


def test_lists_are_packed_and_parallel_edges_merged() -> None:
    graphs = CandidateGraphBuilder(VECTORS, ["base_score", "query_coverage", "hops"]).from_lists(
        [some_list(), some_list(texts=None)]
    )
    assert graphs.ptr.tolist() == [0, 3, 6]
    assert graphs.nodes is None
    assert graphs.edge_index.T.tolist() == [[1, 0], [0, 1], [2, 1], [1, 2], [4, 3], [3, 4], [5, 4], [4, 5]]
    assert graphs.edge_attr.tolist() == [5, 1, 1, 1] * 2
    assert graphs.x.tolist() == [[3, 0, 0], [2, 1, 0], [1, 0, 0], [3, 0, 0], [2, 0, 0], [1, 0, 0]]
    assert torch.equal(graphs.inputs["query_vectors"], torch.ones(2, 2))
    assert torch.equal(graphs.inputs["node_vectors"], torch.cat([torch.eye(3)[:, :2]] * 2))


@pytest.mark.parametrize(
    ("inputs", "changes", "message"),
    [
        (VECTORS, {"vectors": None}, "the model needs `vectors` of query and candidates, got none"),
        (PAIRS, {"texts": None}, "the model needs the texts of query and `passages`, got none"),
        (PAIRS, {}, r"the model needs a `pair_encoder` for \(query, passage\) pairs, got none"),
    ],
)
def test_what_a_list_misses_is_named(inputs: ModelInputs, changes: dict[str, None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CandidateGraphBuilder(inputs).from_lists([some_list(), some_list(**changes)])


def test_what_a_corpus_misses_is_named() -> None:
    candidates = corpus_candidates()
    for inputs, message in (
        (VECTORS, "`queries` must have vectors"),
        (PAIRS, r"the model needs a `pair_encoder` for \(query, passage\) pairs, got none"),
    ):
        with pytest.raises(ValueError, match=message):
            CandidateGraphBuilder(inputs).from_corpus(candidates)
    bare = replace(candidates, ranking=replace(candidates.ranking, features=None))
    with pytest.raises(ValueError, match="`ranking` must have features, got none"):
        CandidateGraphBuilder(SCORES).from_corpus(bare)
    with pytest.raises(
        ValueError, match=r"needs the scores \['pagerank'\] of each candidate, but the retriever only provides"
    ):
        CandidateGraphBuilder(SCORES, ["pagerank"]).from_corpus(candidates)
