"""ReTAG as the first step of a pipeline: the corpus ranked by way of the summaries that are worth reading."""

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from graphrerank.graphs import Queries
from graphrerank.graphs.sparse_rows import row_entries
from graphrerank.indexes import IndexEncoder
from graphrerank.pipelines.graph_rerank import GraphScorerFactory
from graphrerank.pipelines.retag.keywords import SummarySentences
from graphrerank.pipelines.retag.retrieval import ReTAGRetrieval, ReTAGSearchSettings
from graphrerank.pipelines.retag.setup import ReTAGSetup
from graphrerank.pipelines.retag.summaries import LevelSummaries
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace


class ReTAGSearch:
    """Retrieve the documents that the retrieved summaries were made from, by their cosine to the query.

    ReTAG answers from summaries and ranks no documents; :class:`ReTAGRetrieval` gives the summaries, and
    ``experiment=retag_podcast`` judges them. The index is built, or read from its folder, when the step is.

    Args:
        workplace: What the pipeline's steps share; its ``text_encoder`` makes the index.
        setup: How index and keywords are made.
        search: How summaries are chosen.
        level: Of the communities; 0 for the coarsest.
        num_keywords: Most keywords of a question; 0: no expansion.
        num_sentences: As :class:`ExtractiveKeywords`.
        num_terms: As :class:`ExtractiveKeywords`.
        scorer: Builds a trained graph reranker for the summaries, as ``graphrerank.inference.CheckpointScorer``; None
            for none.

    Raises:
        ValueError: If a setting is out of range, there is no encoder of texts with a fingerprint, or the corpus was not
            encoded.
    """

    def __init__(
        self,
        workplace: Workplace,
        *,
        setup: ReTAGSetup,
        search: ReTAGSearchSettings,
        level: int = 1,
        num_keywords: int = 10,
        num_sentences: int = 20,
        num_terms: int = 2,
        scorer: GraphScorerFactory | None = None,
    ) -> None:
        encoder, graph = workplace.text_encoder, workplace.graph
        if not isinstance(encoder, IndexEncoder) or graph.embedding is None:
            raise ValueError(
                "`text_encoder` must be given for an index, with a fingerprint, and the corpus encoded by it "
                f"(encoder=...), got {encoder}"
            )
        index = setup.build_index(encoder, graph.node_ids, graph.texts)
        summaries = LevelSummaries(index, level, device=graph.device)
        finder = setup.keyword_finder(
            index,
            SummarySentences(index, encoder),
            num_keywords=num_keywords,
            num_sentences=num_sentences,
            num_terms=num_terms,
        )
        built = None if scorer is None else scorer(summaries.graph, text_encoder=encoder)
        self.retrieval = ReTAGRetrieval(summaries, search, keywords=finder, scorer=built)
        self._indptr = index.communities.sources.indptr.to(graph.device)
        self._documents = index.communities.sources.indices.to(graph.device)
        self._embedding = graph.embedding
        self._workplace = workplace

    def run(self, state: RetrievalState) -> RetrievalState:
        """Begin anew with the documents of the retrieved summaries."""
        with self._workplace.clock("retrieve"):
            nodes, scores = self._documents_of(state.queries)
            found = state.with_ranking(nodes, torch.zeros_like(scores)).ranked_by(scores).top(self._workplace.budget)
            return found.with_pool(found.nodes)

    def _documents_of(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """List what the retrieved summaries were made from, ``[B, n]`` padded with -1, and cosines."""
        nodes, num_documents = self.retrieval.retrieve(queries).ranking.nodes, max(1, len(self._embedding))
        row, column = torch.nonzero(nodes >= 0, as_tuple=True)
        communities = self.retrieval.summaries.communities.to(nodes.device)[nodes[row, column]]
        origin, document = row_entries(self._indptr, self._documents, communities)
        key = torch.unique(row[origin] * num_documents + document)
        owner, document = torch.div(key, num_documents, rounding_mode="floor"), key % num_documents
        cosine = (self._embedding[document] * queries.encoded.to(nodes.device)[owner]).sum(1)
        counts = torch.bincount(owner, minlength=len(queries)).tolist()
        if not counts:
            return nodes[:, :0], nodes[:, :0].float()
        return (
            pad_sequence(list(torch.split(document, counts)), batch_first=True, padding_value=-1),
            pad_sequence(list(torch.split(cosine, counts)), batch_first=True, padding_value=-torch.inf),
        )
