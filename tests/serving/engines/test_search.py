"""Search, replacement of the corpus, and inspection."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from graphrerank.calibration.list_confidence import ListConfidence
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import EDGE_TYPES, REFERENCE, SIMILARITY
from graphrerank.corpus.metadata import Metadata
from graphrerank.models.checkpoint import load_primary
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer
from graphrerank.serving.engine import Refusal
from graphrerank.serving.engines.inspection import InspectEngine
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus
from graphrerank.serving.hot_reload import folder_version
from graphrerank.serving.limits import Limits
from graphrerank.serving.schemas.inspection import InspectRequest, InspectResponse
from graphrerank.serving.schemas.search import SearchRequest
from tests.support.device import made_up_device, traffic
from tests.support.encoders import HashEncoder
from tests.support.logs import awaited_line
from tests.support.searching import searchable


def load(folder):
    texts = (folder / "corpus.txt").read_text().splitlines()
    graph = CorpusGraph.from_edges([f"d{i}" for i in range(len(texts))], texts, torch.zeros(0, 2))
    pipeline = Pipeline(graph, steps=[partial(VectorSearch, retriever=partial(BM25Retriever))], budget=3)
    return SearchableCorpus(graph, pipeline, None)


def ask(engine, query, **fields):
    return engine.answer({"a": SearchRequest(query=query, **fields)})["a"].model_dump(exclude_none=True)


@pytest.fixture
def folder(tmp_path):
    for name, lines in (("one", "red apple\ngreen pear\nred pear"), ("two", "blue plum\nred plum")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "corpus.txt").write_text(lines)
    (tmp_path / "now").symlink_to(tmp_path / "one")
    return tmp_path


def test_a_batch_of_searches(folder):
    engine = SearchEngine(load, folder / "now")
    engine.warm_up()
    answers = engine.answer({"a": SearchRequest(query="apple", top_n=1), "b": SearchRequest(query="green")})
    first, second = (answers[uid].model_dump(exclude_none=True) for uid in "ab")
    assert [one["doc_id"] for one in first["results"]] == ["d0"]
    assert second["results"][0]["doc_id"] == "d1"
    assert "document" not in second["results"][0]
    assert first["meta"] == second["meta"] == {"index": folder_version(folder / "one"), "language": "english"}
    assert ask(engine, "apple", return_documents=True)["results"][0]["document"] == {"text": "red apple"}


CONFIDENCE = ListConfidence(beyond=-1.0, within=0.0, intercept=0.5)


def search_by_base(tmp_path, *, confidence=CONFIDENCE, size=4):
    titles, bodies = ["Metz", "St. Denis!", "", "Rome"], ["A city on the Moselle.", "A city.", "No title here.", ""]
    texts = ["Metz. A city on the Moselle.", "St. Denis! A city.", "No title here.", "Rome"]
    titles, texts = titles[:size], texts[:size]
    graph = CorpusGraph.from_edges(
        list("abcd")[:size], texts, torch.tensor([[0, 1]] if size > 1 else []).reshape(-1, 2)
    )
    graph = graph.with_passages(title_lengths=torch.tensor([len(title) for title in titles], dtype=torch.int32))
    encoder = HashEncoder(dim=64, by_word=True)
    scorer = partial(CheckpointScorer, checkpoint="base", device="cpu")
    steps = [partial(VectorSearch, retriever=HybridRetriever), partial(GraphRerank, scorer=scorer)]
    pipeline = Pipeline(graph.with_embedding(encoder.encode(texts)), steps=steps, budget=6)
    pipeline.last_step.scorer.confidence = confidence
    corpus = SearchableCorpus(graph, pipeline, encoder)
    return SearchEngine(lambda _: corpus, tmp_path), dict(zip("abcd", zip(titles, bodies, strict=False), strict=False))


def test_titles_texts_and_probabilities(tmp_path):
    engine, documents = search_by_base(tmp_path)
    found = ask(engine, "city Moselle", return_documents=True, return_confidence=True)
    assert {one["doc_id"]: one["document"] for one in found["results"]} == {
        key: {"title": title, "text": text} if title else {"text": text} for key, (title, text) in documents.items()
    }
    calibration = load_primary("base").graph_reranker.calibration
    scores = torch.tensor([one["score"] for one in found["results"]])
    p = torch.tensor([one["probability"] for one in found["results"]])
    assert torch.equal(p, calibration.probabilities(scores))
    assert torch.equal(torch.tensor(found["perfect_recall"]), CONFIDENCE.perfect_recall(p))
    first = ask(engine, "city Moselle", top_n=1, return_confidence=True)
    assert first["perfect_recall"] == found["perfect_recall"][:1]  # counts what was found and is not listed


def test_results_end_where_the_probabilities_say(tmp_path):
    engine, _ = search_by_base(tmp_path)
    whole = ask(engine, "city Moselle", return_confidence=True)
    least = whole["results"][1]["probability"]
    assert whole["results"][2]["probability"] < least
    assert ask(engine, "city Moselle", min_probability=least)["results"] == whole["results"][:2]
    assert ask(engine, "city Moselle", min_probability=1.0)["results"] == []
    assert ask(engine, "city Moselle", min_probability=least, top_n=1)["results"] == whole["results"][:1]
    enough = whole["perfect_recall"][2]
    assert ask(engine, "city Moselle", min_perfect_recall=enough)["results"] == whole["results"][:3]


def test_a_passage_alone_has_no_probability(tmp_path):
    engine, _ = search_by_base(tmp_path, size=1)
    for ends in ({}, {"min_probability": 0.9}, {"min_perfect_recall": 0.9}):
        found = ask(engine, "bread", return_confidence=True, **ends)
        assert [set(one) for one in found["results"]] == [{"doc_id", "score"}]
        assert "perfect_recall" not in found


def test_probabilities_that_the_pipeline_lacks_are_refused_alone(folder, tmp_path):
    """The other requests of the batch are answered."""
    engine = SearchEngine(load, folder / "now")
    asked = {"a": {"min_probability": 0.5}, "b": {}, "c": {"return_confidence": True}, "d": {"min_perfect_recall": 0.5}}
    answers = engine.answer({uid: SearchRequest(query="apple", **fields) for uid, fields in asked.items()})
    assert [uid for uid, answer in answers.items() if isinstance(answer, Refusal)] == ["a", "c", "d"]
    assert answers["a"].status_code == 422
    assert answers["a"].detail.startswith("`min_probability` requires a calibrated model")
    assert "graphrerank calibrate" in answers["a"].detail
    assert answers["c"].detail.startswith("`return_confidence` needs")
    assert answers["d"].detail.startswith("`min_perfect_recall` requires")
    assert answers["b"].results[0].doc_id == "d0"
    assert answers["b"].results[0].probability is None
    engine, _ = search_by_base(tmp_path, confidence=None)
    assert ask(engine, "city", min_probability=0.0)["results"]
    (refused,) = engine.answer({"a": SearchRequest(query="city", min_perfect_recall=0.5)}).values()
    assert "`list_confidence`, got one without it" in refused.detail


def test_a_new_corpus_takes_the_place_of_the_old_one(folder):
    engine = SearchEngine(load, folder / "now", look_seconds=0.02)
    other = folder / "next"
    other.symlink_to(folder / "two")
    with awaited_line("corpus loaded", index=folder_version(folder / "two")):
        other.replace(folder / "now")  # as one step
    assert ask(engine, "red")["meta"]["index"] == folder_version(folder / "two")
    assert ask(engine, "plum")["results"][0]["doc_id"] in ("d0", "d1")
    with awaited_line("corpus could not be loaded, the previous one stays in use"):
        (folder / "two" / "corpus.txt").unlink()
        (folder / "two" / "corpus.csv").write_text("red plum")
    assert ask(engine, "blue")["results"][0]["doc_id"] == "d0"
    with awaited_line("corpus loaded"):
        (folder / "two" / "corpus.txt").write_text("white plum")
    assert ask(engine, "red")["meta"]["index"] == folder_version(folder / "two")
    assert len(ask(engine, "plum")["results"]) == 1


QUERY = "Where is the director of Solaris buried?"
FILMS = [
    "Solaris. A film of Andrei Tarkovsky.",
    "Andrei Tarkovsky. A director, buried in Paris.",
    "Paris. The capital.",
    "Cake. It is baked.",
    "Stalker. A film of a director.",
    "Rome. The city.",
]
EDGES = {(0, 1): REFERENCE, (1, 2): REFERENCE, (1, 4): REFERENCE, (2, 5): SIMILARITY}


def typed_corpus(edges: dict[tuple[int, int], int] = EDGES, **more: object) -> SearchableCorpus:
    return searchable([f"p{number}" for number in range(len(FILMS))], FILMS, edges, budget=5, other="vectors", **more)


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> SearchEngine:
    folder: Path = tmp_path_factory.mktemp("corpus")
    (folder / "corpus.jsonl").touch()
    return SearchEngine(lambda _: typed_corpus(), folder)


@pytest.fixture(scope="module")
def inspect(search: SearchEngine) -> Callable[..., InspectResponse]:
    def ask(limits: Limits | None = None, **fields: object) -> InspectResponse:
        request = InspectRequest.model_validate({"query": QUERY, **fields})
        return InspectEngine(search, limits).answer({"a": request})["a"]

    return ask


def test_a_device_answers_as_the_cpu_does(search: SearchEngine, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").touch()
    requests = {
        "plain": SearchRequest(query=QUERY, return_documents=True),
        "other": SearchRequest(query="Paris", min_probability=0.01, return_confidence=True),
    }

    def answers(engine: SearchEngine) -> list[dict]:
        found = [*engine.answer(requests).values()]
        found += InspectEngine(engine).answer({"a": InspectRequest(query=QUERY)}).values()
        return [answer.model_dump(exclude={"meta", "milliseconds"}) for answer in found]

    with made_up_device() as device:
        engine = SearchEngine(lambda _: typed_corpus(device=device), tmp_path)
        engine.warm_up()
        before = traffic.now()
        found = answers(engine)
        cost = traffic - before
    assert found == answers(search)
    assert cost.transfers > 0


def test_the_last_ranking_is_that_of_a_search(inspect: Callable[..., InspectResponse], search: SearchEngine) -> None:
    found, searched = inspect(), search.answer({"a": SearchRequest(query=QUERY)})["a"]
    assert [ranking.name for ranking in found.rankings] == ["retriever", "ours", "vectors"]
    ours = found.rankings[1]
    assert [found.nodes[node].doc_id for node in ours.nodes] == [result.doc_id for result in searched.results]
    assert ours.scores == [result.score for result in searched.results]
    assert ours.nodes == list(range(5))  # the first nodes are in the order of the last step
    calibration = load_primary("base").graph_reranker.calibration
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
    assert all(node.text == FILMS[int(node.doc_id[1:])] and node.explanation is None for node in found.nodes)


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
        assert explanation.score == pytest.approx(scores[place], abs=1e-5)
        assert found.rankings[0].nodes[explanation.base_rank - 1] == place
        for effect in explanation.edges:
            ends = sorted(int(found.nodes[end].doc_id[1:]) for end in effect.edge)
            other = typed_corpus({pair: edge_type for pair, edge_type in EDGES.items() if list(pair) != ends})
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
    engine._corpus = SimpleNamespace(current=("one", searched))  # type: ignore[assignment]
    return engine


def test_too_many_edges_to_explain(inspect: Callable[..., InspectResponse]) -> None:
    with pytest.raises(ValueError, match="`explain` requires at most 0 edges, got 4"):
        inspect(Limits(work_seconds=1e-6), explain=True)
    with pytest.raises(ValueError, match="at most 2 edges, got 4"):
        inspect(Limits(explained_edges=2), explain=True)


def filtered_engine(tmp_path):
    ids, texts = list("abcdef"), ["red apple", "green pear", "red pear", "blue plum", "red plum", "green apple"]
    corpus = searchable(ids, texts, {(0, 1): REFERENCE, (1, 2): SIMILARITY, (2, 4): REFERENCE}, budget=5, other="x")
    metadata = Metadata([{"size": size, "tags": ["fruit"]} for size in range(6)])
    graph = corpus.graph.with_passages(metadata=metadata)
    return SearchEngine(lambda _: replace(corpus, graph=graph), tmp_path)


def test_a_filter_of_a_request(tmp_path):
    engine = filtered_engine(tmp_path)
    requests = {
        "a": {"size": {"gte": 2, "lt": 5}},
        "b": {"size": 9},
        "c": {"sise": 2},
        "d": {},
        "e": {"size": [2, 3, 4]},
    }
    answers = engine.answer({uid: SearchRequest(query="red pear", filter=given) for uid, given in requests.items()})
    assert [one.doc_id for one in answers["a"].results] == ["c", "e", "d"]
    assert answers["e"].results == answers["a"].results
    assert answers["b"].results == []
    assert isinstance(answers["c"], Refusal)
    assert (answers["c"].status_code, answers["c"].detail) == (
        422,
        "`filter.sise` must be a field of the passages. The known fields are ['size', 'tags']",
    )
    assert len(answers["d"].results) == 5
    with pytest.raises(ValueError, match=r"`filter\.size` must only use the operators"):
        SearchRequest(query="red", filter={"size": {"above": 3}})


def test_an_inspection_with_a_filter(tmp_path):
    inspect = InspectEngine(filtered_engine(tmp_path))
    request = InspectRequest(query="red pear", filter={"size": {"in": [0, 2, 4]}}, explain=True)
    found = inspect.answer({"a": request})["a"]
    assert {node.doc_id for node in found.nodes} == {"a", "c", "e"}
    assert {ranking.name for ranking in found.rankings} == {"retriever", "ours", "x"}
    assert len(found.edges) == 1
    none = inspect.answer({"a": InspectRequest(query="red", filter={"size": 7})})["a"]
    assert (none.nodes, none.rankings, none.edges) == ([], [], [])


def test_facts_that_change_over_time(tmp_path):
    texts = [
        "the red office is in Rome",
        "the red office is in Metz",
        "the green office is in Oslo",
        "an office of old",
    ]
    corpus = searchable(list("abcd"), texts, {(0, 1): REFERENCE, (1, 2): SIMILARITY}, budget=5, other="x")
    records = [{}, {"supersedes": ["a"]}, {"contradicts": ["b"]}, {"valid_to": "2020-01-01"}]
    graph = corpus.graph.with_passages(metadata=Metadata(records))
    engine = SearchEngine(lambda _: replace(corpus._over(graph), graph=graph), tmp_path)
    query = "the red office is in Rome"
    found = ask(engine, query)["results"]
    assert [one["doc_id"] for one in found[:2]] == ["b", "a"]
    relations = {one["doc_id"]: one.get("relations") for one in found}
    assert relations == {
        "a": [("superseded_by", "b")],
        "b": [("supersedes", "a"), ("contradicts", "c")],
        "c": [("contradicts", "b")],
    }
    past = ask(engine, query, as_of="2019-06-01")["results"]
    assert [one["doc_id"] for one in past[:1]] == ["a"]
    assert {one["doc_id"] for one in past} == set("abcd")
    assert {one["doc_id"]: one["relations"] for one in past if "relations" in one} == relations
    with pytest.raises(ValueError, match="`as_of` must be a time"):
        SearchRequest(query="x", as_of="soon")


def test_what_supersedes_is_found_with_what_it_supersedes(tmp_path):
    texts = ["the red office is in Rome", "a red office", "moved to Metz"]
    corpus = searchable(list("abc"), texts, {}, budget=2, other="x")
    records = [{}, {}, {"supersedes": ["a"]}]
    engine = SearchEngine(lambda _: corpus._over(corpus.graph.with_passages(metadata=Metadata(records))), tmp_path)
    found = ask(engine, texts[0])["results"]
    relations = [(one["doc_id"], one["relations"]) for one in found]
    assert relations == [("c", [("supersedes", "a")]), ("a", [("superseded_by", "c")])]
    inspected = InspectEngine(engine).answer({"a": InspectRequest(query=texts[0], explain=True)})["a"]
    rankings = {one.name: [inspected.nodes[place].doc_id for place in one.nodes] for one in inspected.rankings}
    assert rankings["retriever"] == ["a", "b"]
    assert rankings["ours"] == ["c", "a"]


def office_over_time(tmp_path):
    """Search four passages that are all valid now, of which `b` supersedes `a`."""
    texts = ["the red office is in Rome", "the red office is in Metz", "a green office", "an office of old"]
    corpus = searchable(list("abcd"), texts, {(0, 1): REFERENCE}, budget=5, other="x")
    records = [{"n": 0}, {"n": 1, "supersedes": ["a"]}, {"n": 2}, {"n": 3, "valid_from": "2001-01-01"}]
    graph = corpus.graph.with_passages(metadata=Metadata(records))
    return SearchEngine(lambda _: replace(corpus._over(graph), graph=graph), tmp_path)


def first_two(engine, **fields):
    return [one["doc_id"] for one in ask(engine, "the red office is in Rome", **fields)["results"][:2]]


@pytest.mark.parametrize("past", ["2019-06-01", "2026-11-28"])
def test_a_search_of_the_past_does_not_change_searches_of_now(tmp_path, past):
    engine = office_over_time(tmp_path)
    assert first_two(engine) == ["b", "a"]
    for number in range(8):  # of two passages and more, so that the view of all of them makes room
        ask(engine, "office", filter={"or": [{"n": number % 4}, {"n": (number + 1 + number // 4) % 4}]})
    assert first_two(engine, as_of=past)[0] == "a"
    assert first_two(engine) == ["b", "a"]


def test_a_search_of_now_does_not_change_searches_of_a_time(tmp_path):
    engine = office_over_time(tmp_path)
    for fields in ({}, {"filter": {"n": {"lt": 3}}}):
        assert first_two(engine, **fields) == ["b", "a"]
        assert first_two(engine, as_of=time.strftime("%Y-%m-%d", time.gmtime()), **fields)[0] == "a"
        assert first_two(engine, **fields) == ["b", "a"]
