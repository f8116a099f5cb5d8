"""Summaries of limited length: by selecting representative sentences, or by a language model."""

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

SAME_SENTENCE_COSINE = 0.95  # cosine from which two sentences count as equal
FULL_SHARE = 7 / 8  # share of the limit from which nothing is added: what still fits is short and uninformative
WORDS_PER_TOKEN = 0.6  # requested by the prompt: slightly less than fits


def pick_sentences(vectors: Tensor, num_tokens: Sequence[int], *, limit: int, centrality: float = 0.7) -> list[int]:
    r"""Select sentences greedily by their score until the limit is nearly reached or none fits.

    .. math:: \lambda \cos(s, \bar s) - (1 - \lambda) \max(0, \max_{p \in P} \cos(s, p))

    where :math:`\bar s` is the mean over all sentences and :math:`P` the selection; ties go to the earlier sentence. A
    sentence that equals a selected one is skipped.

    Source: Carbonell and Goldstein, "The Use of MMR", 1998, with the document's centroid instead of a query (Radev et
    al., "Centroid-based summarization of multiple documents", 2004).

    ``vectors`` are ``[n, d]`` unit vectors, ``centrality`` is :math:`\lambda`; positions in the order of selection.

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
    """Let a model summarise each list of notes, none empty, in ``limit`` tokens; None without a usable answer.

    Source: GraphRAG ("From Local to Global", 2024, section 3.1.4). ``prompt`` has the placeholder ``{notes}``, and
    ``{words}`` in its system message.
    """
    prompt = prompt or shipped_prompt("summary")
    questions = [prompt.fill(notes="\n".join(f"- {note}" for note in texts)) for texts in notes]
    system = prompt.instructions(words=max(1, int(WORDS_PER_TOKEN * limit)))
    read = partial(parse_summary, tokenizer=tokenizer, limit=limit)
    return ask_strictly(model, questions, system=system, parse=read, form=prompt.form)


def parse_summary(content: str, *, tokenizer: Tokenizer, limit: int) -> str:
    """Parse a summary, strictly: not blank, at most ``limit`` tokens."""
    summary: str = parse_object_answer(content, summary=Annotated[str, Field(min_length=1)]).summary
    (length,) = count_tokens(tokenizer, [summary])
    if length > limit:
        raise UserError(f"the summary must have at most {limit} tokens, got {length}")
    return summary
