"""Training and evaluation, the pipeline's reranking step and GraphReranker give a model the same tensors.

The same queries, candidates, edges, entities, texts, vectors and scores reach a model in three ways: from a prepared
data set, from a ranking of a corpus graph, and from plain lists. Small corpora are drawn at random. Their tensors are
compared bit by bit between the three ways, and with a naive transcription of what they mean.
"""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank import GraphReranker, RerankInput
from graphrerank.core import CandidateGraphs, ModelInputs, Queries, Ranking
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.corpus.edge_types import EDGE_TYPES, ENTITY, OTHER
from graphrerank.data.candidates import PreparedDataset, with_cross_encoder
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.features.text_match import MATCH_FEATURES, WORD_FEATURES
from graphrerank.models.checkpoint import save_weights
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.granker import GRankerHead
from graphrerank.models.manifest import write_manifest
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer
from tests.support.encoders import HashPairEncoder
from tests.support.manifests import make_manifest

DIM = 16
NUM_QUERIES = 3
READ = 4  # candidates per query that the cross-encoder scores
WORDS = ("rome", "oslo", "metz", "worm", "usb", "drive", "film", "actor", "born", "river", "tram", "stop", "city")
SCORES = ("base_score", "bm25_score", "dense_score")
MATCH = (*SCORES, *MATCH_FEATURES)
MODES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {  # the model's scores and settings
    "scores": (SCORES, {}),
    "scores_in_another_order": (("base_score", "dense_score", "hops"), {}),
    "scores_match": (MATCH, {}),
    "typed": ((*MATCH, *WORD_FEATURES), {"num_edge_types": len(EDGE_TYPES), "num_words": 24}),
    "cross_encoder": (
        (*MATCH, *CROSS_ENCODER_FEATURES, *WORD_FEATURES),
        {"num_edge_types": len(EDGE_TYPES), "num_words": 24, "num_pair_scores": 3},
    ),
    "paper": (SCORES, {"features": "paper"}),
    "full": (SCORES, {"features": "full", "num_edge_types": len(EDGE_TYPES)}),
}
SEEDS = range(7)  # seed 0 draws a single passage, 3 no edges


class FixedEncoder:
    """The encoder of the drawn vectors, by its name and fingerprint alone."""

    name, fingerprint = "drawn", "e" * 64

    def encode(self, texts: Any) -> Tensor:
        raise AssertionError(texts)


@dataclass
class Drawn:
    """A small corpus with queries, and the candidates of each query with the retriever's scores."""

    texts: list[str]
    edges: list[tuple[int, int, float, int]]  # two passages, weight and type; undirected
    entities: list[list[str]]
    vectors: Tensor  # [N, DIM]
    queries: Queries
    nodes: list[list[int]]  # candidates of each query
    scores: Tensor  # [B, K, 3], padded with 0

    @property
    def graph(self) -> CorpusGraph:
        pairs = torch.tensor([edge[:2] for edge in self.edges], dtype=torch.int64).reshape(-1, 2)
        weight = torch.tensor([edge[2] for edge in self.edges])
        types = torch.tensor([edge[3] for edge in self.edges], dtype=torch.int64)
        ids = [f"p{number}" for number in range(len(self.texts))]
        graph = CorpusGraph.from_edges(ids, self.texts, pairs, weight, edge_type=types)
        return graph.with_embedding(self.vectors).with_entities(EntityIncidence.from_names(self.entities))

    @property
    def prepared(self) -> PreparedDataset:
        width = max(map(len, self.nodes))
        nodes = torch.tensor([row + [-1] * (width - len(row)) for row in self.nodes])
        number = torch.arange(NUM_QUERIES)
        dataset = Dataset(
            "drawn",
            self.graph,
            self.queries.ids,
            self.queries.texts,
            {"test": Qrels(number, torch.zeros_like(number), torch.ones(NUM_QUERIES))},
        )
        scores = self.scores[..., 0].masked_fill(nodes < 0, -torch.inf)
        ranking = Ranking(nodes, scores, self.scores)
        return PreparedDataset(dataset, self.queries.vectors, ranking, SCORES, "drawn", "e" * 64)

    def lists(self, *, logits: Tensor | None, given: tuple[str, ...]) -> list[RerankInput]:
        """The queries as a caller of GraphReranker has them; ``logits [B, K]`` are a cross-encoder's, NaN if unread."""
        found = []
        for row, nodes in enumerate(self.nodes):
            place = {node: index for index, node in enumerate(nodes)}
            edges = [
                (place[first], place[second], weight, EDGE_TYPES[edge_type])
                for first, second, weight, edge_type in self.edges
                if first in place and second in place
            ]
            columns = dict(zip(SCORES, self.scores[row, : len(nodes)].T, strict=True))
            found.append(
                RerankInput(
                    self.queries.texts[row],
                    [self.texts[node] for node in nodes],
                    scores=columns["base_score"],
                    features={name: columns[name] for name in SCORES[1:] if name in given},
                    edges=edges,
                    entities=[self.entities[node] for node in nodes],
                    query_vector=self.queries.encoded[row],
                    vectors=self.vectors[nodes],
                    cross_encoder_scores=None if logits is None else logits[row, : len(nodes)],
                    language="english",
                )
            )
        return found


