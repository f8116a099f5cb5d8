"""KET-RAG's retrieval: channels that fill a context, the solutions that combine them, and the pipeline's step."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from graphrerank.checks import UserError, check_choice, check_counts, check_share
from graphrerank.graphs import Ranking
from graphrerank.graphs.sparse_rows import pad_rows, row_entries
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank.text import Tokenizer
from graphrerank_papers.indexing import with_documents
from graphrerank_papers.ket.chunks import Chunks
from graphrerank_papers.ket.index import KETIndex, KETIndexBuilder, KETSettings, KeywordGraph, Skeleton

CHANNELS = ("graph", "keyword", "text", "neighbours")
MARGIN = 16  # further nodes taken from a matrix product, which may round equal vectors differently
FIRST_SEEDS = 128  # keyword rows considered at first; doubled until they suffice


@dataclass(frozen=True)
class Solution:
    """One of the eight solutions of KET-RAG, section 6.1."""

    core: str  # chunks whose knowledge is extracted: `all`, `none`, or a share chosen by `pagerank` or at `random`
    # channels that share the context's tokens. If the first is `graph` and not the only one, its share is
    # `graph_share`
    channels: tuple[str, ...]
    graph_share: float = 0.4  # of the first channel, where the retrieval's settings name none

    @property
    def splits_chunks(self) -> bool:
        """Whether chunks are halved, which only the keyword channel needs."""
        return "keyword" in self.channels

    def settings(self, settings: KETSettings) -> KETSettings:
        """Return the settings of the solution's index."""
        return replace(
            settings,
            core_share={"none": 0.0, "all": 1.0}.get(self.core, settings.core_share),
            core_selection="random" if self.core == "random" else "pagerank",
            num_splits=settings.num_splits if self.splits_chunks else 0,
            has_keywords=self.splits_chunks,
        )


SOLUTIONS: Mapping[str, Solution] = {
    "text_rag": Solution("none", ("text",)),
    "knng_rag": Solution("none", ("neighbours",)),
    "kg_rag": Solution("all", ("graph",)),
    "hybrid_rag": Solution("all", ("graph", "text"), graph_share=0.5),
    "keyword_rag": Solution("none", ("keyword",)),
    "skeleton_rag": Solution("pagerank", ("graph",)),
    "ket_u": Solution("random", ("graph", "keyword")),
    "ket_p": Solution("pagerank", ("graph", "keyword")),
}


def find_solution(name: str) -> Solution:
    """Return a solution by name."""
    check_choice(SOLUTIONS, solution=name)
    return SOLUTIONS[name]


@dataclass(frozen=True)
class Contexts:
    """Contexts that a solution retrieved for ``B`` queries."""

    ranking: Ranking  # `[B, C]` unique sub-chunks of each context, by their cosine with the query
    passages: Sequence[tuple[str, ...]]  # `B` contexts: texts of entities, relations and chunks
    num_tokens: Tensor  # `[B]` int64, sum of the lengths of these texts
    # indices of these texts by kind, in order, `[B, n]` int64 padded with -1: `entities`, `relations` and `graph`
    # (their chunks), `keyword`, `text` and `neighbours`, as far as the solution has them
    parts: Mapping[str, Tensor]

    @property
    def texts(self) -> list[str]:
        """The contexts as text, each passage followed by a line end."""
        return ["".join(f"{passage}\n" for passage in row) for row in self.passages]


