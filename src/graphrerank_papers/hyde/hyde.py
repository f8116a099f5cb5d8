"""HyDE: search by the vectors of passages that a language model writes."""

from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial

import torch

from graphrerank.checks import check_counts
from graphrerank.graphs import Queries
from graphrerank.graphs.queries import TextEncoder
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt


@dataclass(eq=False)
class HyDE:
    r"""Replace a query's vector by the mean of its own and those of hypothetical passages that answer it.

    .. math:: v_q \leftarrow \frac{1}{M + 1} \Bigl[ f(q) + \sum_{k=1}^{M} f(d_k) \Bigr]

    Source: Gao et al., *Precise Zero-Shot Dense Retrieval without Relevance Labels*, 2023, Eq. (8), with its 8
    passages, its temperature of 0.7 (set in the language model) and its prompt for web search. *Where we differ:* the
    result is normalised, which changes no ranking by dot product; a blank query keeps its vector.
    """

    language_model: ChatModel  # writes the passages; best wrapped in an `AnswerCache`
    encoder: TextEncoder  # of the corpus
    _: KW_ONLY
    num_passages: int = 8  # `M` per query
    # with the place `{question}`
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "hyde_passage"))

    def __post_init__(self) -> None:
        check_counts(num_passages=self.num_passages)
        self.prompt.fill(question="")

    def rewrite(self, queries: Queries) -> Queries:
        """Replace the vectors of the queries, which must have some."""
        rows = [row for row, text in enumerate(queries.texts) if text.strip()]
        questions = [self.prompt.fill(question=queries.texts[row]) for row in rows for _ in range(self.num_passages)]
        vectors = queries.encoded.clone()
        if not questions:
            return queries
        passages = self.language_model.ask(questions, system=self.prompt.instructions(), read=_passage)
        passage_vectors = self.encoder.encode(passages).to(vectors).view(len(rows), self.num_passages, -1)
        mean = (vectors[rows] + passage_vectors.sum(1)) / (self.num_passages + 1)
        vectors[rows] = torch.nn.functional.normalize(mean, dim=1)
        return replace(queries, vectors=vectors)


def _passage(answer: str) -> str:
    if not isinstance(answer, str) or not answer.strip():
        raise ValueError(f"the answer must be a passage, got {answer!r}")
    return answer
