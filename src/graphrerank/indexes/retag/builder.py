"""Building ReTAG's index: the entity graph, topics, communities of every graph, and their summaries."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from graphrerank.indexes.encode import IndexEncoder, encode_in_parts
from graphrerank.indexes.retag.build import ReTAGBuild
from graphrerank.indexes.retag.extractive import ExtractiveLanguage
from graphrerank.indexes.retag.index import ReTAGIndex, ReTAGSettings
from graphrerank.indexes.retag.language import Language
from graphrerank.indexes.retag.model import ModelLanguage
from graphrerank.indexes.stages import Stages
from graphrerank.knowledge import KnowledgeExtractor
from graphrerank.language_models import ChatModel
from graphrerank.text import Tokenizer


class ReTAGIndexBuilder:
    """Builds an index stage by stage; what was built before is read from the folder.

    Source: "ReTAG", 2025, over GraphRAG ("From Local to Global", 2024). Stages are the entity graph, vectors in parts,
    the material of summaries, topics, and of each graph its communities and their summaries, each whole or not there
    (:class:`Stages`): a build that was stopped goes on where it was.

    Without ``model`` no language model is asked: topics are clusters of entities, summaries consist of sentences of the
    corpus. With one, it finds the topics, tells what is relevant to them and writes the summaries. *Where we differ:*
    entities are extracted once, not again for each topic.

    Args:
        folder: Where the stages lie.
        tokenizer: What a token is.
        encoder: Of sentences; queries must be encoded alike.
        extractor: Tells entities and relations; put a ``KnowledgeCache`` around it.
        model: A language model, with an ``AnswerCache`` around it; None for extractive topics and summaries.
        tries: How often to ask it for a usable answer.
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
    ) -> None:
        self._stages = Stages(folder)
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._extractor = extractor
        self._model = model
        self._tries = tries

    def build(self, ids: Sequence[str], passages: Sequence[str], settings: ReTAGSettings | None = None) -> ReTAGIndex:
        """Build the index of a corpus, or read it.

        A corpus without passages, entities or relations has an index without communities.

        Args:
            ids: ``P`` ids of the passages.
            passages: ``P`` texts.
            settings: What to make; the defaults when None.

        Raises:
            ValueError: If there is not one id per passage, a model gives what does not fit, or a file of the folder is
                damaged.
        """
        return self._work(ids, passages, settings or ReTAGSettings()).index()

    def update(self, index: ReTAGIndex, ids: Sequence[str], passages: Sequence[str]) -> ReTAGIndex:
        """Add passages to an index: topics stay, and only the communities that they touch are summed up again.

        A new entity belongs to the topics that are near it, and joins the community of those it is most related to; one
        that outgrows ``max_community`` is split, and what is related to nothing known makes communities of its own.
        Touched is a community with a new entity or relation, or with one of which new passages tell something that its
        summary is made from. See :func:`~graphrerank.indexes.index_difference` for how far this is from a new build.

        Source: ours, for the first of ReTAG's open questions.

        Args:
            index: Of the passages before.
            ids: Of all passages; those of the index first.
            passages: All texts, in the same order.

        Raises:
            ValueError: If the passages do not begin with the index's; or as :meth:`build`.
        """
        known = list(index.passage_ids)
        if list(ids[: len(known)]) != known:
            raise ValueError(f"`ids` must begin with the {len(known)} of the index, got others")
        return self._work(ids, passages, index.settings).updated(index)

    def _work(self, ids: Sequence[str], passages: Sequence[str], settings: ReTAGSettings) -> ReTAGBuild:
        different = len(set(ids))
        if not len(passages) == len(ids) == different:
            raise ValueError(f"`ids` must be {len(passages)} different ones, got {len(ids)}, {different} different")
        language: Language = ExtractiveLanguage(self._tokenizer, settings)
        if self._model is not None:
            language = ModelLanguage(self._model, self._tokenizer, self._encode, settings, tries=self._tries)
        models = (self._tokenizer, self._encoder, self._extractor, language)
        return ReTAGBuild(self._stages, *models, ids, passages, settings)

    def _encode(self, texts: Sequence[str]) -> Tensor:
        return encode_in_parts(self._stages, self._encoder, texts)