class KETRetrieval:
    r"""Retrieve contexts of at most ``context_tokens`` from an index, for many queries at once.

    Source: KET-RAG, Algorithms 2 and 4, and section 6.1 for the other solutions. *Where we differ:* the paper takes
    texts until a number of tokens is reached, we take whole texts as long as they fit. A chunk found by two channels
    occurs twice in the context, as in Algorithm 4, line 5.

    Args:
        index: Index built with the solution's settings, else a ValueError.
        solution: A name of ``SOLUTIONS``.
        context_tokens: :math:`\lambda`.
        graph_share: :math:`\theta` in [0, 1], the first channel's share of the tokens where there are two; None for the
            solution's: 0.4 in KET-RAG, half in Hybrid-RAG.
        num_seeds: Number of seed entities.
    """

    def __init__(
        self,
        index: KETIndex,
        *,
        solution: str = "ket_p",
        context_tokens: int = 12_000,
        graph_share: float | None = None,
        num_seeds: int = 10,
        device: str | torch.device = "cpu",
    ) -> None:
        chosen = find_solution(solution)
        check_counts(context_tokens=context_tokens)
        share = chosen.graph_share if graph_share is None else graph_share
        check_share(graph_share=share)
        if (needed := chosen.settings(index.settings)) != index.settings:
            raise UserError(f"`index` must be built with {needed} for {solution}, got {index.settings}")
        first = context_tokens if len(chosen.channels) == 1 else math.floor(share * context_tokens + 1e-6)
        self.limits = dict(zip(chosen.channels, (first, context_tokens - first), strict=False))
        skeleton, vectors = index.skeleton, _unit(index.sub_chunks.vectors).to(device)
        self._chunks = replace(index.sub_chunks, vectors=vectors, num_tokens=index.sub_chunks.num_tokens.to(device))
        self._texts: dict[str, Sequence[str]] = dict.fromkeys(CHANNELS, index.sub_chunks.texts)
        self._lengths = dict.fromkeys(CHANNELS, index.sub_chunks.num_tokens)
        self._channels: dict[str, GraphChannel | KeywordChannel | TextChannel] = {}
        for channel in chosen.channels:
            if channel == "graph":
                if skeleton is None:
                    continue  # `core_share` is 0: the skeleton's share of the context stays empty
                self._channels[channel] = GraphChannel(skeleton, self._chunks, num_seeds=num_seeds)
                knowledge = skeleton.knowledge
                self._texts |= {"entities": knowledge.entity_texts, "relations": knowledge.relation_texts}
                self._lengths |= {"entities": skeleton.entity_tokens, "relations": skeleton.relation_tokens}
            elif channel == "keyword":
                assert index.keyword_graph is not None
                self._channels[channel] = KeywordChannel(index.keyword_graph, self._chunks)
            else:
                edges = index.chunk_graph.edges if channel == "neighbours" else torch.zeros(0, 2, dtype=torch.int64)
                self._channels[channel] = TextChannel(self._chunks, edges)

    @torch.no_grad()
    def __call__(self, queries: Tensor) -> Contexts:
        """Retrieve for ``B`` queries, ``[B, d]`` vectors of the index's encoder."""
        vectors = self._chunks.vectors
        if queries.dim() != 2 or (queries.shape[1] != vectors.shape[1] and len(vectors)):
            raise UserError(f"`queries` must be [B, {vectors.shape[1]}], got {list(queries.shape)}")
        queries = queries.to(vectors)
        pairs: dict[str, Tensor] = {}  # (query, index of a text) by kind
        for name, channel in self._channels.items():
            if isinstance(channel, GraphChannel):
                pairs["entities"], pairs["relations"], pairs[name] = channel.select(queries, self.limits[name])
            else:
                pairs[name] = channel.select(queries, self.limits[name])
        parts = {kind: pad_rows(rows[:, 0], rows[:, 1], len(queries), fill=-1) for kind, rows in pairs.items()}
        passages, num_tokens = [], []
        for row in range(len(queries)):
            content = [(kind, index) for kind, rows in parts.items() for index in rows[row].tolist() if index >= 0]
            passages.append(tuple(self._texts[kind][index] for kind, index in content))
            num_tokens.append(sum(int(self._lengths[kind][index]) for kind, index in content))
        none = torch.zeros(0, 2, dtype=torch.int64, device=queries.device)
        chunks = torch.cat([none, *(rows for kind, rows in pairs.items() if kind in CHANNELS)])
        return Contexts(self._ranked(queries, chunks), passages, torch.tensor(num_tokens, dtype=torch.int64), parts)

    def _ranked(self, queries: Tensor, pairs: Tensor) -> Ranking:
        if not len(pairs):
            empty = queries.new_zeros(len(queries), 0)
            return Ranking(empty.long(), empty)
        query, chunk = torch.unique(pairs, dim=0).T
        scores = _cosines(self._chunks.vectors, queries, query, chunk)
        order = _order(query, -scores)
        nodes = pad_rows(query[order], chunk[order], len(queries), fill=-1)
        return Ranking(nodes, pad_rows(query[order], scores[order], len(queries), fill=-torch.inf))


