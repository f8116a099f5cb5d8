"""Retrieval of KET-RAG: the channels that fill a context, the solutions that combine them, and a pipeline step."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.core import Ranking
from graphrerank.core.sparse_rows import row_entries
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, Step
from graphrerank.text import Tokenizer
from graphrerank.utils.checks import UserError, check_choice, check_counts, check_share
from graphrerank_papers.indexing import padded_ranking, scores_of, with_documents
from graphrerank_papers.ket.index import KETIndex, KETIndexBuilder, KETSettings
from graphrerank_papers.knowledge.corpus_knowledge import grouped

#: Number of additional candidates whose scores are recomputed, because a matrix product may round ties differently.
MARGIN = 16
#: Initial number of keyword rows to consider. It is doubled until they yield enough tokens.
FIRST_SEEDS = 128


@dataclass(frozen=True)
class Solution:
    """One of the eight solutions that KET-RAG compares in section 6.1.

    Attributes:
        core: Chunks from which knowledge is extracted: ``all``, ``none``, or the ``core_share`` of the index settings,
            chosen by ``pagerank`` or at ``random``.
        channels: One or two channels that share the tokens of a context.
        graph_share: Default share of the tokens for the first of two channels.
    """

    core: str
    channels: tuple[str, ...]
    graph_share: float = 0.4

    @property
    def splits_chunks(self) -> bool:
        """Whether chunks are halved. Only the keyword channel needs sub-chunks."""
        return "keyword" in self.channels

    def settings(self, settings: KETSettings) -> KETSettings:
        """Return the settings of the index that this solution needs.

        Args:
            settings: Index settings, some of which the solution replaces.
        """
        return replace(
            settings,
            core_share={"none": 0.0, "all": 1.0}.get(self.core, settings.core_share),
            core_selection="random" if self.core == "random" else "pagerank",
            num_splits=settings.num_splits if self.splits_chunks else 0,
            has_keywords=self.splits_chunks,
        )


#: Solutions by name.
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
    """Return a solution by name.

    Args:
        name: Name in :data:`SOLUTIONS`.

    Raises:
        ValueError: If there is no solution of this name.
    """
    check_choice(SOLUTIONS, solution=name)
    return SOLUTIONS[name]


@dataclass(frozen=True)
class Contexts:
    """Retrieved contexts of ``B`` queries.

    Attributes:
        ranking: Unique sub-chunks of each context, ranked by cosine similarity to the query, ``[B, C]``.
        passages: Texts of the entities, relations and chunks of each context.
        num_tokens: Number of tokens of each context.
        parts: Indices of these texts by kind, for each context. The kinds are ``entities``, ``relations`` and ``graph``
            (chunks of the graph channel), ``keyword``, ``text`` and ``neighbours``, in this order. A context only has
            the kinds of its solution's channels.
    """

    ranking: Ranking
    passages: Sequence[tuple[str, ...]]
    num_tokens: Sequence[int]
    parts: Sequence[Mapping[str, Sequence[int]]] = ()

    @property
    def texts(self) -> list[str]:
        """Contexts as text, with a line end after each passage."""
        return ["".join(f"{passage}\n" for passage in row) for row in self.passages]


class KETRetrieval:
    r"""Retrieve contexts of limited length from an index, for many queries at once.

    Each channel fills its share of the tokens with whole texts:

    - ``graph`` (KG-Retrieval): half of the tokens are for entities and relations, half for chunks. The seeds are the
      ``num_seeds`` entities with the smallest Euclidean distance to the query. Their relations follow; relations
      between two seeds come first. Chunks are ordered by the number of these entities and relations that they contain.
      Source: Algorithm 2, with the sub-chunks of section 5.1. The paper does not say how ties are broken. Here, tied
      relations are ordered by their nearest seed, tied chunks by cosine similarity to the query, and both then by
      index.
    - ``keyword``: the keywords most similar to the query are added until the chunks that contain them have twice the
      channel's tokens. The chunks most similar to the query are selected from these. Source: Algorithm 4.
    - ``text`` and ``neighbours`` (Text-RAG and KNNG-RAG): the chunks most similar to the query. In KNNG-RAG, each chunk
      is followed by its neighbours. Source: section 6.1, which does not specify the order of the neighbours. Here, they
      are ordered by cosine similarity to the query.

    *Differences from the paper:* the paper adds texts until the number of tokens is reached, so the last text may be
    cut. Here, a context has only whole texts. As in Algorithm 4, line 5, a chunk that two channels select occurs twice.

    Args:
        index: Index that was built with the settings of ``solution`` (:meth:`Solution.settings`).
        solution: Name of the solution in :data:`SOLUTIONS`.
        context_tokens: Maximum number of tokens of a context, :math:`\lambda`.
        graph_share: Share of the tokens for the first of two channels, :math:`\theta`, in [0, 1]. If None, the default
            of the solution is used.
        num_seeds: Number of seed entities of the graph channel.
        device: Device of the similarity search.

    Raises:
        ValueError: If an argument is out of range, or the index was built with other settings.
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
        check_counts(context_tokens=context_tokens, num_seeds=num_seeds)
        share = chosen.graph_share if graph_share is None else graph_share
        check_share(graph_share=share)
        if (needed := chosen.settings(index.settings)) != index.settings:
            raise UserError(f"`index` must be built with {needed} for solution={solution}, got {index.settings}")
        first = context_tokens if len(chosen.channels) == 1 else math.floor(share * context_tokens + 1e-6)
        self.limits = dict(zip(chosen.channels, (first, context_tokens - first), strict=False))
        chunks, skeleton, keywords = index.sub_chunks, index.skeleton, index.keyword_graph
        self._num_seeds, self._vectors = num_seeds, _unit(chunks.vectors).to(device)
        self._texts: dict[str, Sequence[str]] = dict.fromkeys(self.limits, chunks.texts)
        self._lengths: dict[str, list[int]] = dict.fromkeys(self.limits, chunks.num_tokens.tolist())
        if "graph" in self.limits and skeleton is None:
            del self.limits["graph"]  # with `core_share` 0, the skeleton's share of the context stays empty
        if skeleton is not None:
            knowledge = skeleton.knowledge
            self._texts |= {"entities": knowledge.entity_texts, "relations": knowledge.relation_texts}
            self._lengths["entities"] = skeleton.entity_tokens.tolist()
            self._lengths["relations"] = skeleton.relation_tokens.tolist()
            self._entity_vectors = skeleton.entity_vectors.to(device)
            ends = [(entity, relation) for relation, pair in enumerate(knowledge.ends.tolist()) for entity in pair]
            self._relations_of = grouped(ends, len(knowledge.names))
            self._chunks_of_entity = grouped(knowledge.entity_links.tolist(), len(knowledge.names))
            self._chunks_of_relation = grouped(knowledge.relation_links.tolist(), len(knowledge.facts))
        if keywords is not None:
            self._keyword_vectors = keywords.vectors.to(device)
            rows = torch.tensor_split(keywords.indices, keywords.indptr[1:-1])
            self._chunks_of_keyword = [row.tolist() for row in rows]
        edges = [pair for i, j in index.chunk_graph.edges.tolist() for pair in ((i, j), (j, i))]
        self._neighbours = grouped(edges if "neighbours" in self.limits else [], len(chunks))

    @torch.no_grad()
    def __call__(self, queries: Tensor) -> Contexts:
        """Retrieve contexts for a batch of queries.

        Args:
            queries: Query vectors ``[B, d]``, from the same encoder as the index.

        Returns:
            Contexts of the ``B`` queries.

        Raises:
            ValueError: If ``queries`` has another shape.
        """
        if queries.dim() != 2 or (queries.shape[1] != self._vectors.shape[1] and len(self._vectors)):
            raise UserError(f"`queries` must be [B, {self._vectors.shape[1]}], got {list(queries.shape)}")
        queries = queries.to(self._vectors)
        unit = _unit(queries)
        parts = [dict[str, list[int]]() for _ in queries]  # selected indices by kind of text, for each query
        for channel, limit in self.limits.items():
            if channel == "graph":
                seeds = _nearest(self._entity_vectors, queries, self._num_seeds, by_distance=True).tolist()
                selected = self._graph(unit, seeds, limit)
            else:
                select = self._by_keywords if channel == "keyword" else self._by_vectors
                selected = [{channel: chunks} for chunks in select(unit, limit)]
            for part, indices in zip(parts, selected, strict=True):
                part |= indices
        contents = [[(kind, index) for kind, indices in part.items() for index in indices] for part in parts]
        ranked = [[chunk for channel in self.limits for chunk in part[channel]] for part in parts]
        cosines = scores_of(self._vectors, unit, ranked)
        rankings = [dict(sorted(cosine.items(), key=lambda entry: (-entry[1], entry[0]))) for cosine in cosines]
        passages = [tuple(self._texts[kind][index] for kind, index in content) for content in contents]
        num_tokens = [sum(self._lengths[kind][index] for kind, index in content) for content in contents]
        return Contexts(padded_ranking(rankings).to(queries.device), passages, num_tokens, parts)

    def _graph(self, queries: Tensor, seeds: Sequence[Sequence[int]], limit: int) -> list[dict[str, list[int]]]:
        """Select entities, relations and chunks for ``B`` queries by their nearest entities."""
        parts, counts = list[dict[str, list[int]]](), list[Counter[int]]()
        for near in seeds:
            entities = first_that_fit(near, self._lengths["entities"], limit // 2)
            num_ends = Counter(relation for entity in entities for relation in self._relations_of[entity])
            ranked = [relation for relation, _ in num_ends.most_common()]  # ties by nearest seed, then by index
            used = sum(self._lengths["entities"][entity] for entity in entities)
            relations = first_that_fit(ranked, self._lengths["relations"], limit // 2 - used)
            count = Counter(chunk for entity in entities for chunk in self._chunks_of_entity[entity])
            count.update(chunk for relation in relations for chunk in self._chunks_of_relation[relation])
            parts.append({"entities": entities, "relations": relations})
            counts.append(count)
        for part, count, cosine in zip(parts, counts, scores_of(self._vectors, queries, counts), strict=True):
            ranked = sorted(count, key=lambda chunk: (-count[chunk], -cosine[chunk], chunk))
            part["graph"] = first_that_fit(ranked, self._lengths["graph"], limit // 2)
        return parts

    def _by_keywords(self, queries: Tensor, limit: int) -> list[list[int]]:
        """Select chunks of the keywords that are most similar to ``B`` queries, unit vectors ``[B, d]``."""
        count, candidates = FIRST_SEEDS, list[set[int]]()
        while True:
            rows = _nearest(self._keyword_vectors, queries, count).tolist() if limit > 0 else [[]] * len(queries)
            candidates = [self._chunks_of(row, 2 * limit) for row in rows]
            sizes = (sum(self._lengths["keyword"][chunk] for chunk in chunks) for chunks in candidates)
            if count >= len(self._keyword_vectors) or all(size >= 2 * limit for size in sizes):
                break
            count *= 2
        cosines = scores_of(self._vectors, queries, candidates)
        ranked = (sorted(cosine, key=lambda chunk: (-cosine[chunk], chunk)) for cosine in cosines)
        return [first_that_fit(chunks, self._lengths["keyword"], limit) for chunks in ranked]

    def _chunks_of(self, keyword_rows: Iterable[int], num_tokens: int) -> set[int]:
        """Return the chunks of the first keywords, until they have at least ``num_tokens`` tokens in total."""
        chunks, size, rows = set[int](), 0, iter(keyword_rows)
        while size < num_tokens and (row := next(rows, None)) is not None:
            new = set(self._chunks_of_keyword[row]) - chunks
            size += sum(self._lengths["keyword"][chunk] for chunk in new)
            chunks |= new
        return chunks

    def _by_vectors(self, queries: Tensor, limit: int) -> list[list[int]]:
        """Select the chunks most similar to ``B`` queries, unit vectors ``[B, d]``, each followed by its neighbours."""
        (kind,) = self.limits.keys() & {"text", "neighbours"}
        # upper bound on the number of chunks that fit, reached by the shortest chunks
        fit = sum(total <= limit for total in accumulate(sorted(self._lengths[kind])))
        selected, rows = [], _nearest(self._vectors, queries, fit).tolist()
        around_seeds = [{chunk for seed in seeds for chunk in self._neighbours[seed]} for seeds in rows]
        for seeds, cosine in zip(rows, scores_of(self._vectors, queries, around_seeds), strict=True):
            ranked = dict[int, None]()
            for seed in seeds:
                around = sorted(self._neighbours[seed], key=lambda chunk: (-cosine[chunk], chunk))
                ranked |= dict.fromkeys([seed, *around])
            selected.append(first_that_fit(ranked, self._lengths[kind], limit))
        return selected


@dataclass(eq=False, repr=False)
class KETSearch(Step):
    """Retrieve the documents whose chunks are in the context of KET-RAG or one of its baselines.

    Documents are ranked by the highest cosine similarity of their selected chunks to the query. To retrieve the
    contexts themselves, use :class:`KETRetrieval`, which has the same settings. The constructor builds or reads the
    index, and prints its size.

    Attributes:
        resources: Resources of the pipeline. The text encoder needs a fingerprint.
        folder: Folder of the index.
        tokenizer: Tokenizer that measures the lengths of texts.
        extractor: Extractor of entities and relations. Not needed by solutions without a knowledge graph.
        index: Settings of the index. The solution replaces some of them (:meth:`Solution.settings`).
        solution: Name of the solution in :data:`SOLUTIONS`.
        context_tokens: Maximum number of tokens of a context.
        graph_share: Share of the tokens for the first of two channels, in [0, 1]. If None, the default of the solution
            is used.
        num_seeds: Number of seed entities of the graph channel.
    """

    resources: Resources
    _: KW_ONLY
    folder: str | Path
    tokenizer: Tokenizer
    extractor: KnowledgeExtractor | None = None
    index: KETSettings
    solution: str = "ket_p"
    context_tokens: int = 12_000
    graph_share: float | None = None
    num_seeds: int = 10

    def __post_init__(self) -> None:
        graph, encoder = self.resources.graph, self.resources.index_encoder
        builder = KETIndexBuilder(self.folder, tokenizer=self.tokenizer, encoder=encoder, extractor=self.extractor)
        built = builder.build(graph.all_texts, find_solution(self.solution).settings(self.index))
        sizes = ", ".join(f"{count:,} {name}" for name, count in built.sizes.items())
        print(f"KET-RAG index: {sizes}; model tokens for ${built.sent.dollars:.4f}", flush=True)
        names = ("solution", "context_tokens", "graph_share", "num_seeds")
        settings: dict[str, Any] = {name: getattr(self, name) for name in names}
        self.retrieval = KETRetrieval(built, **settings, device=graph.device)
        chunks = built.sub_chunks
        self._indptr, self._documents = chunks.indptr.to(graph.device), chunks.documents.to(graph.device)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the documents of the selected chunks.

        Args:
            state: State of ``B`` queries, which must have vectors.

        Returns:
            State with at most ``budget`` documents per query.
        """
        with self.resources.clock("retrieve"):
            chunks = self.retrieval(state.queries.encoded).ranking
            row, column = torch.nonzero(chunks.nodes >= 0, as_tuple=True)
            origin, document = row_entries(self._indptr, self._documents, chunks.nodes[row, column])
            scores = chunks.scores[row, column][origin]
            return with_documents(state, row[origin], document, scores, budget=self.resources.budget)


def first_that_fit(indices: Iterable[int], lengths: Sequence[int], limit: int) -> list[int]:
    """Return the longest prefix of texts whose total length is at most the limit.

    Args:
        indices: Indices of the texts, in order.
        lengths: Lengths of all texts.
        limit: Maximum total length.

    Example:
        >>> first_that_fit([2, 0, 1], [3, 1, 2], 5)
        [2, 0]
    """
    indices = list(indices)
    totals = accumulate(lengths[index] for index in indices)
    return indices[: sum(1 for _ in takewhile(limit.__ge__, totals))]


def _unit(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors.float(), dim=1)


def _nearest(vectors: Tensor, queries: Tensor, count: int, *, by_distance: bool = False) -> Tensor:
    """Return the ``count`` nodes with the largest dot product or smallest distance, ``[B, n]``. Ties go by index."""
    if not len(vectors):
        return torch.zeros(len(queries), 0, dtype=torch.int64)
    near = 2 * queries @ vectors.T - vectors.square().sum(1) if by_distance else queries @ vectors.T
    candidates = torch.topk(near, min(count + MARGIN, len(vectors)), dim=1).indices.sort(dim=1).values
    pairs = vectors[candidates], queries.unsqueeze(1)
    scores = -(pairs[0] - pairs[1]).square().sum(2) if by_distance else (pairs[0] * pairs[1]).sum(2)
    return candidates.gather(1, torch.argsort(scores, dim=1, descending=True, stable=True)[:, :count])
