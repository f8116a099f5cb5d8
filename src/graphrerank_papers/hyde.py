"""HyDE: search by the vectors of passages that a language model writes."""

from dataclasses import replace
from pathlib import Path

import torch

from graphrerank.checks import check_counts
from graphrerank.graphs import Queries
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources


class HypotheticalPassages:
    r"""Replace a query's vector, for all later steps, by the mean of it and those of passages that would answer it.

    .. math:: v_q \leftarrow \frac{1}{M + 1} \Bigl[ f(q) + \sum_{k=1}^{M} f(d_k) \Bigr]

    Source: Gao et al., *Precise Zero-Shot Dense Retrieval without Relevance Labels*, 2023, Eq. (8), with its 8
    passages, its temperature of 0.7 (set in the language model) and its prompt for web search. *Where we differ:* the
    result is normalised, which changes no ranking by dot product; a blank query keeps its vector.

    The pipeline's ``text_encoder`` encodes the passages of ``language_model``, ``num_passages`` (:math:`M`) for each
    query; ``prompt`` has the place ``{question}``; ``cache`` is a folder of answers.
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
        check_counts(num_passages=num_passages)
        if resources.text_encoder is None:
            raise ValueError("`text_encoder` must be given for hypothetical passages (encoder=...), got none")
        self.num_passages = num_passages
        self._resources, self._encoder = resources, resources.text_encoder
        self._model = remembering(language_model, cache)
        self._prompt = prompt or shipped_prompt("hyde_passage")
        self._prompt.fill(question="")

    def run(self, state: RetrievalState) -> RetrievalState:
        """Rewrite the queries."""
        with self._resources.clock("retrieve"):
            return replace(state, queries=self.rewrite(state.queries))

    def rewrite(self, queries: Queries) -> Queries:
        """Replace the vectors of the queries, which must have some."""
        rows = [row for row, text in enumerate(queries.texts) if text.strip()]
        if not rows:
            return queries
        questions = [self._prompt.fill(question=queries.texts[row]) for row in rows for _ in range(self.num_passages)]
        passages = self._model.ask(questions, system=self._prompt.instructions(), read=_passage)
        vectors = queries.encoded.clone()
        passage_vectors = self._encoder.encode(passages).to(vectors).view(len(rows), self.num_passages, -1)
        mean = (vectors[rows] + passage_vectors.sum(1)) / (self.num_passages + 1)
        vectors[rows] = torch.nn.functional.normalize(mean, dim=1)
        return replace(queries, vectors=vectors)


def _passage(answer: str) -> str:
    if not isinstance(answer, str) or not answer.strip():
        raise ValueError(f"the answer must be a passage, got {answer!r}")
    return answer
