"""The components of a ReTAG system, with a language model or without one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from graphrerank.checks import check_choice
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.text import Tokenizer
from graphrerank_papers.indexing.encode import IndexEncoder
from graphrerank_papers.retag.builder import ReTAGIndexBuilder
from graphrerank_papers.retag.generative import ReTAGPrompts
from graphrerank_papers.retag.index import ReTAGIndex, ReTAGSettings
from graphrerank_papers.retag.keywords import ExtractiveKeywords, GeneratedKeywords, KeywordFinder, SummarySentences
from graphrerank_papers.retag.language_model_keywords import LanguageModelKeywords
from graphrerank_papers.retag.language_model_topics import classify_questions
from graphrerank_papers.retag.routing import TopicClassifier

LANGUAGES = ("extractive", "llm")
ROUTINGS = ("similarity", "language_model")


@dataclass(frozen=True)
class ReTAGSetup:
    """Settings from which ReTAG's index and keyword finder are built.

    Raises:
        ValueError: If ``language`` is unknown, or ``llm`` without a language model.
    """

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
        if self.routing == "language_model" and self.language_model is None:
            raise ValueError("`language_model` must be given for routing=language_model, got none")
        if self.language == "llm" and self.language_model is None:
            raise ValueError("`language_model` must be given for language=llm, got none")

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
            writer = LanguageModelKeywords(self._model, num_keywords=num_keywords, prompt=self.prompts.keywords)
            return GeneratedKeywords(writer, index.topics, description=self.description)
        return ExtractiveKeywords(
            sentences, index.topics, num_keywords=num_keywords, num_sentences=num_sentences, num_terms=num_terms
        )

    def topic_classifier(self, index: ReTAGIndex) -> TopicClassifier | None:
        """Return what chooses the topic of questions; None for similarity."""
        if self.routing == "similarity" or self.language_model is None:
            return None
        model, names = remembering(self.language_model, self.cache), list(index.topics.names)
        return partial(classify_questions, model, topics=names, prompt=self.prompts.classification)

    @property
    def _model(self) -> ChatModel | None:
        if self.language_model is None or self.language == "extractive":
            return None
        return remembering(self.language_model, self.cache)
