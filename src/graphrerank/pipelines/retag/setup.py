"""What a ReTAG system is made of, with a language model or without one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graphrerank.indexes import IndexEncoder, ReTAGIndex, ReTAGIndexBuilder, ReTAGSettings
from graphrerank.knowledge import KnowledgeExtractor
from graphrerank.language_models import ChatModel, LanguageModelKeywords, remembering
from graphrerank.pipelines.retag.keywords import ExtractiveKeywords, KeywordFinder, SummarySentences, WrittenKeywords
from graphrerank.text import Tokenizer

LANGUAGES = ("extractive", "llm")


@dataclass(frozen=True)
class ReTAGSetup:
    """How the index and the keywords of ReTAG are made.

    Attributes:
        folder: Where the index's stages lie, beside those of other corpora and settings.
        tokenizer: What a token is.
        extractor: Tells entities and relations.
        settings: Of the index.
        language: Who finds topics, sums up communities and expands questions: ``extractive``, nobody but the encoder;
            ``llm``, the language model.
        language_model: Whom to ask; not asked where ``language`` is ``extractive``.
        cache: Folder that keeps the language model's answers; each run asks anew when None.
        description: What the corpus is about, for the language model's keywords.

    Raises:
        ValueError: If ``language`` is unknown, or ``llm`` without a language model.
    """

    folder: str | Path
    tokenizer: Tokenizer
    extractor: KnowledgeExtractor
    settings: ReTAGSettings = field(default_factory=ReTAGSettings)
    language: str = "extractive"
    language_model: ChatModel | None = None
    cache: str | Path | None = None
    description: str = "A collection of documents."

    def __post_init__(self) -> None:
        if self.language not in LANGUAGES:
            raise ValueError(f"`language` must be one of {list(LANGUAGES)}, got {self.language!r}")
        if self.language == "llm" and self.language_model is None:
            raise ValueError("`language_model` must be given for language=llm, got none")

    def build_index(self, encoder: IndexEncoder, ids: Sequence[str], passages: Sequence[str]) -> ReTAGIndex:
        """Build the index of a corpus, or read it.

        Args:
            encoder: Of sentences; questions must be encoded alike.
            ids: ``P`` ids of the passages.
            passages: ``P`` texts.

        Raises:
            ValueError: As :meth:`ReTAGIndexBuilder.build`.
        """
        builder = ReTAGIndexBuilder(
            self.folder, tokenizer=self.tokenizer, encoder=encoder, extractor=self.extractor, model=self._model
        )
        return builder.build(ids, passages, self.settings)

    def keyword_finder(
        self, index: ReTAGIndex, sentences: SummarySentences, *, num_keywords: int, num_sentences: int, num_terms: int
    ) -> KeywordFinder | None:
        """Give what expands questions; None where ``num_keywords`` is 0.

        Args:
            index: The index.
            sentences: Those of its summaries; read where ``language`` is ``extractive``, as the two numbers behind.
            num_keywords: Most keywords of a question.
            num_sentences: As :class:`ExtractiveKeywords`.
            num_terms: As :class:`ExtractiveKeywords`.

        Raises:
            ValueError: If a number is out of range.
        """
        if not num_keywords:
            return None
        if self._model is not None:
            writer = LanguageModelKeywords(self._model, num_keywords=num_keywords)
            return WrittenKeywords(writer, index.topics, description=self.description)
        return ExtractiveKeywords(
            sentences, index.topics, num_keywords=num_keywords, num_sentences=num_sentences, num_terms=num_terms
        )

    @property
    def _model(self) -> ChatModel | None:
        if self.language_model is None or self.language == "extractive":
            return None
        return remembering(self.language_model, self.cache)
