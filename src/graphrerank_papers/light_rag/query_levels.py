"""Low- and high-level keywords of questions, by a language model."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from graphrerank.checks import check_counts
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, read_json

LEVELS = ("low_level", "high_level")
Levels = tuple[list[str], list[str]]


@dataclass(eq=False)
class LanguageModelQueryLevels:
    """Asks a chat model for the keywords of each question on both levels.

    Source: Guo et al., "LightRAG", 2024, section 3.2, query keyword extraction. A blank question
    has no keywords and is not sent.
    """

    model: ChatModel  # best wrapped in an `AnswerCache`
    _: KW_ONLY
    tries: int = 3  # see `ask_strictly`
    # with the place `{question}`
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "light_rag_keywords"))
    skipped: list[str] = field(default_factory=list, init=False)  # questions without a usable answer, over all calls

    def __post_init__(self) -> None:
        check_counts(tries=self.tries)
        self.prompt.fill(question="")

    def find(self, questions: Sequence[str]) -> list[Levels]:
        """Return the low- and the high-level keywords of ``B`` questions, both empty without a usable answer."""
        rows = [row for row, question in enumerate(questions) if question.strip()]
        asked = [self.prompt.fill(question=questions[row]) for row in rows]
        answers = ask_strictly(
            self.model,
            asked,
            system=self.prompt.instructions(),
            parse=parse_levels,
            tries=self.tries,
            form=self.prompt.form,
        )
        levels: list[Levels] = [([], []) for _ in questions]
        for row, answer in zip(rows, answers, strict=True):
            if answer is None:
                self.skipped.append(questions[row])
            else:
                levels[row] = answer
        return levels


def parse_levels(content: str) -> Levels:
    """Parse an answer, strictly: one JSON object with the lists of strings ``low_level`` and ``high_level``.

    Example:
        >>> parse_levels('{"low_level": ["Metz", "Metz"], "high_level": []}')
        (['Metz'], [])
    """
    answer = read_json(content)
    if not isinstance(answer, dict) or set(answer) != set(LEVELS):
        raise ValueError(f"the answer must be a JSON object with the keys {list(LEVELS)}, got {content[:80]!r}")
    for name in LEVELS:
        words = answer[name]
        if not isinstance(words, list) or not all(isinstance(word, str) and word.strip() for word in words):
            raise ValueError(f"`{name}` must be a list of strings, none of them blank, got {str(words)[:80]!r}")
    low, high = (list(dict.fromkeys(word.strip() for word in answer[name])) for name in LEVELS)
    return low, high
