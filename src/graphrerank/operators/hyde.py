"""HyDE: search with the vectors of passages that a language model makes up."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from graphrerank.graphs import Queries
from graphrerank.language_models import ChatModel

PROMPT = "Please write a passage to answer the question.\nQuestion: {}\nPassage:"


class TextEncoder(Protocol):
    """Anything that turns texts into vectors."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode ``n`` texts as ``[n, d]`` float32 unit vectors."""


class HyDE:
    r"""Replace a query's vector by the mean of its own and those of hypothetical passages that answer it.

    .. math:: v_q \leftarrow \frac{1}{M + 1} \Bigl[ f(q) + \sum_{k=1}^{M} f(d_k) \Bigr]

    Source: Gao et al., *Precise Zero-Shot Dense Retrieval without Relevance Labels*, 2023, Eq. (8), with its 8
    passages, its temperature of 0.7 (the language model's) and its prompt for web search. *Where we differ:* the result
    is scaled to unit length, which changes no ranking by dot product; a query of white space keeps its vector.

    Args:
        language_model: Writes the passages; an :class:`~graphrerank.language_models.AnswerCache` keeps them.
        encoder: The encoder of the corpus.
        num_passages: ``M`` per query, at least 1.
        prompt: The question to the language model, with ``{}`` for the query.

    Raises:
        ValueError: If ``num_passages`` is below 1, or ``prompt`` has no ``{}``.
    """

    def __init__(
        self, language_model: ChatModel, encoder: TextEncoder, *, num_passages: int = 8, prompt: str = PROMPT
    ) -> None:
        if num_passages < 1:
            raise ValueError(f"`num_passages` must be a positive integer, got {num_passages}")
        if "{}" not in prompt:
            raise ValueError(f"`prompt` must hold {{}} for the query, got {prompt!r}")
        self.num_passages = num_passages
        self.prompt = prompt
        self._language_model = language_model
        self._encoder = encoder

    def rewrite(self, queries: Queries) -> Queries:
        """Give the queries other vectors.

        Raises:
            ValueError: If the queries have no vectors, or the language model gives no answer.
        """
        own = queries.encoded
        asked = [row for row, text in enumerate(queries.texts) if text.strip()]
        questions = [self.prompt.replace("{}", queries.texts[row]) for row in asked for _ in range(self.num_passages)]
        if not questions:
            return queries
        passages = self._language_model.ask(questions, system=None, read=_passage)
        made_up = self._encoder.encode(passages).to(own).view(len(asked), self.num_passages, -1)
        vectors = own.clone()
        mean = (own[asked] + made_up.sum(1)) / (self.num_passages + 1)
        vectors[asked] = torch.nn.functional.normalize(mean, dim=1)
        return replace(queries, vectors=vectors)


def _passage(answer: str) -> str:
    if not isinstance(answer, str) or not answer.strip():
        raise ValueError(f"needed a passage, got {answer!r}")
    return answer
