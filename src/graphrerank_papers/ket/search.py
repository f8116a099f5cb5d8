"""KET-RAG as the first step of a pipeline: the corpus ranked by the chunks of a context."""

from pathlib import Path

import torch

from graphrerank.graphs.sparse_rows import pad_rows, row_entries
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank.text import Tokenizer
from graphrerank_papers.ket.builder import KETIndexBuilder
from graphrerank_papers.ket.index import KETSettings
from graphrerank_papers.ket.retrieval import KETRetrieval, find_solution


class KETSearch:
    """Retrieve the documents whose chunks KET-RAG, or one of its baselines, puts into a context.

    Documents are ranked by the best cosine of their chunks with the query. The entities and relations of the context
    select chunks and are not ranked; :class:`KETRetrieval` returns whole contexts. The constructor builds the index, or
    reads it from its folder, and prints its report.

    Args:
        resources: Resources of the pipeline; its ``text_encoder`` encodes the index.
        folder: Folder of indexes.
        tokenizer: Tokenizer that measures texts.
        extractor: Extractor of entities and relations; None for solutions without a knowledge graph.
        solution: See :class:`KETRetrieval`.
        chunk_tokens: See :class:`KETSettings`, as for all settings up to ``description_tokens``.
        join: Whether a chunk may span documents.
        num_neighbours: K of the chunk graph, even.
        core_share: Share of chunks in the skeleton, unless the solution fixes it.
        seed: Seed of random core chunks.
        num_splits: Number of times a chunk is halved, if the solution has keywords.
        description_tokens: Maximum number of tokens that describe an entity or a relation.
        context_tokens: See :class:`KETRetrieval`, as for all settings up to ``num_seeds``.
        graph_share: Share of the context's tokens for the skeleton; None for the solution's.
        num_seeds: Number of seed entities.

    Raises:
        ValueError: If a setting is out of range, or there is no encoder of texts with a fingerprint.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        folder: str | Path,
        tokenizer: Tokenizer,
        extractor: KnowledgeExtractor | None = None,
        solution: str = "ket_p",
        chunk_tokens: int = 1200,
        join: bool = True,
        num_neighbours: int = 2,
        core_share: float = 0.8,
        seed: int = 0,
        num_splits: int = 3,
        description_tokens: int = 100,
        context_tokens: int = 12_000,
        graph_share: float | None = None,
        num_seeds: int = 10,
    ) -> None:
        settings = KETSettings(
            chunk_tokens=chunk_tokens,
            join=join,
            num_neighbours=num_neighbours,
            core_share=core_share,
            seed=seed,
            num_splits=num_splits,
            description_tokens=description_tokens,
        )
        builder = KETIndexBuilder(folder, tokenizer=tokenizer, encoder=resources.index_encoder, extractor=extractor)
        index = builder.build(resources.graph.all_texts, find_solution(solution).settings(settings))
        print(*index.report.lines(), sep="\n", flush=True)
        retrieval = KETRetrieval(
            index,
            solution=solution,
            context_tokens=context_tokens,
            graph_share=graph_share,
            num_seeds=num_seeds,
        )
        device = resources.graph.device
        self.retrieval = retrieval.to(device)
        self._indptr, self._documents = index.sub_chunks.indptr.to(device), index.sub_chunks.documents.to(device)
        self._resources = resources

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the documents of the retrieved chunks."""
        with self._resources.clock("retrieve"):
            chunks = self.retrieval(state.queries.encoded).ranking
            row, column = torch.nonzero(chunks.nodes >= 0, as_tuple=True)
            origin, document = row_entries(self._indptr, self._documents, chunks.nodes[row, column])
            num_nodes, scores = max(1, self._resources.graph.num_nodes), chunks.scores[row, column][origin]
            key, position = torch.unique(row[origin] * num_nodes + document, return_inverse=True)
            best = torch.full(key.shape, -torch.inf, device=key.device).scatter_reduce_(0, position, scores, "amax")
            nodes = pad_rows(key // num_nodes, key % num_nodes, len(chunks), fill=-1)
            scores = pad_rows(key // num_nodes, best, len(chunks), fill=-torch.inf)
            ranked = state.with_ranking(nodes, scores).ranked_by(scores).top(self._resources.budget)
            return ranked.with_pool(ranked.nodes)
