"""Before vector search: the queries' vectors replaced by those of hypothetical passages."""

from dataclasses import replace
from pathlib import Path

from graphrerank.language_models import ChatModel, remembering
from graphrerank.operators import HyDE
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace


class HypotheticalPassages:
    """Rewrite the queries' vectors (:class:`HyDE`); later steps read the new ones.

    Args:
        workplace: What the pipeline's steps share.
        language_model: Writes the passages.
        num_passages: Per query, at least 1.
        cache: Folder that keeps the language model's answers; each run asks anew when None.

    Raises:
        ValueError: If ``num_passages`` is below 1, or there is no encoder of texts.
    """

    def __init__(
        self,
        workplace: Workplace,
        *,
        language_model: ChatModel,
        num_passages: int = 8,
        cache: str | Path | None = None,
    ) -> None:
        if workplace.text_encoder is None:
            raise ValueError("`text_encoder` must be given for hypothetical passages (encoder=...), got none")
        self._workplace = workplace
        self._operator = HyDE(remembering(language_model, cache), workplace.text_encoder, num_passages=num_passages)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Ask, encode and average."""
        with self._workplace.clock("retrieve"):
            return replace(state, queries=self._operator.rewrite(state.queries))
