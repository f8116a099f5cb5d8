"""Noninterference: what callers may not see changes nothing of their answers (docs/permissions.md)."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_lists import GuardedEdges
from graphrerank.corpus.edge_types import EDGE_TYPES, REFERENCE, SIMILARITY
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.packed_strings import chosen
from graphrerank.corpus.passages import Passages
from graphrerank.corpus_store.opening import open_corpus
from graphrerank.corpus_store.preparation import prepare_corpus
from graphrerank.corpus_store.word_columns import with_words
from graphrerank.data.candidates import with_vectors
from graphrerank.data.dataset import Dataset
from graphrerank.data.derived_edges import DerivedEdges, EdgeRecipe, EdgeRule
from graphrerank.data.enrichment.neighbours import nearest_neighbor_edges
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.expand import HybridExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank.pipelines.steps import GraphRerank, PageRank, VectorSearch
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer
from graphrerank.serving.auth import Caller
from graphrerank.serving.engine import Refusal
from graphrerank.serving.engines.inspection import InspectEngine
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus
from graphrerank.serving.schemas.inspection import InspectRequest
from graphrerank.serving.schemas.search import SearchRequest
from tests.support.encoders import HashEncoder
from tests.support.folders import write_dataset

SEEDS, MORE_SEEDS = range(200), range(200, 2000)  # of random corpora
REQUESTS_OF_SHARED = 25
NAMES = "abc"
WORDS = ["metz", "rome", "oslo", "river", "rivers", "bridge", "stone", "the", "of", "Nero", "walls", "harbour"]
ENCODER = HashEncoder(dim=16, by_word=True)


def drawn_corpora(few: int, many: int) -> pytest.MarkDecorator:
    """Number of drawn corpora: a few by default, and many among the slow tests."""
    return pytest.mark.parametrize(
        "num_corpora", [few, pytest.param(many, marks=pytest.mark.slow)], ids=["few", "many"]
    )


@dataclass(frozen=True)
class Drawn:
    """A corpus as somebody writes it, of which parts are taken before anything is made of it."""

    ids: Sequence[str]
    titles: Sequence[str]
    texts: Sequence[str]
    records: Sequence[dict[str, Any]]
    names: Sequence[set[str]]  # of entities
    pairs: Sequence[tuple[int, int]]
    weight: Sequence[float]
    types: Sequence[int]
    principals: Sequence[tuple[str, ...]]  # of edges, none for public ones

    @classmethod
    def of(cls, rng: random.Random, size: int) -> "Drawn":
        forms: list[Callable[[], dict[str, Any]]] = [
            lambda: {},
            lambda: {"principals": rng.sample(NAMES, rng.randint(0, 2))},
            lambda: {"principals": [rng.choice(NAMES)]},
        ]
        pairs = [(rng.randrange(size), rng.randrange(size)) for _ in range(rng.randint(0, 2 * size))]
        pairs = [pair for pair in pairs if pair[0] != pair[1]]
        texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 7))) for _ in range(size)]
        guards: list[tuple[str, ...]] = [(), (), ("a",), ("b", "c")]
        return cls(
            [f"d{i}" for i in range(size)],
            [rng.choice(WORDS) for _ in range(size)],
            texts,
            [
                rng.choice(forms)()
                | {"year": rng.randint(0, 3)}
                | rng.choice(
                    [{}, {}, {"supersedes": [f"d{rng.randrange(size)}"]}, {"valid_to": f"{rng.randint(2000, 2030)}"}]
                )
                for _ in range(size)
            ],
            [set(rng.choices(WORDS[:3], k=rng.randint(0, 2))) for _ in range(size)],
            pairs,
            [rng.choice([0.5, 1.0, 2.0, 0.3]) for _ in pairs],
            [rng.randrange(5) for _ in pairs],
            [rng.choice(guards) for _ in pairs],
        )

    def seen_by(self, caller: frozenset[str]) -> "Drawn":
        """Keep what a caller may see, by the lists alone."""
        kept = [i for i, of in enumerate(self.records) if "principals" not in of or caller & {*of["principals"]}]
        number = {node: place for place, node in enumerate(kept)}
        edges = [
            place
            for place, (pair, names) in enumerate(zip(self.pairs, self.principals, strict=True))
            if {*pair} <= number.keys() and (not names or caller & {*names})
        ]
        parts = {
            name: [getattr(self, name)[i] for i in kept] for name in ("ids", "titles", "texts", "records", "names")
        }
        of_edges = {name: [getattr(self, name)[i] for i in edges] for name in ("weight", "types")}
        pairs = [(number[self.pairs[i][0]], number[self.pairs[i][1]]) for i in edges]
        return Drawn(**parts, **of_edges, pairs=pairs, principals=[()] * len(edges))

    def edges(self, *, guarded: bool) -> tuple[Tensor, Tensor, Tensor]:
        rows = [i for i, names in enumerate(self.principals) if bool(names) == guarded]
        pairs = torch.tensor([self.pairs[i] for i in rows], dtype=torch.int64).reshape(-1, 2)
        weight = torch.tensor([self.weight[i] for i in rows], dtype=torch.float32)
        return pairs, weight, torch.tensor([self.types[i] for i in rows], dtype=torch.int64)


def dataset_of(drawn: Drawn, rule: EdgeRule | None, knn: int) -> Dataset:
    """Make a data set as `Dataset.from_folder` and `with_vectors` do."""
    passages = [f"{title}. {text}" for title, text in zip(drawn.titles, drawn.texts, strict=True)]
    lengths = torch.tensor([len(title) for title in drawn.titles], dtype=torch.int32)
    metadata = Metadata(drawn.records) if drawn.records else None
    made = Passages(drawn.ids, passages, lengths, metadata=metadata)
    names = drawn.names if rule is not None and rule.entity_source is not None else None
    derived = DerivedEdges(drawn.edges(guarded=False), rule or EdgeRule(mention_type=None), names)
    graph = derived.join(made)
    pairs, weight, types = drawn.edges(guarded=True)
    if len(pairs):
        groups = [list(names) for names in drawn.principals if names]
        graph = replace(
            graph, guarded=GuardedEdges(pairs, weight, types, torch.arange(len(pairs)), [*map(json.dumps, groups)])
        )
    graph = graph.with_embedding(ENCODER.encode(passages).reshape(len(passages), 16))
    if graph.is_guarded:  # the words of parts that are compared with are read from their texts
        graph = with_words(graph)
    recipe = None
    if graph.is_guarded and (rule is not None or knn):
        names_of = None if names is None else partial(chosen, names)
        recipe = EdgeRecipe(derived.stated, derived.rule, names_of, knn, None)
    if knn:
        near, similarity = nearest_neighbor_edges(graph.encoded, k=knn)
        graph = graph.with_edges(near, similarity, edge_type=SIMILARITY)
    return Dataset("drawn", graph, [], [], {}, edge_recipe=recipe)


class Degrees:
    """Rank by numbers of neighbours in the corpus, which operators may read."""

    def __init__(self, resources: Resources) -> None:
        graph = resources.graph
        self._degree = graph.num_neighbours + 0.01 * graph.count_neighbours(torch.arange(graph.num_nodes))

    def run(self, state: RetrievalState) -> RetrievalState:
        return state.ranked_by(self._degree[state.nodes])


def pipeline_of(kind: str) -> Pipeline:
    graph = CorpusGraph.from_edges(["x"], ["x"], torch.zeros(0, 2)).with_embedding(torch.ones(1, 16))
    last = Degrees if kind == "degrees" else PageRank
    steps: list[Any] = [partial(VectorSearch, top_k=3, retriever=HybridRetriever), last]
    if kind not in ("degrees", "pagerank"):
        steps = [partial(VectorSearch, retriever=partial(HybridExpandRetriever, top_k=6, base_k=3, num_seeds=2))]
    if kind == "base":
        steps.append(partial(GraphRerank, scorer=partial(CheckpointScorer, checkpoint="base", device="cpu")))
    return Pipeline(graph, steps=steps, budget=6)


def engine_of(dataset: Dataset, pipeline: Pipeline, tmp_path: Path) -> SearchEngine:
    """Serve a data set that never changes."""
    graph = dataset.graph
    if graph.num_nodes and not graph.is_guarded:
        pipeline = pipeline.over(graph)  # a guarded corpus builds one for each view
    corpus = SearchableCorpus(graph, pipeline, MemoryVectorCache(ENCODER), see=dataset.seen_by, has_permissions=True)
    folder = tmp_path / "served"
    folder.mkdir(exist_ok=True)
    return SearchEngine(lambda _: corpus, folder, look_seconds=None)


def shown(answer: Any) -> str:
    """Write an answer, all of it but times."""
    if isinstance(answer, Refusal):
        return repr((answer.status_code, answer.detail))
    return str(
        answer.model_copy(update={"milliseconds": {}} if hasattr(answer, "milliseconds") else {}).model_dump_json()
    )


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(MORE_SEEDS, marks=pytest.mark.slow)], ids=["few", "many"])
def test_answers_are_those_of_a_corpus_of_what_the_caller_may_see(seeds: range, tmp_path: Path) -> None:
    """Over the whole and over the visible part, built from its lists: all of the answer, bit by bit."""
    pipelines = {kind: pipeline_of(kind) for kind in ("base", "pagerank", "expand", "degrees")}
    num_hidden = 0
    for seed in seeds:
        rng = random.Random(seed)
        drawn = Drawn.of(rng, rng.randint(1, 9))
        rule = rng.choice(
            [
                None,
                None,
                EdgeRule(mention_type=REFERENCE),
                EdgeRule(mention_type=None, entity_source="file", max_entity_share=0.5),
                EdgeRule(mention_type=REFERENCE, entity_source="file", makes_choices=True),
            ]
        )
        knn, pipeline = rng.choice([0, 0, 1]), pipelines[rng.choice(["base", "pagerank", "expand", "degrees"])]
        caller = frozenset(rng.sample(NAMES + "d", rng.randint(0, 3)))
        conditions = rng.choice([{}, {}, {"year": {"gte": 1}}, {"principals": "a"}, {"yaer": 1}])
        fields = {"filter": conditions, "return_documents": True, "as_of": rng.choice([None, "2015-01-01"])}
        request = SearchRequest(query=" ".join(rng.choices(WORDS, k=3)), **fields)
        request.sent_by(Caller(caller))
        part = drawn.seen_by(caller)
        num_hidden += len(drawn.ids) - len(part.ids)
        engines = [engine_of(dataset_of(given, rule, knn), pipeline, tmp_path) for given in (drawn, part)]
        answers = [shown(engine.answer({"a": request})["a"]) for engine in engines]
        assert answers[0] == answers[1], seed
    assert num_hidden > 2 * len(seeds)


TIMES = [None, None, "2001-01-01", "2015-01-01", "2024-06-01T12:00:00Z"]
FILTERS: list[dict[str, Any]] = [{}, {}, {"year": {"gte": 1}}, {"year": {"gte": 0}}, {"year": [0, 2]}, {"year": 3}]


def drawn_request(rng: random.Random, query: str) -> SearchRequest:
    fields = {"filter": rng.choice(FILTERS), "as_of": rng.choice(TIMES), "top_n": rng.randint(1, 9)}
    request = SearchRequest(query=query, return_documents=True, **fields)
    request.sent_by(Caller(frozenset(rng.sample(NAMES + "d", rng.randint(0, 3)))))
    return request


@drawn_corpora(6, 20)
def test_a_shared_service_answers_as_a_service_for_each_request(num_corpora: int, tmp_path: Path) -> None:
    """Callers, times and filters share one service and its caches: each answer is that of a fresh service, as bytes."""
    base, num_answers = pipeline_of("base"), 0
    for seed in range(num_corpora):
        rng = random.Random(seed)
        dataset = dataset_of(Drawn.of(rng, rng.randint(4, 9)), EdgeRule(mention_type=REFERENCE), knn=1)
        shared, query = engine_of(dataset, base, tmp_path), " ".join(rng.choices(WORDS, k=3))
        different = set[str]()
        for _ in range(REQUESTS_OF_SHARED):
            request = drawn_request(rng, query)
            alone = shown(engine_of(dataset, base, tmp_path).answer({"a": request})["a"])
            assert shown(shared.answer({"a": request})["a"]) == alone, (seed, request, request.caller)
            different.add(alone)
        num_answers += len(different)
    assert num_answers > 5 * num_corpora  # answers do depend on caller, time and filter


@drawn_corpora(3, 10)
def test_requests_of_one_batch_do_not_change_each_other(num_corpora: int, tmp_path: Path) -> None:
    """Answers of a batch, in which those of one view are ranked together, are those of each alone but for rounding."""
    base = pipeline_of("base")
    for seed in range(num_corpora):
        rng = random.Random(seed)
        dataset = dataset_of(Drawn.of(rng, rng.randint(4, 9)), EdgeRule(mention_type=REFERENCE), knn=1)
        shared, query = engine_of(dataset, base, tmp_path), " ".join(rng.choices(WORDS, k=3))
        jobs = {str(uid): drawn_request(rng, query) for uid in range(REQUESTS_OF_SHARED)}
        for uid, answer in shared.answer(jobs).items():
            alone = engine_of(dataset, base, tmp_path).answer({uid: jobs[uid]})[uid]
            if isinstance(answer, Refusal) or isinstance(alone, Refusal):
                assert shown(answer) == shown(alone)
            else:
                assert answer.ids == alone.ids
                assert answer.scores == pytest.approx(alone.scores, rel=1e-4, abs=1e-5)


def write(folder: Path, drawn: Drawn) -> Path:
    ids = ("_id", "title", "text", "metadata")
    rows = [
        dict(zip(ids, row, strict=True))
        for row in zip(drawn.ids, drawn.titles, drawn.texts, drawn.records, strict=True)
    ]
    write_dataset(folder, corpus=rows, queries=[])
    lines = [["source", "target", "type", "weight", "principals"]]
    for (i, j), weight, kind, names in zip(drawn.pairs, drawn.weight, drawn.types, drawn.principals, strict=True):
        lines.append([drawn.ids[i], drawn.ids[j], EDGE_TYPES[kind], str(weight), "|".join(names)])
    (folder / "edges.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    (folder / "entities.jsonl").write_text(
        "".join(
            json.dumps({"_id": node, "entities": sorted(names)}) + "\n"
            for node, names in zip(drawn.ids, drawn.names, strict=True)
        )
    )
    return folder


SETTINGS: dict[str, dict[str, Any]] = {
    "auto": {"edges": "auto", "adjacency": False, "mentions": True, "entities": "file", "knn": 2},
    "per query": {"entities": "file", "max_entity_share": 0.3, "knn": 0},
    "stated": {"knn": 1, "mentions": True},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("prepares", [False, True])
@pytest.mark.filterwarnings("ignore:.*(repeated edges|without title)")
def test_answers_over_folders(tmp_path: Path, settings: str, prepares: bool) -> None:
    """Data set folders, and corpus folders prepared from them, against a data set folder of the visible part."""
    pipeline, rng = pipeline_of("base"), random.Random(7)
    drawn = Drawn.of(rng, 30)
    drawn = replace(drawn, texts=[f"{text} Metz {i}" for i, text in enumerate(drawn.texts)])
    for caller in (frozenset[str](), frozenset("a"), frozenset("bc")):
        datasets = []
        for place, given in enumerate((drawn, drawn.seen_by(caller))):
            folder = write(tmp_path / f"{place}{len(caller)}", given)
            dataset = Dataset.from_folder(folder, splits={}, keep_derived=True, cache=tmp_path, **SETTINGS[settings])
            if prepares and not place:
                corpus = prepare_corpus(dataset, tmp_path / f"corpus{len(caller)}", encoder=ENCODER, vectors="float32")
                datasets.append(open_corpus(corpus))
            else:
                datasets.append(with_vectors(dataset, ENCODER, tmp_path / "cache"))
        assert datasets[0].graph.num_nodes > datasets[1].graph.num_nodes
        engines = [engine_of(dataset, pipeline, tmp_path) for dataset in datasets]
        for query in ("metz river", "stone harbour of Nero", "walls"):
            request, inspect = (
                SearchRequest(query=query, return_documents=True),
                InspectRequest(query=query, explain=True),
            )
            request.sent_by(Caller(caller))
            inspect.sent_by(Caller(caller))
            one, other = (shown(engine.answer({"a": request})["a"]) for engine in engines)
            assert one == other
            one, other = (shown(InspectEngine(engine).answer({"a": inspect})["a"]) for engine in engines)
            assert one == other


def drawn_for_choices(rng: random.Random) -> Drawn:
    """Draw a corpus over which `edges=auto` decides otherwise than over parts of it: on titles, types and chunks."""
    drawn = Drawn.of(rng, rng.randint(3, 9))
    headline = " ".join(WORDS[:8])  # names nothing
    share = rng.choice([0.0, 0.3, 0.6])
    titles = [headline if rng.random() < share else title for title in drawn.titles]
    with_places = rng.choice([0.7, 0.9, 1.0, 0.0])
    records = [
        record | ({"doc_id": f"p{node // 3}", "chunk_id": node % 3} if rng.random() < with_places else {})
        for node, record in enumerate(drawn.records)
    ]
    kinds = [rng.choice([1, 2, 3, 4, REFERENCE]) if rng.random() < 0.5 else 4 for _ in drawn.types]
    texts = [f"{text} Metz {node}" for node, text in enumerate(drawn.texts)]
    return replace(drawn, titles=titles, records=records, types=kinds, texts=texts)


@drawn_corpora(12, 40)
@pytest.mark.filterwarnings("ignore:.*(repeated edges|without title)")
def test_answers_over_edges_that_are_chosen_automatically(num_corpora: int, tmp_path: Path) -> None:
    """The choices of `edges=auto` are made again for what a caller may see, in data set folders and corpus folders."""
    pipelines = [pipeline_of(kind) for kind in ("base", "pagerank", "expand", "degrees")]
    num_answers = num_other_choices = 0
    for seed in range(num_corpora):
        rng = random.Random(seed)
        drawn, pipeline, prepares = drawn_for_choices(rng), rng.choice(pipelines), seed % 3 == 0
        entities, knn = rng.choice(["file", "auto", "spelling", None]), rng.choice([None, 0, 1])
        settings = {"edges": "auto", "entities": entities, "knn": knn, "mentions": rng.choice([None, None, True])}
        reads = partial(Dataset.from_folder, splits={}, keep_derived=True, cache=tmp_path, language="english")
        whole = reads(write(tmp_path / f"{seed}", drawn), **settings)
        if prepares:
            corpus = prepare_corpus(whole, tmp_path / f"corpus{seed}", encoder=ENCODER, vectors="float32")
            whole = open_corpus(corpus)
        else:
            whole = with_vectors(whole, ENCODER, tmp_path / "cache")
        for caller in (frozenset[str](), frozenset("a"), frozenset("bc"), frozenset(NAMES)):
            part = drawn.seen_by(caller)
            if not part.ids:
                continue
            seen = reads(write(tmp_path / f"{seed} {''.join(sorted(caller))}", part), **settings)
            if whole.edge_recipe is not None and seen.derived is not None:
                num_other_choices += whole.edge_recipe.rule.mention_type != seen.derived.rule.mention_type
            engines = [engine_of(data, pipeline, tmp_path) for data in (whole, with_vectors(seen, ENCODER, tmp_path))]
            for query in ("metz river", "stone harbour of Nero"):
                request = SearchRequest(query=query, return_documents=True, as_of=rng.choice([None, "2015"]))
                request.sent_by(Caller(caller))
                one, other = (shown(engine.answer({"a": request})["a"]) for engine in engines)
                assert one == other, (seed, caller, query)
                num_answers += 1
    assert num_answers > 4 * num_corpora
    assert num_other_choices > num_corpora // 4


def test_global_statistics_are_of_the_whole_corpus_and_show_none_of_it() -> None:
    """Words weigh as in the whole corpus, by the largest score of what is shown, and found edges are those of it."""
    num_changed = 0
    for seed in range(100):
        rng = random.Random(seed)
        drawn = Drawn.of(rng, 9)
        drawn = replace(drawn, records=[record if record.get("principals", "x") else {} for record in drawn.records])
        dataset = dataset_of(drawn, EdgeRule(mention_type=REFERENCE), 1)
        caller = frozenset(rng.sample(NAMES, 1))
        queries = Queries(["q"], [" ".join(rng.choices(WORDS, k=3))])
        ways = {of: dataset.seen_by(caller, statistics=of) for of in ("global", "visible")}
        ways["whole"] = dataset.seen_by(frozenset(NAMES))
        shown = drawn.seen_by(caller).ids
        assert [*ways["global"].node_ids] == shown
        scores, edges = {}, {}
        for of, graph in ways.items():
            ranking = BM25Retriever(graph, top_k=9).retrieve(queries)
            rows = zip(ranking.nodes[0].tolist(), ranking.scores[0].tolist(), strict=True)
            scored = {graph.node_ids[node]: score for node, score in rows if node >= 0}
            scores[of] = torch.tensor([scored[node] for node in shown])
            scores[of] /= scores[of].max().clamp(min=1e-9)
            edges[of] = {(graph.node_ids[i], graph.node_ids[j]) for i, j in graph.typed_edges()[0].tolist()}
        torch.testing.assert_close(scores["global"], scores["whole"])
        assert edges["global"] <= edges["whole"]
        num_changed += not torch.allclose(scores["global"], scores["visible"])
    assert num_changed > 20
