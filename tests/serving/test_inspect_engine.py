from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import EDGE_TYPES, REFERENCE, SIMILARITY
from graphrerank.inference.checkpoint_scorer import CheckpointScorer
from graphrerank.models.checkpoint import load_primary
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.serving.inspect_engine import InspectEngine, InspectRequest, InspectResponse
from graphrerank.serving.limits import Limits
from graphrerank.serving.search_engine import SearchableCorpus, SearchEngine, SearchRequest
from tests.support.encoders import HashEncoder

QUERY = "Where is the director of Solaris buried?"
TEXTS = [
    "Solaris. A film of Andrei Tarkovsky.",
    "Andrei Tarkovsky. A director, buried in Paris.",
    "Paris. The capital.",
    "Cake. It is baked.",
    "Stalker. A film of a director.",
    "Rome. The city.",
]
EDGES = {(0, 1): REFERENCE, (1, 2): REFERENCE, (1, 4): REFERENCE, (2, 5): SIMILARITY}


def corpus(edges: dict[tuple[int, int], int] = EDGES) -> SearchableCorpus:
    encoder = HashEncoder(dim=256, by_word=True)
    graph = CorpusGraph.from_edges(
        [f"p{number}" for number in range(len(TEXTS))], TEXTS, torch.tensor(list(edges)),
        edge_type=torch.tensor(list(edges.values())),
    ).with_embedding(encoder.encode(TEXTS))  # fmt: skip
    scorer = partial(CheckpointScorer, checkpoint="base", device="cpu")
    search = partial(VectorSearch, retriever=HybridRetriever)
    pipeline = Pipeline(graph, steps=[search, partial(GraphRerank, scorer=scorer)], budget=5)
    first = Pipeline(graph, steps=[search], budget=6)
    return SearchableCorpus(graph, pipeline, encoder, {"vectors": first})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> SearchEngine:
    folder: Path = tmp_path_factory.mktemp("corpus")
    (folder / "corpus.jsonl").touch()
    return SearchEngine(lambda _: corpus(), folder)


@pytest.fixture(scope="module")
def inspect(search: SearchEngine) -> Callable[..., InspectResponse]:
    def ask(limits: Limits | None = None, **fields: object) -> InspectResponse:
        request = InspectRequest.model_validate({"query": QUERY, **fields})
        return InspectEngine(search, limits).answer({"a": request})["a"]

    return ask


def test_the_last_ranking_is_that_of_a_search(inspect: Callable[..., InspectResponse], search: SearchEngine) -> None:
    found, searched = inspect(), search.answer({"a": SearchRequest(query=QUERY)})["a"]
    assert [ranking.name for ranking in found.rankings] == ["retriever", "ours", "vectors"]
    ours = found.rankings[1]
    assert [found.nodes[node].doc_id for node in ours.nodes] == [result.doc_id for result in searched.results]
    assert ours.scores == [result.score for result in searched.results]
    assert ours.nodes == list(range(5))  # the first nodes are in the order of the last step
    calibration = load_primary("base").graph_reranker.calibration
    assert calibration is not None
    assert ours.probabilities == calibration.probabilities(torch.tensor(ours.scores)).tolist()
    first, vectors = found.rankings[0], found.rankings[2]
    assert vectors.nodes[:5] == first.nodes  # one passage more than the pipeline's budget
    assert len(found.nodes) == len(vectors.nodes) == 6
    assert first.probabilities is vectors.probabilities is None
    assert set(found.milliseconds) == {"encode query", "retrieve", "graph", "rerank"}
    assert found.meta == {
        "index": search.current[0],
        "language": "english",
        "model": load_primary("base").graph_reranker.name,
    }
    assert all(node.text == TEXTS[int(node.doc_id[1:])] and node.explanation is None for node in found.nodes)


def test_edges_are_those_of_the_corpus(inspect: Callable[..., InspectResponse]) -> None:
    found = inspect()
    number = [int(node.doc_id[1:]) for node in found.nodes]
    assert all(i < j for i, j, *_ in found.edges)
    read = {tuple(sorted((number[i], number[j]))): name for i, j, _, name in found.edges}
    assert read == {pair: EDGE_TYPES[edge_type] for pair, edge_type in EDGES.items()}


def test_an_effect_is_the_score_without_the_edge(inspect: Callable[..., InspectResponse]) -> None:
    """Against a search of the corpus without it, whose retriever reads no edges."""
    found, checked = inspect(explain=True), 0
    scores = dict(zip(found.rankings[1].nodes, found.rankings[1].scores, strict=True))
    for place, node in enumerate(found.nodes[:5]):
        explanation = node.explanation
        assert explanation is not None
        assert explanation.score == pytest.approx(scores[place], abs=1e-5)
        assert found.rankings[0].nodes[explanation.base_rank - 1] == place
        for effect in explanation.edges:
            ends = sorted(int(found.nodes[end].doc_id[1:]) for end in effect.edge)
            other = corpus({pair: edge_type for pair, edge_type in EDGES.items() if list(pair) != ends})
            engine = InspectEngine(_engine_of(other))
            without = engine.answer({"a": InspectRequest(query=QUERY)})["a"]
            again = dict(
                zip(
                    (without.nodes[n].doc_id for n in without.rankings[1].nodes),
                    without.rankings[1].scores,
                    strict=True,
                )
            )
            assert scores[place] - again[node.doc_id] == pytest.approx(effect.effect, abs=1e-4)  # type: ignore[operator]
            checked += 1
    assert checked >= 5
    assert found.nodes[5].explanation is None  # no reranker has read it


def _engine_of(searched: SearchableCorpus) -> SearchEngine:
    engine = SearchEngine.__new__(SearchEngine)  # without a folder to watch
    engine._folder, engine._current = Path("nowhere"), ("one", searched)
    return engine


def test_too_many_edges_to_explain(inspect: Callable[..., InspectResponse]) -> None:
    with pytest.raises(ValueError, match="`explain` leaves out each edge once, of at most 0, got 4"):
        inspect(Limits(work_seconds=1e-6), explain=True)
    with pytest.raises(ValueError, match="at most 2, got 4 edges"):
        inspect(Limits(explained_edges=2), explain=True)


def test_only_questions_are_asked() -> None:
    assert InspectRequest(query="a", explain=True).work() > InspectRequest(query="a").work()
    with pytest.raises(ValueError, match="documents"):
        InspectRequest.model_validate({"query": "a", "documents": []})