def draw(seed: int, *, subsets: bool = False, shuffled: bool = False) -> Drawn:
    """Draw a corpus whose passages are each query's candidates in their order, or ``subsets``, or ``shuffled``."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(high: int, *size: int) -> list[Any]:
        return torch.randint(high, size, generator=generator).tolist()

    count = 1 if seed == 0 else 2 + numbers(8, 1)[0]
    texts = [
        ". ".join(" ".join(WORDS[word] for word in sentence) for sentence in numbers(len(WORDS), 1 + number % 3, 3))
        for number in range(count)
    ]
    edges, known = [], set()
    for first, second, weight, edge_type in zip(
        *numbers(count, 2, 2 * count), numbers(16, 2 * count), numbers(len(EDGE_TYPES), 2 * count), strict=True
    ):
        pair = (min(first, second), max(first, second), edge_type)
        if first != second and edge_type != ENTITY and pair not in known:
            known.add(pair)
            edges.append((first, second, (1 + weight) / 8, edge_type))
    if seed % 4 == 3:
        edges = []
    entities = [[WORDS[word] for word in numbers(5, seed % 3)] for _ in range(count)]
    signs = torch.randint(2, (count + NUM_QUERIES, DIM), generator=generator) * 2.0 - 1
    vectors = signs / math.sqrt(DIM)  # their length is 1 without rounding
    query_texts = [" ".join(WORDS[word] for word in row) for row in numbers(len(WORDS), NUM_QUERIES, 5)]
    queries = Queries([f"q{row}" for row in range(NUM_QUERIES)], query_texts, vectors[count:])
    nodes = [list(range(count)) for _ in range(NUM_QUERIES)]
    if shuffled:
        nodes = [torch.randperm(count, generator=generator).tolist() for _ in range(NUM_QUERIES)]
    if subsets:
        sizes = [1 + number % count for number in numbers(100, NUM_QUERIES)]
        nodes = [sorted(row[:size]) if not shuffled else row[:size] for row, size in zip(nodes, sizes, strict=True)]
    width = max(map(len, nodes))
    scores = torch.rand(NUM_QUERIES, width, 3, generator=generator)
    scores = scores * (torch.arange(width) < torch.tensor([[len(row)] for row in nodes])).unsqueeze(-1)
    return Drawn(texts, edges, entities, vectors[:count], queries, nodes, scores)


@pytest.fixture(scope="module", params=list(MODES))
def mode(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A mode of features and the checkpoint of an untrained model of it."""
    names, settings = MODES[request.param]
    arguments = {"features": "scores", "num_scores": len(names), "embedding_dim": DIM, "hidden_channels": 8, "heads": 2}
    arguments |= settings
    folder = tmp_path_factory.mktemp(request.param)
    save_weights(folder, GATv2Reranker(**arguments))
    described = {
        "retriever": {"feature_names": list(names)},
        "encoder": {"name": "drawn", "fingerprint": "e" * 64, "dim": DIM},
    }
    write_manifest(folder, make_manifest("gatv2_reranker", arguments, **described))
    return request.param, folder


