"""ReTAG as the first step of a pipeline: the corpus ranked by way of retrieved summaries."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from graphrerank.checks import check_choice
from graphrerank.graphs.queries import IndexEncoder
from graphrerank.graphs.sparse_rows import row_entries
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank.pipelines.steps import GraphScorerFactory
from graphrerank.text import Tokenizer
from graphrerank_papers.indexing import with_documents
from graphrerank_papers.retag.builder import ReTAGIndexBuilder
from graphrerank_papers.retag.index import ReTAGIndex, ReTAGSettings
from graphrerank_papers.retag.language_model import ReTAGPrompts, classify_questions
from graphrerank_papers.retag.retrieval import (
    ExtractiveKeywords,
    GeneratedKeywords,
    KeywordFinder,
    LevelSummaries,
    ReTAGRetrieval,
    ReTAGSearchSettings,
    SummarySentences,
    TopicClassifier,
)

LANGUAGES = ("extractive", "llm")
ROUTINGS = ("similarity", "language_model")


@dataclass(frozen=True)
class ReTAGSetup:
    """Settings from which ReTAG's index and keyword finder are built."""

    folder: str | Path  # folder of indexes
    tokenizer: Tokenizer  # tokenizer that measures texts
    extractor: KnowledgeExtractor  # extractor of entities and relations
    settings: ReTAGSettings = field(default_factory=ReTAGSettings)  # settings of the index
    # `extractive`, or `llm` for a language model that finds topics, summarises communities and expands questions
    language: str = "extractive"
    language_model: ChatModel | None = None  # the language model of `llm`
    prompts: ReTAGPrompts = field(default_factory=ReTAGPrompts)  # prompts of the language model
    cache: str | Path | None = None  # folder of cached answers of the language model; None for no cache
    # how a question finds its topics: by `similarity`, several perhaps; or by the `language_model`, one or none
    routing: str = "similarity"
    description: str = "A collection of documents."  # description of the corpus, for the language model's keywords

    def __post_init__(self) -> None:
        check_choice(LANGUAGES, language=self.language)
        check_choice(ROUTINGS, routing=self.routing)
        if self.language_model is None and (self.language == "llm" or self.routing == "language_model"):
            raise ValueError("`language_model` must be given for language=llm and for routing=language_model, got none")

    def build_index(self, encoder: IndexEncoder, ids: Sequence[str], passages: Sequence[str]) -> ReTAGIndex:
        """Build the index of ``P`` passages with ids, or read it; questions need the same encoder."""
        builder = ReTAGIndexBuilder(
            self.folder,
            tokenizer=self.tokenizer,
            encoder=encoder,
            extractor=self.extractor,
            model=self._model,
            prompts=self.prompts,
        )
        return builder.build(ids, passages, self.settings)

    def keyword_finder(
        self, index: ReTAGIndex, sentences: SummarySentences, *, num_keywords: int, num_sentences: int, num_terms: int
    ) -> KeywordFinder | None:
        """Return the finder that expands questions; None if ``num_keywords`` is 0.

        Only ``extractive`` uses the sentences of the index's summaries, ``num_sentences`` and ``num_terms``, as
        :class:`ExtractiveKeywords`.
        """
        if not num_keywords:
            return None
        if self._model is not None:
            prompt, description = self.prompts.keywords, self.description
            return GeneratedKeywords(
                self._model, prompt, index.topics, description=description, num_keywords=num_keywords
            )
        return ExtractiveKeywords(
            sentences, index.topics, num_keywords=num_keywords, num_sentences=num_sentences, num_terms=num_terms
        )

    def topic_classifier(self, index: ReTAGIndex) -> TopicClassifier | None:
        """Return what chooses the topic of questions; None for similarity."""
        if self.routing == "similarity" or self.language_model is None:
            return None
        model = remembering(self.language_model, self.cache)
        return partial(classify_questions, model, self.prompts.classification, list(index.topics.names))

    @property
    def _model(self) -> ChatModel | None:
        if self.language_model is None or self.language == "extractive":
            return None
        return remembering(self.language_model, self.cache)


class ReTAGSearch:
    """Retrieve the documents that the retrieved summaries were made from, ranked by their cosine with the query.

    ReTAG answers from summaries and ranks no documents; :class:`ReTAGRetrieval` returns the summaries, which
    ``experiment=retag_podcast`` evaluates. The constructor builds the index, or reads it from its folder.

    Communities are those of ``level``, 0 for the coarsest. At most ``num_keywords`` expand a question, 0 for none
    (:class:`ExtractiveKeywords`). ``scorer`` builds a trained graph reranker of the summaries, as ``CheckpointScorer``.
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
        numbers = {"num_keywords": num_keywords, "num_sentences": num_sentences, "num_terms": num_terms}
        finder = setup.keyword_finder(index, SummarySentences(index, encoder), **numbers)
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
            nodes, queries = self.retrieval.retrieve(state.queries).ranking.nodes, state.queries.encoded
            row, column = torch.nonzero(nodes >= 0, as_tuple=True)
            communities = self.retrieval.summaries.communities.to(nodes.device)[nodes[row, column]]
            origin, document = row_entries(self._indptr, self._documents, communities)
            cosines = (self._embedding[document] * queries.to(nodes.device)[row[origin]]).sum(1)
            return with_documents(state, row[origin], document, cosines, budget=self._resources.budget)
