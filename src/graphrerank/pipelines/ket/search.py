"""KET-RAG as the first step of a pipeline: the corpus ranked by the chunks of a context."""

from pathlib import Path

import torch

from graphrerank.graphs.sparse_rows import row_entries
from graphrerank.indexes import IndexEncoder, KETIndexBuilder, KETSettings
from graphrerank.knowledge import KnowledgeExtractor
from graphrerank.pipelines.ket.retrieval import KETRetrieval, find_solution
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace
from graphrerank.text import Tokenizer


class KETSearch:
    """Retrieve the documents whose chunks KET-RAG, or one of its competitors, puts into a context.

    Documents are ranked by the best cosine of their chunks to the query. The index is built, or read from
    its folder, when the step is; its report is printed. What the context holds besides, entities and relations, chooses
    chunks and is not ranked; :class:`KETRetrieval` gives whole contexts.

    Args:
        workplace: What the pipeline's steps share; its ``text_encoder`` makes the index.
        folder: Where the index lies, beside those of other corpora and settings.
        tokenizer: What a token is.
        extractor: Tells entities and relations; None for solutions without a knowledge graph.
        solution: As :class:`KETRetrieval`.
        chunk_tokens: As :class:`KETSettings`, and so on to ``description_tokens``.
        join: Whether a chunk may go on in the next document.
        num_neighbours: K of the chunks' graph, even.
        core_share: Share of chunks in the skeleton, where the solution does not say.
        seed: Of random core chunks.
        num_splits: How often a chunk is halved, where the solution has keywords.
        description_tokens: Most tokens that describe an entity or a relation.
        context_tokens: As :class:`KETRetrieval`, and so on to ``num_seeds``.
        graph_share: Share of the context's tokens that the skeleton fills.
        num_seeds: Seed entities.

    Raises:
        ValueError: If a setting is out of range, or there is no encoder of texts with a fingerprint.
    """

    def __init__(
        self,
        workplace: Workplace,
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
        graph_share: float = 0.4,
        num_seeds: int = 10,
    ) -> None:
        encoder = workplace.text_encoder
        if not isinstance(encoder, IndexEncoder):
            raise ValueError(
                f"`text_encoder` must be given for an index, with a fingerprint (encoder=...), got {encoder}"
            )
        settings = KETSettings(
            chunk_tokens=chunk_tokens,
            join=join,
            num_neighbours=num_neighbours,
            core_share=core_share,
            seed=seed,
            num_splits=num_splits,
            description_tokens=description_tokens,
        )
        builder = KETIndexBuilder(folder, tokenizer=tokenizer, encoder=encoder, extractor=extractor)
        index = builder.build(workplace.graph.texts, find_solution(solution).settings(settings))
        print(*index.report.lines(), sep="\n", flush=True)
        retrieval = KETRetrieval(
            index,
            solution=solution,
            context_tokens=context_tokens,
            graph_share=graph_share,
            num_seeds=num_seeds,
        )
        device = workplace.graph.indptr.device
        self.retrieval = retrieval.to(device)
        self._indptr, self._documents = index.sub_chunks.indptr.to(device), index.sub_chunks.documents.to(device)
        self._workplace = workplace

    def run(self, state: RetrievalState) -> RetrievalState:
        """Begin anew with the documents of the retrieved chunks."""
        with self._workplace.clock("retrieve"):
            chunks = self.retrieval(state.queries.encoded).ranking
            row, column = torch.nonzero(chunks.nodes >= 0, as_tuple=True)
            origin, document = row_entries(self._indptr, self._documents, chunks.nodes[row, column])
            num_nodes, row, scores = self._workplace.graph.num_nodes, row[origin], chunks.scores[row, column][origin]
            key, place = torch.unique(row * num_nodes + document, return_inverse=True)
            best = torch.full(key.shape, -torch.inf, device=key.device).scatter_reduce_(0, place, scores, "amax")
            owner = torch.div(key, max(1, num_nodes), rounding_mode="floor")
            slot = torch.arange(len(key), device=key.device) - torch.searchsorted(owner, owner)
            width = int(slot.max()) + 1 if len(key) else 0
            nodes = torch.full((len(chunks), width), -1, device=key.device).index_put(
                (owner, slot), key % max(1, num_nodes)
            )
            ranked = torch.zeros(nodes.shape, device=key.device).index_put((owner, slot), best)
            found = state.with_ranking(nodes, torch.zeros_like(ranked)).ranked_by(ranked).top(self._workplace.budget)
            return found.with_pool(found.nodes)
