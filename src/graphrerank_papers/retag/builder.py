"""Building ReTAG's index: the entity graph, topics, communities of every graph, and their summaries."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.text import Tokenizer
from graphrerank_papers.indexing.encode import IndexEncoder, encode_in_blocks
from graphrerank_papers.indexing.stages import Stages
from graphrerank_papers.retag.extractive import ExtractiveSteps
from graphrerank_papers.retag.generative import GenerativeSteps, ReTAGPrompts
from graphrerank_papers.retag.index import ReTAGIndex, ReTAGSettings
from graphrerank_papers.retag.language_steps import LanguageSteps
from graphrerank_papers.retag.stages import ReTAGStages


class ReTAGIndexBuilder:
    """Builds an index stage by stage, reading finished stages from the folder.

    Source: "ReTAG", 2025, over GraphRAG ("From Local to Global", 2024). *Where we differ:* entities are extracted once,
    not again for each topic. An interrupted build resumes (:class:`Stages`).

    Without ``model``, topics are clusters of entities, and summaries consist of sentences of the corpus. A language
    model finds the topics, decides what is relevant to them and writes the summaries.

    Args:
        encoder: Encoder of sentences; queries need the same one.
        extractor: Extractor of entities and relations, best wrapped in a ``KnowledgeCache``.
        model: Language model, best wrapped in an ``AnswerCache``; None for extractive topics and summaries.
        tries: Number of attempts to get a usable answer from it.
        prompts: Its prompts; None for those that ship.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        tokenizer: Tokenizer,
        encoder: IndexEncoder,
        extractor: KnowledgeExtractor,
        model: ChatModel | None = None,
        tries: int = 3,
        prompts: ReTAGPrompts | None = None,
    ) -> None:
        self._stages = Stages(folder)
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._extractor = extractor
        self._model = model
        self._tries = tries
        self._prompts = prompts

    def build(self, ids: Sequence[str], passages: Sequence[str], settings: ReTAGSettings | None = None) -> ReTAGIndex:
        """Build the index of a corpus, or read it.

        A corpus without passages, entities or relations has an index without communities.

        Raises:
            ValueError: If there is not one unique id per passage, a model's output does not fit, or a file of the
            folder is
                damaged.
        """
        return self._stages_of(ids, passages, settings or ReTAGSettings()).build()

    def update(self, index: ReTAGIndex, ids: Sequence[str], passages: Sequence[str]) -> ReTAGIndex:
        """Add passages to an index; topics stay, and only the communities that change are summarised again.

        A new entity belongs to the topics near it, and joins the community to which it is most related. A community
        that outgrows ``max_community`` is split; new entities related to no known one form communities of their own. A
        community changes if it gains an entity or a relation, or if new passages contribute to the texts that its
        summary is made from. ``index_difference`` compares the result with a new build.

        Source: ours, for the first of ReTAG's open questions.

        Raises:
            ValueError: If the passages do not begin with the index's; or as :meth:`build`.
        """
        known = list(index.passage_ids)
        if list(ids[: len(known)]) != known:
            raise ValueError(f"`ids` must begin with the {len(known)} ids of the index, got others")
        return self._stages_of(ids, passages, index.settings).update(index)

    def _stages_of(self, ids: Sequence[str], passages: Sequence[str], settings: ReTAGSettings) -> ReTAGStages:
        num_unique = len(set(ids))
        if not len(passages) == len(ids) == num_unique:
            raise ValueError(f"`ids` must be {len(passages)} unique ids, got {len(ids)}, {num_unique} of them unique")
        steps: LanguageSteps = ExtractiveSteps(self._tokenizer, settings)
        if self._model is not None:
            steps = GenerativeSteps(
                self._model, self._tokenizer, self._encode, settings, tries=self._tries, prompts=self._prompts
            )
        return ReTAGStages(
            self._stages, self._tokenizer, self._encoder, self._extractor, steps, ids, passages, settings
        )

    def _encode(self, texts: Sequence[str]) -> Tensor:
        return encode_in_blocks(self._stages, self._encoder, texts)
