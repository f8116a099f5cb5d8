"""Summaries by a language model, of limited length."""

from collections.abc import Sequence
from functools import partial

from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, read_json
from graphrerank.text.tokenizer import Tokenizer, count_tokens

WORDS_PER_TOKEN = 0.6  # requested by the prompt: slightly less than fits


def write_summaries(
    model: ChatModel,
    notes: Sequence[Sequence[str]],
    tokenizer: Tokenizer,
    *,
    limit: int,
    tries: int = 3,
    prompt: Prompt | None = None,
) -> list[str | None]:
    """Let a model summarise each list of notes, none empty; None without a usable answer.

    ``limit`` is the maximum number of tokens of a summary; longer answers are rejected. ``prompt`` has the place
    ``{notes}``, and ``{words}`` in its system message; None for the one that ships.

    Source: GraphRAG ("From Local to Global", 2024, section 3.1.4).
    """
    prompt = prompt or shipped_prompt("summary")
    questions = [prompt.fill(notes="\n".join(f"- {note}" for note in texts)) for texts in notes]
    system = prompt.instructions(words=max(1, int(WORDS_PER_TOKEN * limit)))
    read = partial(parse_summary, tokenizer=tokenizer, limit=limit)
    return ask_strictly(model, questions, system=system, parse=read, tries=tries, form=prompt.form)


def parse_summary(content: str, *, tokenizer: Tokenizer, limit: int) -> str:
    """Parse a summary, strictly: not blank, at most ``limit`` tokens."""
    answer = read_json(content)
    text = answer.get("summary") if isinstance(answer, dict) and set(answer) == {"summary"} else None
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f'the answer must be {{"summary": "..."}}, got {content[:80]!r}')
    (length,) = count_tokens(tokenizer, [text.strip()])
    if length > limit:
        raise ValueError(f"the summary must have at most {limit} tokens, got {length}")
    return text.strip()
