"""KET-RAG's retrieval and the seven solutions that the paper compares it with, as shares of a context's tokens."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from graphrerank.graphs import Ranking
from graphrerank.indexes import KETIndex, KETSettings
from graphrerank.pipelines.ket.channels import GraphChannel, KeywordChannel, TextChannel

CHANNELS = ("graph", "keyword", "text", "neighbours")


@dataclass(frozen=True)
class Solution:
    """One of the eight solutions of KET-RAG, section 6.1.

    Attributes:
        core: Whose knowledge is extracted: of ``all`` chunks, of the share chosen by ``pagerank`` or at ``random``, or
            of ``none``.
        channels: Which channels share the context's tokens; the first one's share is the setting ``graph_share`` where
            it is ``graph`` and not alone, unless ``graph_share`` is fixed here.
        graph_share: Fixed share of the first channel, or None.
    """

    core: str
    channels: tuple[str, ...]
    graph_share: float | None = None

    @property
    def splits_chunks(self) -> bool:
        """Whether chunks are halved: only where keywords name them."""
        return "keyword" in self.channels

    def settings(self, settings: KETSettings) -> KETSettings:
        """Return what the solution's index is made with."""
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
    """Look a solution up.

    Raises:
        ValueError: If there is none of that name.
    """
    if name not in SOLUTIONS:
        raise ValueError(f"`solution` must be one of {list(SOLUTIONS)}, got {name!r}")
    return SOLUTIONS[name]


@dataclass(frozen=True)
class Contexts:
    """What a solution retrieved for ``B`` queries.

    Attributes:
        ranking: ``[B, C]`` sub-chunks of the context by their cosine to the query, each once.
        texts: ``B`` contexts: entities, relations and chunks, a line end behind each.
        num_tokens: ``[B]`` int64, sums of the lengths of what they hold.
        parts: What each holds, in order, ``[B, n]`` int64 padded with -1: ``entities``, ``relations`` and ``graph``
            (its chunks), ``keyword``, ``text`` and ``neighbours``, as far as the solution has them.
    """

    ranking: Ranking
    texts: Sequence[str]
    num_tokens: Tensor
    parts: Mapping[str, Tensor]


