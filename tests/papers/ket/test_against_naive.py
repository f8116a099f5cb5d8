"""Algorithms 2, 3 and 4 of KET-RAG, transcribed over Python's sets, against the index and the retrieval."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from graphrerank.text import WordTokenizer, normalize_entity, split_sentences
from graphrerank_papers.ket.index import KETIndex, KETIndexBuilder, KETSettings
from graphrerank_papers.ket.retrieval import SOLUTIONS, KETRetrieval
from graphrerank_papers.knowledge.keywords import find_keywords
from tests.support.encoders import HashEncoder
from tests.support.extractors import NameExtractor

MakeDocuments = Callable[..., list[str]]
Vector = list[float]


def tokens(text: str) -> int:
    return len(text.split())


def cos(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def arg_max(items: Sequence[Any], k: int, key: Callable[[Any], Any]) -> list[Any]:
    """The k largest by ``key``, ties in the order of ``items``."""
    return sorted(items, key=key, reverse=True)[:k]


def filled(items: Sequence[Any], limit: int, length: Callable[[Any], int]) -> list[Any]:
    """The first items whose lengths together are at most ``limit``."""
    taken: list[Any] = []
    for item in items:
        if sum(map(length, taken)) + length(item) > limit:
            break
        taken.append(item)
    return taken


class Naive:
    """The index of Algorithm 3 as sets."""

    def __init__(
        self, documents: Sequence[str], settings: KETSettings, encoder: Any, extractor: Any, drawn: list[int] | None
    ) -> None:
        self.phi = lambda text: encoder.encode([text])[0].double().tolist()
        words = " ".join(documents).split()
        length = settings.chunk_tokens
        self.T = [" ".join(words[i : i + length]) for i in range(0, len(words), length)]
        n = len(self.T)
        v = [self.phi(t) for t in self.T]
        # lines 2 to 7
        self.E: set[frozenset[int]] = set()
        half = settings.num_neighbours // 2
        for i in range(n):

            def co_occ(j: int, i: int = i) -> int:
                return len(set(find_keywords(self.T[i])) & set(find_keywords(self.T[j])))

            S1 = arg_max([j for j in range(n) if j != i and co_occ(j)], half, co_occ)
            S2 = arg_max([j for j in range(n) if j != i and j not in S1], half, lambda j, i=i: cos(v[i], v[j]))
            self.E |= {frozenset((i, j)) for j in S1 + S2}
        # line 8, Eq. (1) solved
        P = np.zeros((n, n))
        for i in range(n):
            own = [j for j in range(n) if frozenset((i, j)) in self.E]
            P[i, own] = 1 / len(own)
        pi = np.linalg.solve((np.eye(n) - 0.85 * P).T, np.full(n, 0.15 / n))
        count = math.ceil(settings.core_share * n - 1e-9)
        self.core = drawn or sorted(arg_max(range(n), count, lambda i: round(pi[i], 9)))
        # line 10
        pieces = [[(i, t.split())] for i, t in enumerate(self.T)]
        for _ in range(settings.num_splits):
            pieces = [
                [half for i, w in own for half in ((i, w[: (len(w) + 1) // 2]), (i, w[(len(w) + 1) // 2 :])) if half[1]]
                for own in pieces
            ]
        self.parent = [i for own in pieces for i, _ in own]
        self.T_tau = [" ".join(w) for own in pieces for _, w in own]
        self.phi_t = [self.phi(t) for t in self.T_tau]
        # line 9: Algorithm 1, edges rewired to sub-chunks
        self.entities: dict[str, list[str]] = {}
        self.relations: dict[tuple[str, str, str], list[str]] = {}
        self.edges: set[tuple[Any, int]] = set()
        title: dict[Any, str] = {}

        def link(x: Any, names: Sequence[str], i: int) -> None:
            own = [s for s in range(len(self.T_tau)) if self.parent[s] == i]
            held = {s: sum(f" {name} " in f" {normalize_entity(self.T_tau[s])} " for name in names) for s in own}
            self.edges |= {(x, s) for s in own if held[s] == max(held.values())}

        for i, knowledge in zip(self.core, extractor.extract([self.T[i] for i in self.core]), strict=True):
            for entity in knowledge.entities:
                name = normalize_entity(entity.name)
                title.setdefault(name, f"{entity.name} ({entity.type})")
                self.entities.setdefault(name, [])
                if entity.description not in self.entities[name]:
                    self.entities[name].append(entity.description)
                link(name, [name], i)
            for relation in knowledge.relations:
                key = (normalize_entity(relation.head), relation.relation, normalize_entity(relation.tail))
                title.setdefault(key, f"{relation.head} | {relation.relation} | {relation.tail}")
                self.relations.setdefault(key, [])
                if relation.description not in self.relations[key]:
                    self.relations[key].append(relation.description)
                link(key, [key[0], key[2]], i)
        self.text: dict[Any, str] = {}
        for x, described in [*self.entities.items(), *self.relations.items()]:
            kept = filled(described, settings.description_tokens, tokens) or [" ".join(described[0].split()[:9])]
            self.text[x] = f"{title[x]}: {' '.join(kept)}"
        self.phi_e = {name: self.phi(self.text[name]) for name in self.entities}
        # lines 11 to 15
        sentences = [(s, t[a:b]) for s, t in enumerate(self.T_tau) for a, b in split_sentences(t)]
        self.E_k = {(x, s) for s, sentence in sentences for x in find_keywords(sentence)}
        self.W = list(dict.fromkeys(x for _, sentence in sentences for x in find_keywords(sentence)))
        self.phi_k = {}
        for x in self.W:
            holding = [self.phi(sentence) for _, sentence in sentences if x in find_keywords(sentence)]
            self.phi_k[x] = [sum(column) / len(holding) for column in zip(*holding, strict=True)]

    def kg_retrieval(self, q: Vector, limit: int) -> tuple[list[str], list[Any], list[int]]:
        """Algorithm 2."""
        S_e = sorted(self.entities, key=lambda v: math.dist(self.phi_e[v], q))[:10]
        S_e = filled(S_e, limit // 2, lambda v: tokens(self.text[v]))
        rank = {v: i for i, v in enumerate(S_e)}

        def ends(e: Any) -> list[str]:
            return [v for v in (e[0], e[2]) if v in rank]

        S_r = [e for e in self.relations if ends(e)]
        S_r = arg_max(S_r, len(S_r), lambda e: (len(ends(e)), -min(rank[v] for v in ends(e))))
        S_r = filled(S_r, limit // 2 - sum(tokens(self.text[v]) for v in S_e), lambda e: tokens(self.text[e]))

        def adj(s: int) -> int:
            return sum((x, s) in self.edges for x in [*S_e, *S_r])

        S_t = [s for s in range(len(self.T_tau)) if adj(s)]
        S_t = arg_max(S_t, len(S_t), lambda s: (adj(s), cos(self.phi_t[s], q)))
        return S_e, S_r, filled(S_t, limit // 2, lambda s: tokens(self.T_tau[s]))

    def keyword_retrieval(self, q: Vector, limit: int) -> list[int]:
        """Algorithm 4, lines 2 to 4."""
        candidates: set[int] = set()
        for x in arg_max(self.W, len(self.W), lambda x: round(cos(self.phi_k[x], q), 6)):
            if sum(tokens(self.T_tau[s]) for s in candidates) >= 2 * limit:
                break
            candidates |= {s for s in range(len(self.T_tau)) if (x, s) in self.E_k}
        S = arg_max(sorted(candidates), len(candidates), lambda s: cos(self.phi_t[s], q))
        return filled(S, limit, lambda s: tokens(self.T_tau[s]))

    def text_retrieval(self, q: Vector, limit: int, *, with_neighbours: bool) -> list[int]:
        S: list[int] = []
        for seed in arg_max(range(len(self.T)), len(self.T), lambda i: cos(self.phi_t[i], q)):
            around = [j for j in range(len(self.T)) if frozenset((seed, j)) in self.E and with_neighbours]
            S += [i for i in [seed, *arg_max(around, len(around), lambda j: cos(self.phi_t[j], q))] if i not in S]
        return filled(S, limit, lambda i: tokens(self.T[i]))


Setup = Callable[[str, KETSettings], tuple[Naive, KETIndex]]
SETTINGS = {
    "12 chunks": KETSettings(chunk_tokens=24, num_splits=2, core_share=0.5, description_tokens=9),
    "12 chunks, K 4, not halved": KETSettings(chunk_tokens=24, num_splits=0, num_neighbours=4, description_tokens=9),
    "29 short chunks": KETSettings(chunk_tokens=10, num_splits=1, core_share=0.7, description_tokens=40),
}


@pytest.fixture(scope="module")
def setup(make_documents: MakeDocuments, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    """Build the index and its transcription once for all lengths of a context."""
    encoder, extractor = HashEncoder(), NameExtractor()

    @cache
    def make(solution: str, settings: KETSettings) -> tuple[Naive, KETIndex]:
        documents, folder = make_documents(12), tmp_path_factory.mktemp("ket")
        settings = SOLUTIONS[solution].settings(settings)
        builder = KETIndexBuilder(folder, tokenizer=WordTokenizer(), encoder=encoder, extractor=extractor)
        index = builder.build(documents, settings)
        drawn = index.core.tolist() if settings.core_selection == "random" else None
        return Naive(documents, settings, encoder, extractor, drawn), index

    return make


@pytest.mark.parametrize("name", SETTINGS)
def test_algorithm_3(name: str, setup: Setup) -> None:
    naive, index = setup("ket_p", SETTINGS[name])
    assert index.skeleton is not None
    assert index.keyword_graph is not None
    assert [" ".join(text.split()) for text in index.chunks.texts] == naive.T
    assert {frozenset(edge) for edge in index.chunk_graph.edges.tolist()} == naive.E
    assert index.core.tolist() == naive.core
    assert [" ".join(text.split()) for text in index.sub_chunks.texts] == naive.T_tau
    assert index.sub_chunks.parent.tolist() == naive.parent
    assert list(index.skeleton.knowledge.names) == list(naive.entities)
    texts = [*index.skeleton.knowledge.entity_texts, *index.skeleton.knowledge.relation_texts]
    assert texts == [naive.text[x] for x in [*naive.entities, *naive.relations]]
    things = list(naive.entities) + list(naive.relations)
    links = [*index.skeleton.knowledge.entity_links.tolist()]
    links += [
        [relation + len(naive.entities), part] for relation, part in index.skeleton.knowledge.relation_links.tolist()
    ]
    assert {(things[thing], part) for thing, part in links} == naive.edges
    graph = index.keyword_graph
    assert list(graph.keywords) == naive.W
    held = {
        (word, part)
        for word, row in zip(graph.keywords, graph.row.tolist(), strict=True)
        for part in graph.indices[graph.indptr[row] : graph.indptr[row + 1]].tolist()
    }
    assert held == naive.E_k
    assert graph.indptr.diff()[graph.row].sum() == len(naive.E_k)
    assert len(graph.vectors) < len(naive.W)  # some words stand in the same sentences
    means = torch.tensor([naive.phi_k[word] for word in graph.keywords], dtype=torch.float64)
    torch.testing.assert_close(
        graph.vectors[graph.row].double(), torch.nn.functional.normalize(means, dim=1), atol=1e-5, rtol=0
    )


def queries(count: int) -> Tensor:
    vectors = torch.randn(count, 6, generator=torch.Generator().manual_seed(9))
    return torch.nn.functional.normalize(vectors, dim=1)


def listed(numbers: Tensor) -> list[int]:
    return [number for number in numbers.tolist() if number >= 0]


@pytest.mark.parametrize("context_tokens", [20, 90, 300, 10_000])
@pytest.mark.parametrize("solution", SOLUTIONS)
@pytest.mark.parametrize("name", SETTINGS)
def test_algorithms_2_and_4(
    name: str, solution: str, context_tokens: int, setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphrerank_papers.ket.retrieval.FIRST_SEEDS", 2)
    monkeypatch.setattr("graphrerank_papers.ket.retrieval.MARGIN", 1)
    naive, index = setup(solution, SETTINGS[name])
    retrieval = KETRetrieval(index, solution=solution, context_tokens=context_tokens, graph_share=0.6)
    found = retrieval(queries(7))
    for row, q in enumerate(queries(7).double().tolist()):
        share = {"kg_rag": 1.0, "skeleton_rag": 1.0, "hybrid_rag": 0.6, "ket_u": 0.6, "ket_p": 0.6}.get(solution, 0.0)
        limit = math.floor(share * context_tokens + 1e-6)
        expected: dict[str, list[int]] = {}
        lines = []
        if share:
            S_e, S_r, S_t = naive.kg_retrieval(q, limit)
            expected["entities"] = [list(naive.entities).index(v) for v in S_e]
            expected["relations"] = [list(naive.relations).index(e) for e in S_r]
            expected["graph"] = S_t
            lines += [naive.text[x] for x in [*S_e, *S_r]] + [naive.T_tau[s] for s in S_t]
        if solution in ("keyword_rag", "ket_u", "ket_p"):
            expected["keyword"] = naive.keyword_retrieval(q, context_tokens - limit)
            lines += [naive.T_tau[s] for s in expected["keyword"]]
        if solution in ("text_rag", "hybrid_rag"):
            expected["text"] = naive.text_retrieval(q, context_tokens - limit, with_neighbours=False)
            lines += [naive.T[i] for i in expected["text"]]
        if solution == "knng_rag":
            expected["neighbours"] = naive.text_retrieval(q, context_tokens, with_neighbours=True)
            lines += [naive.T[i] for i in expected["neighbours"]]
        assert found.parts[row] == expected
        assert found.texts[row].split() == " ".join(lines).split()
        assert found.num_tokens[row] == sum(map(tokens, lines)) <= context_tokens
        chunks = {s for key in ("graph", "keyword", "text", "neighbours") for s in expected.get(key, [])}
        best = sorted(chunks, key=lambda s: (-round(cos(naive.phi_t[s], q), 5), s))
        assert listed(found.ranking.nodes[row]) == best
