"""Write summaries of limited length by selecting representative sentences or with a language model."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import numpy as np
from pydantic import Field
from torch import Tensor

from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, parse_object_answer
from graphrerank.text.tokenizer import Tokenizer, count_tokens
from graphrerank.utils.checks import UserError

#: Cosine similarity from which two sentences are treated as duplicates.
SAME_SENTENCE_COSINE = 0.95
#: Share of the limit at which selection stops. Sentences that would still fit are short and uninformative.
FULL_SHARE = 7 / 8
#: Number of words per token that the prompt requests, slightly fewer than fit.
WORDS_PER_TOKEN = 0.6


def pick_sentences(vectors: Tensor, num_tokens: Sequence[int], *, limit: int, centrality: float = 0.7) -> list[int]:
    r"""Select representative sentences greedily by maximal marginal relevance, until the limit is nearly reached.

    .. math:: \lambda \cos(s, \bar s) - (1 - \lambda) \max(0, \max_{p \in P} \cos(s, p))

    where :math:`\bar s` is the mean of all sentences and :math:`P` the set of selected sentences. Ties go to the
    earlier sentence. Near-duplicates of a selected sentence are skipped.

    Source: Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking for Reordering Documents and Producing
    Summaries", 1998. The query is replaced by the centroid of the document, as in Radev et al., "Centroid-based
    summarization of multiple documents", 2004.

    Args:
        vectors: Unit vectors of the sentences ``[n, d]``.
        num_tokens: Number of tokens of each sentence.
        limit: Maximum number of tokens of the selection.
        centrality: Weight :math:`\lambda` of the similarity to the mean, in [0, 1].

    Returns:
        Indices of the selected sentences, in the order of selection.

    Example:
        >>> import torch
        >>> east, north = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
        >>> pick_sentences(torch.stack([east, east, north]), [3, 3, 3], limit=9, centrality=0.5)
        [0, 2]
    """
    if not len(vectors):
        return []
    unit, tokens = vectors.numpy(), np.asarray(num_tokens)
    mean = unit.mean(axis=0)
    central = unit @ (mean / max(float(np.linalg.norm(mean)), 1e-12))
    nearest = np.zeros(len(unit))
    selected: list[int] = []
    used, is_free = 0, tokens <= limit
    while is_free.any() and used < FULL_SHARE * limit:
        best = int(np.where(is_free, centrality * central - (1 - centrality) * nearest, -np.inf).argmax())
        selected.append(best)
        used += int(tokens[best])
        nearest = np.maximum(nearest, unit @ unit[best])
        is_free[best] = False
        is_free &= (tokens <= limit - used) & (nearest < SAME_SENTENCE_COSINE)
    return selected


def write_summaries(
    model: ChatModel, notes: Sequence[Sequence[str]], tokenizer: Tokenizer, *, limit: int, prompt: Prompt | None = None
) -> list[str | None]:
    """Summarise lists of notes with a language model.

    Source: GraphRAG ("From Local to Global", 2024), section 3.1.4.

    Args:
        model: Chat model.
        notes: Lists of notes. No list may be empty.
        tokenizer: Tokenizer that measures the length of a summary.
        limit: Maximum number of tokens of a summary.
        prompt: Prompt with the placeholder ``{notes}``, and optionally ``{words}`` in its system message. If None, the
            shipped prompt ``summary`` is used.

    Returns:
        Summary of each list, or None if the model gave no usable answer.
    """
    prompt = prompt or shipped_prompt("summary")
    questions = [prompt.fill(notes="\n".join(f"- {note}" for note in texts)) for texts in notes]
    system = prompt.instructions(words=max(1, int(WORDS_PER_TOKEN * limit)))
    read = partial(parse_summary, tokenizer=tokenizer, limit=limit)
    return ask_strictly(model, questions, system=system, parse=read, form=prompt.form)


def parse_summary(content: str, *, tokenizer: Tokenizer, limit: int) -> str:
    """Parse an answer that must be a JSON object with a ``summary``.

    Args:
        content: Answer of a language model.
        tokenizer: Tokenizer that measures the length of the summary.
        limit: Maximum number of tokens.

    Returns:
        Text of the summary.

    Raises:
        ValueError: If the answer has another form, or the summary is empty or too long.
    """
    summary: str = parse_object_answer(content, summary=Annotated[str, Field(min_length=1)]).summary
    (length,) = count_tokens(tokenizer, [summary])
    if length > limit:
        raise UserError(f"the summary must have at most {limit} tokens, got {length}")
    return summary
