"""HippoRAG: the query's entities seed PageRank over the corpus's entities, whose mass scores passages."""

from pathlib import Path

import torch
from torch import Tensor

from graphrerank.graphs import top_k_by_node_order
from graphrerank.graphs.sparse_rows import pad_rows
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.operators.ppr import CorpusPPR
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.hipporag.fact_graph import build_fact_graph, with_reached
from graphrerank_papers.indexing import Stages


class HippoRAGSearch:
    r"""Replace the retrieved passages by those whose entities PageRank reaches from the query's entities.

    1. Extract the entities of the query, and link each to the entity of the corpus with the most similar name.
    2. Weigh these seeds by node specificity, :math:`s_i = 1 / |P_i|`, with :math:`P_i` the passages of an entity.
    3. Spread them by PageRank over the entities' graph of relations and synonyms.
    4. Score a passage by the sum over its entities' mass, :math:`p = n' P`.

    Source: Gutiérrez et al., "HippoRAG: Neurobiologically Inspired Long-Term Memory for Large Language Models", 2024,
    sections 2.3 and 2.4. *Where we differ:* :math:`P` holds whether a passage has an entity, not how often. A query
    without entities keeps what was retrieved before, as in the paper's code, and so does one whose entities reach no
    passage. Passages without mass are not ranked.

    ``node_specificity``: whether seeds are weighted; else all weigh 1. The index of facts is that of
    :class:`FactGraphSearch`, whose other settings it shares.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        folder: str | Path,
        extractor: KnowledgeExtractor,
        query_extractor: KnowledgeExtractor,
        synonymy_threshold: float = 0.8,
        max_synonyms: int = 100,
        node_specificity: bool = True,
        restart_prob: float = 0.5,
    ) -> None:
        self._resources = resources
        self._encoder = resources.index_encoder
        self._query_extractor = query_extractor
        device = resources.graph.device
        index = build_fact_graph(
            resources.graph.all_texts,
            folder=folder,
            extractor=extractor,
            encoder=self._encoder,
            synonymy_threshold=synonymy_threshold,
            max_synonyms=max_synonyms,
            device=device,
        )
        self._names = Stages(folder).encode(self._encoder, index.facts.spellings).to(device)
        self._walk = CorpusPPR(index.between_entities().to(device), restart_prob=restart_prob)
        self._occurrences = index.facts.entity_links.to(device)
        holders = index.num_holders.to(device)
        self._weight = 1 / holders.clamp(min=1).float() if node_specificity else torch.ones_like(holders).float()

    def run(self, state: RetrievalState) -> RetrievalState:
        """Search from the entities of each query."""
        with self._resources.clock("retrieve"):
            seeds = self._link(state)
        with self._resources.clock("graph"):
            weight = (
                torch.where(seeds >= 0, self._weight[seeds.clamp(min=0)], 0.0) if len(self._weight) else seeds * 0.0
            )
            mass = self._walk.score(seeds, weight).T
            entity, passage = self._occurrences.unbind(1)
            scores = mass.new_zeros(self._resources.graph.num_nodes, len(seeds)).index_add_(0, passage, mass[entity]).T
            return with_reached(state, scores, budget=self._resources.budget)

    def _link(self, state: RetrievalState) -> Tensor:
        """Return the corpus's entities that the queries' entities are linked to: ``[B, S]`` int64, padded with -1."""
        knowledge = self._query_extractor.extract(state.queries.texts)
        device = self._names.device
        pairs = [(row, name) for row, query in enumerate(knowledge) for name in query.names]
        links = torch.zeros(0, 2, dtype=torch.int64, device=device)
        if pairs and len(self._names):
            vectors = self._encoder.encode([name for _, name in pairs]).to(self._names)
            nearest, _ = top_k_by_node_order(vectors @ self._names.T, 1)
            rows = torch.tensor([row for row, _ in pairs], device=device)
            links = torch.unique(torch.cat([rows.unsqueeze(1), nearest], dim=1), dim=0)
        return pad_rows(links[:, 0], links[:, 1], len(state.queries), fill=-1)