class KETSearch:
    """Retrieve the documents whose chunks KET-RAG, or one of its baselines, puts into a context.

    Documents are ranked by the best cosine of their chunks with the query; :class:`KETRetrieval`, which has the same
    settings, returns whole contexts. The constructor builds the index, or reads it from its folder, and prints its
    size. The ``solution`` fixes some settings of the ``index``; without a knowledge graph it needs no ``extractor``.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        folder: str | Path,
        tokenizer: Tokenizer,
        extractor: KnowledgeExtractor | None = None,
        index: KETSettings,
        solution: str = "ket_p",
        context_tokens: int = 12_000,
        graph_share: float | None = None,
        num_seeds: int = 10,
    ) -> None:
        builder = KETIndexBuilder(folder, tokenizer=tokenizer, encoder=resources.index_encoder, extractor=extractor)
        built = builder.build(resources.graph.all_texts, find_solution(solution).settings(index))
        sizes = ", ".join(f"{count:,} {name}" for name, count in built.sizes.items())
        print(f"KET-RAG's index: {sizes}; tokens read and written by models for ${built.sent.dollars:.4f}", flush=True)
        device = resources.graph.device
        self.retrieval = KETRetrieval(
            built,
            solution=solution,
            context_tokens=context_tokens,
            graph_share=graph_share,
            num_seeds=num_seeds,
            device=device,
        )
        self._indptr, self._documents = built.sub_chunks.indptr.to(device), built.sub_chunks.documents.to(device)
        self._resources = resources

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the documents of the retrieved chunks."""
        with self._resources.clock("retrieve"):
            chunks = self.retrieval(state.queries.encoded).ranking
            row, column = torch.nonzero(chunks.nodes >= 0, as_tuple=True)
            origin, document = row_entries(self._indptr, self._documents, chunks.nodes[row, column])
            scores = chunks.scores[row, column][origin]
            return with_documents(state, row[origin], document, scores, budget=self._resources.budget)