def from_data(drawn: Drawn, names: tuple[str, ...], inputs: ModelInputs) -> tuple[PreparedDataset, CandidateGraphs]:
    """What training and evaluation give, and the data set before the model's scores were picked."""
    prepared, number = drawn.prepared, torch.arange(NUM_QUERIES)
    if CROSS_ENCODER_FEATURES[0] in names:
        prepared = with_cross_encoder(prepared, HashPairEncoder(), number, top_k=READ)
    return prepared, prepared.with_features(names).graphs(number, inputs=inputs)


def from_ranking(drawn: Drawn, folder: Path, prepared: PreparedDataset) -> CandidateGraphs:
    """What the step of a pipeline gives."""
    encoder: Any = FixedEncoder()
    scorer = CheckpointScorer(drawn.graph, checkpoint=folder, text_encoder=encoder, device="cpu")
    return scorer.candidate_graphs(drawn.queries, prepared.ranking, prepared.feature_names)


def from_lists(drawn: Drawn, folder: Path, names: tuple[str, ...]) -> CandidateGraphs:
    """What GraphReranker gives."""
    logits = None
    if CROSS_ENCODER_FEATURES[0] in names:
        encoder = HashPairEncoder()
        logits = torch.full(drawn.scores.shape[:2], torch.nan)
        for row, nodes in enumerate(drawn.nodes):
            texts = [drawn.texts[node] for node in nodes[:READ]]
            logits[row, : len(texts)] = encoder.head(encoder.encode([drawn.queries.texts[row]] * len(texts), texts))
    return GraphReranker.from_pretrained(folder).candidate_graphs(drawn.lists(logits=logits, given=names))


def tensors(graphs: CandidateGraphs, inputs: ModelInputs) -> dict[str, Tensor]:
    """The arguments of the model, and the boundaries of the queries."""
    return {**dict(zip(inputs.names, graphs.model_inputs(inputs), strict=True)), "ptr": graphs.ptr}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


def all_ways(
    drawn: Drawn, mode: tuple[str, Path]
) -> tuple[ModelInputs, CandidateGraphs, CandidateGraphs, CandidateGraphs]:
    names, folder = MODES[mode[0]][0], mode[1]
    inputs = GraphReranker.from_pretrained(folder).inputs
    prepared, data = from_data(drawn, names, inputs)
    return inputs, data, from_ranking(drawn, folder, prepared), from_lists(drawn, folder, names)


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_tensors_where_the_corpus_is_the_candidates(mode: tuple[str, Path], seed: int) -> None:
    inputs, data, ranking, lists = all_ways(draw(seed), mode)
    assert_equal(tensors(ranking, inputs), tensors(data, inputs))
    assert_equal(tensors(lists, inputs), tensors(data, inputs))


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_tensors_of_subsets_of_the_corpus(mode: tuple[str, Path], seed: int) -> None:
    """Lists alone know nothing of the rest of a corpus, by which words are weighted; all else is equal."""
    drawn = draw(seed, subsets=True, shuffled=seed % 2 == 0)
    inputs, data, ranking, lists = all_ways(drawn, mode)
    assert_equal(tensors(ranking, inputs), tensors(data, inputs))
    expected, found = tensors(in_order(data), inputs), tensors(in_order(lists), inputs)
    from_words = torch.tensor([name in (*MATCH_FEATURES, *WORD_FEATURES) for name in MODES[mode[0]][0]])
    for each in (expected, found):
        each["base_features"] = each["base_features"][:, ~from_words]
    assert_equal(found, expected)


