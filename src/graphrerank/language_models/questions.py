"""Questions of passages that belong together, by a language model."""

from collections.abc import Sequence

from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, read_json


def write_questions(
    model: ChatModel, groups: Sequence[Sequence[str]], *, tries: int = 3, prompt: Prompt | None = None
) -> list[str | None]:
    """Let a model write a question for each group of passages that needs all of them; None without a usable answer.

    ``prompt`` has the place ``{passages}``; None for the one that ships.

    Source: FastInsight, 2026, section 4.2.1, "synthetic query generation", whose prompt is not printed.
    """
    prompt = prompt or shipped_prompt("drafted_question")
    questions = [prompt.fill(passages="\n\n".join(f"- {passage}" for passage in passages)) for passages in groups]
    return ask_strictly(
        model, questions, system=prompt.instructions(), parse=parse_question, tries=tries, form=prompt.form
    )


def parse_question(content: str) -> str:
    """Parse an answer, strictly: a question that is not blank, in one line."""
    answer = read_json(content)
    text = answer.get("question") if isinstance(answer, dict) and set(answer) == {"question"} else None
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f'the answer must be {{"question": "..."}}, got {content[:80]!r}')
    return " ".join(text.split())
