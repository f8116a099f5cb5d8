"""Query rewriting before vector search: vectors of hypothetical passages."""

from dataclasses import replace
from pathlib import Path

from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.hyde.hyde import HyDE


class HypotheticalPassages:
    """Replace the queries' vectors by those of hypothetical passages (:class:`HyDE`), for all later steps.

    Args:
        language_model: Language model that writes the passages.
        num_passages: Number of passages per query, at least 1.
        prompt: Of the language model (:class:`HyDE`); None for the one that ships.
        cache: Folder of cached answers of the language model; None for no cache.

    Raises:
        ValueError: If ``num_passages`` is below 1, or there is no encoder of texts.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        language_model: ChatModel,
        num_passages: int = 8,
        prompt: Prompt | None = None,
        cache: str | Path | None = None,
    ) -> None:
        if resources.text_encoder is None:
            raise ValueError("`text_encoder` must be given for hypothetical passages (encoder=...), got none")
        self._resources = resources
        self._operator = HyDE(
            remembering(language_model, cache),
            resources.text_encoder,
            num_passages=num_passages,
            prompt=prompt or shipped_prompt("hyde_passage"),
        )

    def run(self, state: RetrievalState) -> RetrievalState:
        """Rewrite the queries."""
        with self._resources.clock("retrieve"):
            return replace(state, queries=self._operator.rewrite(state.queries))