def in_order(graphs: CandidateGraphs) -> CandidateGraphs:
    """Sort edges by target, source's place and type, whatever the numbers of the passages."""
    source, target = graphs.edge_index
    edge_type = torch.zeros_like(source) if graphs.edge_type is None else graphs.edge_type
    return graphs.select_edges(torch.argsort((target * graphs.num_nodes + source) * len(EDGE_TYPES) + edge_type))


@pytest.mark.parametrize("seed", SEEDS)
def test_against_a_naive_transcription(mode: tuple[str, Path], seed: int) -> None:
    drawn = draw(seed, subsets=True, shuffled=seed % 2 == 0)
    names, settings = MODES[mode[0]]
    inputs, data, _, _ = all_ways(drawn, mode)
    sizes = [len(row) for row in drawn.nodes]
    assert data.ptr.tolist() == [sum(sizes[:row]) for row in range(NUM_QUERIES + 1)]
    typed = "num_edge_types" in settings
    source, target = data.edge_index.tolist()
    edge_type = [OTHER] * len(source) if data.edge_type is None else data.edge_type.tolist()
    found = dict(zip(zip(source, target, edge_type, strict=True), data.edge_attr.tolist(), strict=True))
    assert len(found) == len(source)
    assert found == naive_edges(drawn, typed=typed)
    keys = [
        (t, [n for row in drawn.nodes for n in row][s], k) for s, t, k in zip(source, target, edge_type, strict=True)
    ]
    assert keys == sorted(keys)
    expected = torch.tensor([row for query in range(NUM_QUERIES) for row in naive_columns(drawn, query, names)])
    torch.testing.assert_close(data.x, expected, rtol=0, atol=1e-6)
    is_given = torch.tensor([name in SCORES for name in names])
    assert torch.equal(data.x[:, is_given], expected[:, is_given])
    if inputs.reads_vectors:
        assert torch.equal(data.inputs["query_vectors"], drawn.queries.encoded)
        assert torch.equal(data.inputs["node_vectors"], torch.cat([drawn.vectors[row] for row in drawn.nodes]))
    else:
        assert data.inputs == {}


def naive_edges(drawn: Drawn, *, typed: bool) -> dict[tuple[int, int, int], float]:
    """Weight of each edge (source, target, type): the largest of its type, or of all types, of which one is noted."""
    weights: dict[tuple[int, int, int], float] = {}

    def add(source: int, target: int, edge_type: int, weight: float) -> None:
        key = (source, target, edge_type if typed else OTHER)
        weights[key] = max(weight, weights.get(key, 0.0))

    start = 0
    for nodes in drawn.nodes:
        place = {node: start + index for index, node in enumerate(nodes)}
        for first, second, weight, edge_type in drawn.edges:
            if first in place and second in place:
                add(place[first], place[second], edge_type, weight)
                add(place[second], place[first], edge_type, weight)
        for first in nodes:
            for second in nodes:
                shared = set(drawn.entities[first]) & set(drawn.entities[second])
                if shared and first != second:
                    weight = torch.tensor(len(shared)) / torch.tensor(len(set(drawn.entities[first])))
                    add(place[first], place[second], ENTITY, weight.item())
        start += len(nodes)
    return weights


