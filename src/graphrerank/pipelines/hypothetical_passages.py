"""Before vector search: the queries' vectors replaced by those of hypothetical passages."""

from dataclasses import replace

from graphrerank.operators import HyDE
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace
from graphrerank.text import LanguageModel


class HypotheticalPassages:
    """Rewrite the queries' vectors (:class:`HyDE`); later steps read the new ones.

    Args:
        workplace: What the pipeline's steps share.
        language_model: Writes the passages.
        num_passages: Per query, at least 1.

    Raises:
        ValueError: If ``num_passages`` is below 1, or there is no encoder of texts.
    """

    def __init__(self, workplace: Workplace, *, language_model: LanguageModel, num_passages: int = 8) -> None:
        if workplace.text_encoder is None:
            raise ValueError("`text_encoder` must be given for hypothetical passages (encoder=...), got none")
        self._workplace = workplace
        self._operator = HyDE(language_model, workplace.text_encoder, num_passages=num_passages)

    def run(self, state: RetrievalState) -> RetrievalState:
        """Ask, encode and average."""
        with self._workplace.clock("retrieve"):
            return replace(state, queries=self._operator.rewrite(state.queries))
