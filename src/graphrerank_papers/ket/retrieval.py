"""KET-RAG's retrieval and the seven solutions of its comparison, as shares of a context's tokens."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from graphrerank.checks import check_choice, check_counts, check_share
from graphrerank.graphs import Ranking
from graphrerank.graphs.sparse_rows import pad_rows
from graphrerank_papers.ket.channels import GraphChannel, KeywordChannel, TextChannel
from graphrerank_papers.ket.index import KETIndex, KETSettings

CHANNELS = ("graph", "keyword", "text", "neighbours")


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


class KETRetrieval(nn.Module):
    r"""Retrieve contexts of at most ``context_tokens`` from an index, for many queries at once.

    Source: KET-RAG, Algorithms 2 and 4, and section 6.1 for the other solutions. *Where we differ:* the paper takes
    texts until a number of tokens is reached, we take whole texts as long as they fit. A chunk found by two channels
    occurs twice in the context, as in Algorithm 4, line 5. All state is in buffers.

    Args:
        index: Index built with the solution's settings.
        solution: A name of ``SOLUTIONS``.
        context_tokens: :math:`\lambda`.
        graph_share: :math:`\theta` in [0, 1], the first channel's share of the tokens where there are two; None for the
            solution's: 0.4 in KET-RAG, half in Hybrid-RAG.
        num_seeds: Number of seed entities.

    Raises:
        ValueError: If an argument is out of range, or the index lacks what the solution needs.
    """

    chunk_vectors: Tensor  # [m, d] unit, of sub-chunks

    def __init__(
        self,
        index: KETIndex,
        *,
        solution: str = "ket_p",
        context_tokens: int = 12_000,
        graph_share: float | None = None,
        num_seeds: int = 10,
    ) -> None:
        super().__init__()
        chosen = find_solution(solution)
        check_counts(context_tokens=context_tokens)
        share = chosen.graph_share if graph_share is None else graph_share
        check_share(graph_share=share)
        if (needed := chosen.settings(index.settings)) != index.settings:
            raise ValueError(f"`index` must be built with {needed} for {solution}, got {index.settings}")
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
        """Retrieve for ``B`` queries, ``[B, d]`` vectors of the index's encoder."""
        if queries.dim() != 2 or (queries.shape[1] != self.chunk_vectors.shape[1] and len(self.chunk_vectors)):
            raise ValueError(f"`queries` must be [B, {self.chunk_vectors.shape[1]}], got {list(queries.shape)}")
        queries = queries.to(self.chunk_vectors)
        pairs: dict[str, Tensor] = {}  # (query, index of a text) by kind
        for name, channel in self.channels.items():
            if name == "graph":
                pairs["entities"], pairs["relations"], pairs["graph"] = channel(queries, self.limits[name])
            else:
                pairs[name] = channel(queries, self.limits[name])
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
        scores = (self.chunk_vectors[chunk] * nn.functional.normalize(queries, dim=1)[query]).sum(1)
        order = torch.argsort(scores, descending=True, stable=True)
        order = order[torch.argsort(query[order], stable=True)]
        nodes = pad_rows(query[order], chunk[order], len(queries), fill=-1)
        return Ranking(nodes, pad_rows(query[order], scores[order], len(queries), fill=-torch.inf))