def naive_columns(drawn: Drawn, query: int, names: tuple[str, ...]) -> list[list[float]]:
    """The scores of a query's candidates, by hand."""
    nodes, text = drawn.nodes[query], drawn.queries.texts[query]
    held = [set(re.findall(r"\w+", text)) for text in drawn.texts]
    asked = list(dict.fromkeys(text.split()))
    num_holding = {word: sum(word in each for each in held) for word in WORDS}

    def weight(word: str) -> float:
        return math.log(1 + (len(held) - num_holding[word] + 0.5) / (num_holding[word] + 0.5))

    total = sum(map(weight, asked))
    known = [word for word in asked if num_holding[word]]
    rarest = sorted(known, key=weight, reverse=True)  # stable: ties in the query's order
    around = {node: set(held[node]) for node in nodes}
    for first in nodes:
        for second in nodes:
            shares = set(drawn.entities[first]) & set(drawn.entities[second])
            if shares or any({first, second} == set(edge[:2]) for edge in drawn.edges):
                around[first] |= held[second]
    encoder = HashPairEncoder()
    read = nodes[:READ]
    logits = encoder.head(encoder.encode([text] * len(read), [drawn.texts[node] for node in read])).tolist()
    rows = []
    for index, node in enumerate(nodes):
        lead = set(drawn.texts[node].split(".")[0].split())
        columns = dict(zip(SCORES, drawn.scores[query, index].tolist(), strict=True)) | {
            "query_coverage": sum(weight(word) for word in asked if word in held[node]) / total,
            "title_coverage": sum(weight(word) for word in known if word in lead) / sum(map(weight, lead)),
            "neighbourhood_coverage": sum(weight(word) for word in asked if word in around[node]) / total,
        }
        for number, name in enumerate(WORD_FEATURES):
            is_held = number < len(rarest) and rarest[number] in held[node]
            columns[name] = weight(rarest[number]) / total if is_held else 0.0
        spread, is_read = max(logits) - min(logits), index < len(read)
        own = logits[index] if is_read else 0.0
        rank = sum(logit > own for logit in logits) + (logits.count(own) + 1) / 2  # the mean rank of ties
        columns["cross_encoder_score"] = (logits[index] - min(logits)) / spread if is_read and spread else 0.0
        columns["cross_encoder_reciprocal_rank"] = 1 / rank if is_read else 0.0
        columns["cross_encoder_unread"] = float(not is_read)
        rows.append([columns.get(name, 0.0) for name in names])
    return rows


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_tensors_of_a_head_that_reads_pairs(tmp_path: Path, seed: int) -> None:
    drawn, encoder = draw(seed), HashPairEncoder(fingerprint="p" * 64)
    drawn.entities = [[] for _ in drawn.texts]  # by which the neighbours in a corpus are counted once for each entity
    model = GRankerHead(hidden_size=encoder.hidden_size)
    save_weights(tmp_path, model)
    described = {
        "pair_encoder": {"fingerprint": "p" * 64, "dim": encoder.hidden_size},
        "retriever": {"choice": "bm25", "feature_names": ["base_score"]},
    }
    write_manifest(tmp_path, make_manifest("granker_head", {"hidden_size": encoder.hidden_size}, **described))
    reranker = GraphReranker.from_pretrained(tmp_path, pair_encoder=encoder)
    read: list[tuple[Tensor, ...]] = []
    reranker.checkpoint.model.register_forward_pre_hook(lambda _, arguments: read.append(arguments))
    reranker.rerank_batch(drawn.lists(logits=None, given=()))
    prepared = replace(drawn.prepared, pair_encoder=encoder)
    graphs = prepared.graphs(torch.arange(NUM_QUERIES), inputs=reranker.inputs)
    assert_equal(
        dict(zip(reranker.inputs.names, read[0], strict=True)) | {"ptr": graphs.ptr}, tensors(graphs, reranker.inputs)
    )
    texts = [drawn.texts[node] for nodes in drawn.nodes for node in nodes]
    queries = [text for text, nodes in zip(drawn.queries.texts, drawn.nodes, strict=True) for _ in nodes]
    assert torch.equal(graphs.inputs["pair_vectors"], encoder.encode(queries, texts))
    neighbours = [
        {b if a == node else a for a, b, *_ in drawn.edges if node in (a, b)} for node in range(len(drawn.texts))
    ]
    assert graphs.inputs["degree"].tolist() == [len(neighbours[node]) for nodes in drawn.nodes for node in nodes]
