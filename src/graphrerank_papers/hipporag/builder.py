"""Building a fact graph: facts of the passages, vectors of entities and facts, synonyms."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank_papers.hipporag.fact_graph import FactGraph, FactGraphSettings, join_nodes
from graphrerank_papers.hipporag.facts import Facts, merge_knowledge
from graphrerank_papers.hipporag.synonyms import synonym_edges
from graphrerank_papers.indexing.encode import IndexEncoder, encode_in_blocks
from graphrerank_papers.indexing.stages import StageData, Stages

FORMAT = 1  # increment when the content of a stage changes
_FACTS = ("ends", "occurrences", "related", "num_statements")


class FactGraphBuilder:
    """Builds a fact graph stage by stage, reading finished stages from the folder.

    Source: "EA-GraphRAG", 2026, section 3.1, after HippoRAG 2. An interrupted build resumes and writes the same files
    (:class:`Stages`). When a corpus grows, an ``extractor`` and an ``encoder`` with a cache (``KnowledgeCache``,
    ``VectorCache``) process the new texts only.

    Args:
        encoder: Encoder of entities and facts; queries need the same one.
        device: Device of the search for synonyms.
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
            settings: Settings of the index; None for the defaults.

        Raises:
            ValueError: If a model's output does not fit, or a file of the folder is damaged.
        """
        settings = settings or FactGraphSettings()
        key, facts = self._facts(passages)
        synonyms, cosine = self._synonyms(key, facts, settings)
        graph = join_nodes(passages, facts, synonyms, cosine)
        fact_vectors = encode_in_blocks(self._stages, self._encoder, facts.texts)
        return FactGraph(graph, len(passages), facts, fact_vectors, len(synonyms))

    def entity_vectors(self, graph: FactGraph) -> Tensor:
        """Encode the entities' names as ``[E, d]`` float32, or read their vectors."""
        return encode_in_blocks(self._stages, self._encoder, graph.facts.spellings)

    def _facts(self, passages: Sequence[str]) -> tuple[str, Facts]:
        def make() -> StageData:
            knowledge = self._extractor.extract(passages)
            if len(knowledge) != len(passages):
                raise ValueError(
                    f"`extractor` must return one entry per passage ({len(passages)}), got {len(knowledge)}"
                )
            facts = merge_knowledge(knowledge)
            strings = {"names": facts.names, "spellings": facts.spellings, "texts": facts.texts}
            return {name: getattr(facts, name) for name in _FACTS}, strings

        key = self._stages.key("facts", FORMAT, hash_texts(passages).hex(), self._extractor.fingerprint)
        arrays, strings = self._stages.get(key, _FACTS, make)
        return key, Facts(**{**strings, **arrays})

    def _synonyms(self, facts_key: str, facts: Facts, settings: FactGraphSettings) -> tuple[Tensor, Tensor]:
        def make() -> StageData:
            is_long = [sum(map(str.isalnum, name)) >= settings.min_name_characters for name in facts.names]
            entities = torch.tensor(is_long, dtype=torch.bool).nonzero().flatten()
            spellings = [facts.spellings[entity] for entity in entities.tolist()]
            pairs, cosine = synonym_edges(
                encode_in_blocks(self._stages, self._encoder, spellings).to(self._device),
                threshold=settings.synonymy_threshold,
                max_synonyms=settings.max_synonyms,
            )
            return {"pairs": entities[pairs.cpu()], "cosine": cosine.cpu()}, {}

        key = self._stages.key("synonyms", FORMAT, facts_key, self._encoder.fingerprint, settings)
        arrays, _ = self._stages.get(key, ("pairs", "cosine"), make)
        return arrays["pairs"], arrays["cosine"]
