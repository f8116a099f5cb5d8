"""KET-RAG as the first step of a pipeline: the corpus ranked by the chunks of a context."""

from pathlib import Path

import torch

from graphrerank.graphs.sparse_rows import pad_rows, row_entries
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank.text import Tokenizer
from graphrerank_papers.ket.index import KETIndexBuilder, KETSettings
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
        index: Settings of the index, but for those that the solution fixes.
        solution: See :class:`KETRetrieval`, as for the settings that follow.
        context_tokens: Maximum number of tokens of a context.
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
        index: KETSettings,
        solution: str = "ket_p",
        context_tokens: int = 12_000,
        graph_share: float | None = None,
        num_seeds: int = 10,
    ) -> None:
        builder = KETIndexBuilder(folder, tokenizer=tokenizer, encoder=resources.index_encoder, extractor=extractor)
        built = builder.build(resources.graph.all_texts, find_solution(solution).settings(index))
        print(*built.report.lines(), sep="\n", flush=True)
        device = resources.graph.device
        self.retrieval = KETRetrieval(
            built, solution=solution, context_tokens=context_tokens, graph_share=graph_share, num_seeds=num_seeds
        ).to(device)
        self._indptr, self._documents = built.sub_chunks.indptr.to(device), built.sub_chunks.documents.to(device)
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
