"""ReTAG as the first step of a pipeline: the corpus ranked by way of retrieved summaries."""

import torch
from torch import Tensor

from graphrerank.graphs import Queries
from graphrerank.graphs.sparse_rows import pad_rows, row_entries
from graphrerank.pipelines.graph_rerank import GraphScorerFactory
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.retag.keywords import SummarySentences
from graphrerank_papers.retag.retrieval import ReTAGRetrieval, ReTAGSearchSettings
from graphrerank_papers.retag.setup import ReTAGSetup
from graphrerank_papers.retag.summaries import LevelSummaries


class ReTAGSearch:
    """Retrieve the documents that the retrieved summaries were made from, ranked by their cosine with the query.

    ReTAG answers from summaries and ranks no documents; :class:`ReTAGRetrieval` returns the summaries, which
    ``experiment=retag_podcast`` evaluates. The constructor builds the index, or reads it from its folder.

    Args:
        resources: Resources of the pipeline; its ``text_encoder`` encodes the index.
        setup: Settings from which index and keyword finder are built.
        search: Settings of the retrieval of summaries.
        level: Level of the communities; 0 for the coarsest.
        num_keywords: Maximum number of keywords of a question; 0: no expansion.
        num_sentences: See :class:`ExtractiveKeywords`.
        num_terms: See :class:`ExtractiveKeywords`.
        scorer: Builds a trained graph reranker of the summaries, such as ``CheckpointScorer``;
            None for none.

    Raises:
        ValueError: If a setting is out of range, there is no encoder of texts with a fingerprint, or the corpus was not
            encoded.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        setup: ReTAGSetup,
        search: ReTAGSearchSettings,
        level: int = 1,
        num_keywords: int = 10,
        num_sentences: int = 20,
        num_terms: int = 2,
        scorer: GraphScorerFactory | None = None,
    ) -> None:
        encoder, graph = resources.index_encoder, resources.graph
        self._embedding = graph.encoded
        index = setup.build_index(encoder, graph.node_ids, graph.all_texts)
        summaries = LevelSummaries(index, level, device=graph.device)
        finder = setup.keyword_finder(
            index,
            SummarySentences(index, encoder),
            num_keywords=num_keywords,
            num_sentences=num_sentences,
            num_terms=num_terms,
        )
        graph_scorer = None if scorer is None else scorer(summaries.graph, text_encoder=encoder)
        self.retrieval = ReTAGRetrieval(
            summaries, search, keywords=finder, scorer=graph_scorer, classifier=setup.topic_classifier(index)
        )
        self._indptr = index.communities.sources.indptr.to(graph.device)
        self._documents = index.communities.sources.indices.to(graph.device)
        self._resources = resources

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by the documents of the retrieved summaries."""
        with self._resources.clock("retrieve"):
            nodes, scores = self._documents_of(state.queries)
            ranked = state.with_ranking(nodes, scores).ranked_by(scores).top(self._resources.budget)
            return ranked.with_pool(ranked.nodes)

    def _documents_of(self, queries: Queries) -> tuple[Tensor, Tensor]:
        """Return the documents of the retrieved summaries, ``[B, n]`` padded with -1, and their cosines."""
        nodes, num_documents = self.retrieval.retrieve(queries).ranking.nodes, max(1, len(self._embedding))
        row, column = torch.nonzero(nodes >= 0, as_tuple=True)
        communities = self.retrieval.summaries.communities.to(nodes.device)[nodes[row, column]]
        origin, document = row_entries(self._indptr, self._documents, communities)
        key = torch.unique(row[origin] * num_documents + document)
        owner, document = key // num_documents, key % num_documents
        cosine = (self._embedding[document] * queries.encoded.to(nodes.device)[owner]).sum(1)
        padded = pad_rows(owner, cosine, len(queries), fill=-torch.inf)
        return pad_rows(owner, document, len(queries), fill=-1), padded