class KETRetrieval(nn.Module):
    r"""Retrieve contexts of at most ``context_tokens`` from an index, many queries at once.

    Source: KET-RAG, Algorithms 2 and 4, and section 6.1 for the other solutions. Where a text is said to be taken until
    a number of tokens is reached, we take whole texts as long as they fit. A chunk that two channels find stands twice
    in the context, as in Algorithm 4, line 5. All state is in buffers.

    Args:
        index: Made with the solution's settings.
        solution: A name of ``SOLUTIONS``.
        context_tokens: :math:`\lambda`.
        graph_share: :math:`\theta` in [0, 1], the skeleton's share of the tokens in KET-RAG.
        num_seeds: Seed entities.

    Raises:
        ValueError: If an argument is out of range, or the index does not hold what the solution needs.
    """

    chunk_vectors: Tensor  # [m, d] unit, of sub-chunks

    def __init__(
        self,
        index: KETIndex,
        *,
        solution: str = "ket_p",
        context_tokens: int = 12_000,
        graph_share: float = 0.4,
        num_seeds: int = 10,
    ) -> None:
        super().__init__()
        chosen = find_solution(solution)
        if context_tokens < 1:
            raise ValueError(f"`context_tokens` must be a positive integer, got {context_tokens}")
        if not 0 <= graph_share <= 1:
            raise ValueError(f"`graph_share` must lie in [0, 1], got {graph_share}")
        if (made := chosen.settings(index.settings)) != index.settings:
            raise ValueError(f"`index` must be made with {made} for {solution}, got {index.settings}")
        share = graph_share if chosen.graph_share is None else chosen.graph_share
        first = context_tokens if len(chosen.channels) == 1 else math.floor(share * context_tokens + 1e-6)
        self.limits = dict(zip(chosen.channels, (first, context_tokens - first), strict=False))
        chunks = index.sub_chunk_texts
        self.channels = nn.ModuleDict()
        for channel in chosen.channels:
            if channel == "graph":
                if index.skeleton is None or index.entity_texts is None or index.relation_tokens is None:
                    continue  # `core_share` is 0: the skeleton's share of the context stays empty
                graph = (index.skeleton, index.entity_texts, index.relation_tokens)
                self.channels[channel] = GraphChannel(*graph, chunks, num_seeds=num_seeds)
            elif channel == "keyword":
                assert index.keyword_graph is not None
                self.channels[channel] = KeywordChannel(index.keyword_graph, chunks)
            else:
                self.channels[channel] = TextChannel(chunks, index.chunk_graph if channel == "neighbours" else None)
        self.register_buffer("chunk_vectors", nn.functional.normalize(chunks.vectors, dim=1), persistent=False)
        self._texts: dict[str, Sequence[str]] = dict.fromkeys(CHANNELS, chunks.texts)
        self._lengths = dict.fromkeys(CHANNELS, chunks.num_tokens)
        if index.skeleton is not None and index.entity_texts is not None and index.relation_tokens is not None:
            self._texts |= {"entities": index.skeleton.entity_texts, "relations": index.skeleton.relation_texts}
            self._lengths |= {"entities": index.entity_texts.num_tokens, "relations": index.relation_tokens}

    @torch.no_grad()
    def forward(self, queries: Tensor) -> Contexts:
        """Retrieve for ``B`` queries.

        Args:
            queries: ``[B, d]`` vectors of the index's encoder.

        Raises:
            ValueError: If the vectors do not fit the index.
        """
        if queries.dim() != 2 or (queries.shape[1] != self.chunk_vectors.shape[1] and len(self.chunk_vectors)):
            raise ValueError(f"`queries` must be [B, {self.chunk_vectors.shape[1]}], got {list(queries.shape)}")
        queries = queries.to(self.chunk_vectors)
        found: dict[str, Tensor] = {}
        for name, channel in self.channels.items():
            chosen = channel(queries, self.limits[name])
            found |= (
                dict(zip(("entities", "relations", "graph"), chosen, strict=True))
                if name == "graph"
                else {name: chosen}
            )
        parts = {name: padded(pairs, len(queries)) for name, pairs in found.items()}
        texts, num_tokens = [], []
        for row in range(len(queries)):
            own = [(name, number) for name, numbers in parts.items() for number in numbers[row].tolist() if number >= 0]
            texts.append("".join(f"{self._texts[name][number]}\n" for name, number in own))
            num_tokens.append(sum(int(self._lengths[name][number]) for name, number in own))
        none = torch.zeros(0, 2, dtype=torch.int64, device=queries.device)
        chunks = torch.cat([none, *(pairs for name, pairs in found.items() if name in CHANNELS)])
        return Contexts(self._ranked(queries, chunks), texts, torch.tensor(num_tokens, dtype=torch.int64), parts)

    def _ranked(self, queries: Tensor, pairs: Tensor) -> Ranking:
        if not len(pairs):
            nothing = queries.new_zeros(len(queries), 0)
            return Ranking(nothing.long(), nothing)
        pairs = torch.unique(pairs, dim=0)
        unit = nn.functional.normalize(queries, dim=1)
        scores = (self.chunk_vectors[pairs[:, 1]] * unit[pairs[:, 0]]).sum(1)
        order = torch.argsort(scores, descending=True, stable=True)
        order = order[torch.argsort(pairs[order, 0], stable=True)]
        nodes = padded(pairs[order], len(queries))
        ranked = torch.full(nodes.shape, -torch.inf, device=nodes.device)
        ranked[nodes >= 0] = scores[order]
        return Ranking(nodes, ranked)


def padded(pairs: Tensor, batch: int) -> Tensor:
    """Lay pairs (query, number) out as rows, ``[B, n]``, padded with -1."""
    if not batch:
        return torch.zeros(0, 0, dtype=torch.int64, device=pairs.device)
    lengths = torch.bincount(pairs[:, 0], minlength=batch).tolist()
    return pad_sequence(list(torch.split(pairs[:, 1], lengths)), batch_first=True, padding_value=-1)
