"""Keywords that the answer to a question may contain, by a language model: further words for lexical search."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from graphrerank.checks import check_counts
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, read_json


@dataclass(eq=False)
class LanguageModelKeywords:
    """Asks a chat model for the keywords of each question.

    Source: ReTAG, section 3.3: keywords generated from the question and a description of the data set. A
    blank question has no keywords and is not sent.
    """

    model: ChatModel  # best wrapped in an `AnswerCache`
    _: KW_ONLY
    num_keywords: int = 15  # maximum of a question
    tries: int = 3  # see `ask_strictly`
    # with the places `{collection}` and `{question}`, and `{limit}` in the system message
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "retag_keywords"))
    skipped: list[str] = field(default_factory=list, init=False)  # questions without a usable answer, over all calls

    def __post_init__(self) -> None:
        check_counts(num_keywords=self.num_keywords)
        self.prompt.fill(collection="", question="")

    def find(self, questions: Sequence[str], descriptions: Sequence[str]) -> list[list[str]]:
        """Return the keywords of ``B`` questions, each with a description of what is searched."""
        rows = [row for row, question in enumerate(questions) if question.strip()]
        messages = [self.prompt.fill(collection=descriptions[row], question=questions[row]) for row in rows]
        system = self.prompt.instructions(limit=self.num_keywords)
        answers = ask_strictly(
            self.model, messages, system=system, parse=parse_keywords, tries=self.tries, form=self.prompt.form
        )
        keywords: list[list[str]] = [[] for _ in questions]
        for row, answer in zip(rows, answers, strict=True):
            if answer is None:
                self.skipped.append(questions[row])
            else:
                keywords[row] = answer[: self.num_keywords]
        return keywords


def parse_keywords(content: str) -> list[str]:
    """Parse an answer, strictly: one JSON object with a list of strings as ``keywords``; duplicates are dropped."""
    answer = read_json(content)
    keywords = answer.get("keywords") if isinstance(answer, dict) and len(answer) == 1 else None
    if not isinstance(keywords, list) or not all(isinstance(word, str) and word.strip() for word in keywords):
        raise ValueError(f'the answer must be {{"keywords": ["...", ...]}}, got {content[:80]!r}')
    return list(dict.fromkeys(word.strip() for word in keywords))