class GraphChannel:
    """KG-Retrieval: seed entities, their relations, and the chunks that contain most of both.

    Half of the tokens go to entities and relations, half to chunks; of each kind the first ones that fit, in order:

    - the ``num_seeds`` entities of least Euclidean distance to the query;
    - relations of a seed, those between two seeds first;
    - chunks by the number of these entities and relations that they contain.

    Source: KET-RAG, Algorithm 2 with the sub-chunks of section 5.1. The paper does not say how ties are broken: we
    order relations by their nearest seed, chunks by their cosine with the query, and both then by index.
    """

    def __init__(self, skeleton: Skeleton, chunks: Chunks, *, num_seeds: int) -> None:
        check_counts(num_seeds=num_seeds)
        self._num_seeds, self._chunks = num_seeds, chunks
        knowledge, device = skeleton.knowledge, chunks.vectors.device
        self._entity_vectors, self._entity_tokens = (
            skeleton.entity_vectors.to(device),
            skeleton.entity_tokens.to(device),
        )
        self._relation_tokens = skeleton.relation_tokens.to(device)
        num_entities, num_relations = len(skeleton.entity_tokens), len(skeleton.relation_tokens)
        ends = torch.cat([torch.stack([end, torch.arange(num_relations)], dim=1) for end in knowledge.ends.T])
        holders = torch.cat([knowledge.entity_links, knowledge.relation_links + torch.tensor([num_entities, 0])])
        self._relations = _rows(ends, num_entities, device)  # of each entity
        self._holders = _rows(holders, num_entities + num_relations, device)  # chunks of each entity and relation

    def select(self, queries: Tensor, limit: int) -> tuple[Tensor, Tensor, Tensor]:
        """Fill ``limit`` tokens for each of ``B`` queries ``[B, d]``.

        Returns entities, relations and chunks, each ``[P, 2]`` int64 (query, index), by query and then best first.
        """
        none = torch.zeros(0, 2, dtype=torch.int64, device=queries.device)
        if not len(self._entity_tokens) or not len(queries):
            return none, none, none
        remaining = torch.full((len(queries),), limit // 2, device=queries.device)
        seeds = _nearest(self._entity_vectors, queries, self._num_seeds, by_distance=True)
        query, rank = torch.nonzero(seeds >= 0, as_tuple=True)
        entity = seeds[query, rank]
        fitting = fits(query, self._entity_tokens[entity], remaining)
        query, rank, entity = query[fitting], rank[fitting], entity[fitting]
        entities = torch.stack([query, entity], dim=1)

        after_entities = remaining.index_add(0, query, -self._entity_tokens[entity])
        origin, relation = row_entries(*self._relations, entity)
        num_relations = max(1, len(self._relation_tokens))
        key, position, num_ends = torch.unique(
            query[origin] * num_relations + relation, return_inverse=True, return_counts=True
        )
        nearest = torch.full_like(key, self._num_seeds).scatter_reduce_(0, position, rank[origin], "amin")
        key = key[_order(key // num_relations, -num_ends, nearest)]
        query, relation = key // num_relations, key % num_relations
        fitting = fits(query, self._relation_tokens[relation], after_entities)
        relations = torch.stack([query[fitting], relation[fitting]], dim=1)

        query = torch.cat([entities[:, 0], relations[:, 0]])
        element = torch.cat([entities[:, 1], relations[:, 1] + len(self._entity_tokens)])
        origin, chunk = row_entries(*self._holders, element)
        num_chunks = max(1, len(self._chunks.num_tokens))
        key, count = torch.unique(query[origin] * num_chunks + chunk, return_counts=True)
        query, chunk = key // num_chunks, key % num_chunks
        order = _order(query, -count, -_cosines(self._chunks.vectors, queries, query, chunk))
        return entities, relations, _fitting_pairs(query[order], chunk[order], self._chunks.num_tokens, remaining)


class KeywordChannel:
    """Algorithm 4, lines 2 to 4: the keywords nearest to the query select chunks.

    Keywords are taken by their cosine with the query until the chunks that contain one of them have twice the requested
    tokens; of these chunks the first ones by cosine that fit are kept.

    Source: KET-RAG, Algorithm 4; ties are broken by index.
    """

    def __init__(self, keyword_graph: KeywordGraph, chunks: Chunks) -> None:
        device = chunks.vectors.device
        self._chunks, self._vectors = chunks, keyword_graph.vectors.to(device)
        self._rows = keyword_graph.indptr.to(device), keyword_graph.indices.to(device)  # chunks of each row of keywords

    def select(self, queries: Tensor, limit: int) -> Tensor:
        """Select chunks to fill ``limit`` tokens of queries ``[B, d]``: ``[P, 2]`` int64, query and chunk, in order."""
        num_rows = len(self._vectors)
        if not num_rows or not len(queries) or limit < 1:
            return torch.zeros(0, 2, dtype=torch.int64, device=queries.device)
        queries, count, is_enough = _unit(queries), min(FIRST_SEEDS, num_rows), False
        while not is_enough:
            query, chunk, is_enough = self._candidates(queries, count, 2 * limit)
            is_enough = is_enough or count == num_rows
            count = min(2 * count, num_rows)
        order = _order(query, -_cosines(self._chunks.vectors, queries, query, chunk))
        limits = torch.full((len(queries),), limit, device=queries.device)
        return _fitting_pairs(query[order], chunk[order], self._chunks.num_tokens, limits)

    def _candidates(self, queries: Tensor, count: int, num_tokens: int) -> tuple[Tensor, Tensor, bool]:
        """Return the chunks of the ``count`` nearest keyword rows, and whether they reach ``num_tokens``."""
        seeds = _nearest(self._vectors, queries, count)
        origin, chunk = row_entries(*self._rows, seeds.flatten())
        num_chunks = len(self._chunks.num_tokens)
        key, position = torch.unique(origin // count * num_chunks + chunk, return_inverse=True)
        rank = torch.full_like(key, count).scatter_reduce_(0, position, origin % count, "amin")  # of its first keyword
        query, chunk = key // num_chunks, key % num_chunks
        tokens = torch.zeros(len(queries) * count, dtype=torch.int64, device=queries.device)
        tokens.index_add_(0, query * count + rank, self._chunks.num_tokens[chunk])
        is_short = tokens.view(-1, count).cumsum(1) < num_tokens  # after this keyword, more are needed
        is_used = rank <= is_short.sum(1)[query]
        return query[is_used], chunk[is_used], not bool(is_short[:, -1].any())


class TextChannel:
    """Text-RAG and KNNG-RAG: the chunks nearest to the query, each followed by its neighbours in KNNG-RAG.

    Source: KET-RAG, section 6.1: Text-RAG retrieves "only the seed nodes" of the chunks' graph, KNNG-RAG also "their
    neighbors". The paper does not give the order; we sort the neighbours of a seed by their cosine with the query.
    """

    def __init__(self, chunks: Chunks, edges: Tensor) -> None:
        self._chunks = chunks
        self._rows = _rows(torch.cat([edges, edges.flip(1)]), len(chunks), chunks.vectors.device)  # neighbours of each
        self._shortest = chunks.num_tokens.sort().values.cumsum(0)  # tokens of the shortest chunks

    def select(self, queries: Tensor, limit: int) -> Tensor:
        """Select chunks to fill ``limit`` tokens of queries ``[B, d]``: ``[P, 2]`` int64, query and chunk, in order."""
        max_chunks = int((self._shortest <= limit).sum())
        if not max_chunks or not len(queries):
            return torch.zeros(0, 2, dtype=torch.int64, device=queries.device)
        queries, num_chunks = _unit(queries), len(self._chunks.num_tokens)
        seeds = _nearest(self._chunks.vectors, queries, max_chunks)
        query, rank = torch.nonzero(seeds >= 0, as_tuple=True)
        seed = seeds[query, rank]
        origin, neighbour = row_entries(*self._rows, seed)
        is_neighbour = torch.cat([torch.zeros_like(seed), torch.ones_like(neighbour)])
        query, rank = torch.cat([query, query[origin]]), torch.cat([rank, rank[origin]])
        chunk = torch.cat([seed, neighbour])
        order = _order(query, rank, is_neighbour, -_cosines(self._chunks.vectors, queries, query, chunk), chunk)
        query, chunk = query[order], chunk[order]
        _, positions = np.unique((query * num_chunks + chunk).cpu().numpy(), return_index=True)  # each chunk once
        first = torch.from_numpy(np.sort(positions)).to(query.device)
        limits = torch.full((len(queries),), limit, device=queries.device)
        return _fitting_pairs(query[first], chunk[first], self._chunks.num_tokens, limits)


def _unit(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors.float(), dim=1)


def _rows(pairs: Tensor, num_rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Sort pairs (row, entry) ``[P, 2]`` into compressed sparse rows, entries ascending."""
    pairs = torch.unique(pairs, dim=0)
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(pairs[:, 0], minlength=num_rows).cumsum(0)
    return indptr.to(device), pairs[:, 1].contiguous().to(device)


def _cosines(vectors: Tensor, queries: Tensor, query: Tensor, node: Tensor) -> Tensor:
    """Return dot products pair by pair: unlike a matrix product, equal vectors give equal scores in any batch."""
    return (vectors[node] * _unit(queries)[query]).sum(1)


def _nearest(vectors: Tensor, queries: Tensor, count: int, *, by_distance: bool = False) -> Tensor:
    """Return the ``count`` nodes of largest dot product, or least Euclidean distance, ``[B, n]``; ties go by index."""
    count = min(count, len(vectors))
    near = 2 * queries @ vectors.T - vectors.square().sum(1) if by_distance else queries @ vectors.T
    candidates = torch.topk(near, min(count + MARGIN, len(vectors)), dim=1).indices.sort(dim=1).values
    pairs = vectors[candidates], queries.unsqueeze(1)
    scores = -(pairs[0] - pairs[1]).square().sum(2) if by_distance else (pairs[0] * pairs[1]).sum(2)
    return candidates.gather(1, torch.argsort(scores, dim=1, descending=True, stable=True)[:, :count])


def _order(*keys: Tensor) -> Tensor:
    """Return the stable ascending order of entries by the first key, then the second and so on."""
    order = np.lexsort([key.cpu().numpy() for key in reversed(keys)])
    return torch.from_numpy(order).to(keys[0].device)


def fits(query: Tensor, tokens: Tensor, limit: Tensor) -> Tensor:
    """Return which entries, ordered by query, fit a query's limit together with those before them."""
    total = tokens.cumsum(0)
    begin = torch.searchsorted(query, query)
    return total - total[begin] + tokens[begin] <= limit[query]


def _fitting_pairs(query: Tensor, chunk: Tensor, chunk_tokens: Tensor, limit: Tensor) -> Tensor:
    fitting = fits(query, chunk_tokens[chunk], limit)
    return torch.stack([query[fitting], chunk[fitting]], dim=1)
