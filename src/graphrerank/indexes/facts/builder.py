"""Building a fact graph: what passages say, vectors of entities and facts, synonyms."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.indexes.encode import IndexEncoder, digest, encode_in_parts
from graphrerank.indexes.facts.fact_graph import FactGraph, FactGraphSettings, join_nodes
from graphrerank.indexes.facts.facts import Facts, merge_knowledge
from graphrerank.indexes.facts.synonyms import synonym_edges
from graphrerank.indexes.stages import Made, Stages
from graphrerank.knowledge import KnowledgeExtractor

FORMAT = 1  # of the files: a change of what a stage holds must change it
_FACTS = ("ends", "occurrences", "related", "num_statements")


class FactGraphBuilder:
    """Builds a fact graph stage by stage; what was built before is read from the folder.

    Source: "EA-GraphRAG", 2026, section 3.1, as HippoRAG 2. Stages are the facts, vectors in parts, and the synonyms,
    each whole or not there (:class:`Stages`): a build that was stopped goes on where it was, and ends with the same
    files. For a corpus that grew, stages are made again, but an ``extractor`` and an ``encoder`` that remember texts (a
    ``KnowledgeCache``, a ``VectorCache``) are asked for the new ones alone.

    Args:
        folder: Where the stages lie.
        extractor: Tells entities and relations.
        encoder: Of entities and facts; queries must be encoded alike.
        device: Where synonyms are looked for.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        extractor: KnowledgeExtractor,
        encoder: IndexEncoder,
        device: str | torch.device = "cpu",
    ) -> None:
        self._stages = Stages(folder)
        self._extractor = extractor
        self._encoder = encoder
        self._device = device

    def build(self, passages: Sequence[str], settings: FactGraphSettings | None = None) -> FactGraph:
        """Build the index of a corpus, or read it.

        Args:
            passages: ``P`` texts.
            settings: What to make; the defaults when None.

        Raises:
            ValueError: If a model gives what does not fit, or a file of the folder is damaged.
        """
        settings = settings or FactGraphSettings()
        key, facts = self._facts(passages)
        synonyms, cosine = self._synonyms(key, facts, settings)
        graph = join_nodes(passages, facts, synonyms, cosine)
        return FactGraph(
            graph, len(passages), facts, encode_in_parts(self._stages, self._encoder, facts.texts), len(synonyms)
        )

    def _facts(self, passages: Sequence[str]) -> tuple[str, Facts]:
        def make() -> Made:
            knowledge = self._extractor.extract(passages)
            if len(knowledge) != len(passages):
                raise ValueError(f"`extractor` must tell of each of {len(passages)} passages, told of {len(knowledge)}")
            facts = merge_knowledge(knowledge)
            strings = {"names": facts.names, "spellings": facts.spellings, "texts": facts.texts}
            return {name: getattr(facts, name) for name in _FACTS}, strings

        key = self._stages.key("facts", FORMAT, digest(passages), self._extractor.fingerprint)
        arrays, strings = self._stages.get(key, _FACTS, make)
        parts: dict[str, Any] = {**strings, **arrays}
        return key, Facts(**parts)

    def _synonyms(self, facts_key: str, facts: Facts, settings: FactGraphSettings) -> tuple[Tensor, Tensor]:
        def make() -> Made:
            long = [sum(map(str.isalnum, name)) >= settings.min_name_characters for name in facts.names]
            asked = torch.tensor(long, dtype=torch.bool).nonzero().flatten()
            spelled = [facts.spellings[entity] for entity in asked.tolist()]
            vectors = encode_in_parts(self._stages, self._encoder, spelled)
            pairs, cosine = synonym_edges(
                vectors.to(self._device),
                threshold=settings.synonymy_threshold,
                max_synonyms=settings.max_synonyms,
            )
            return {"pairs": asked[pairs.cpu()], "cosine": cosine.cpu()}, {}

        key = self._stages.key("synonyms", FORMAT, facts_key, self._encoder.fingerprint, settings)
        arrays, _ = self._stages.get(key, ("pairs", "cosine"), make)
        return arrays["pairs"], arrays["cosine"]
