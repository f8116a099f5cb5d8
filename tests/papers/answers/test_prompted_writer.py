from collections.abc import Iterator, Sequence

import pytest

from graphrerank.language_models.prompt import Prompt
from graphrerank.language_models.reply import Reply
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.prompted_writer import PromptedWriter


class Scripted:
    """Replies by a table of questions, and remembers what it was asked."""

    fingerprint = "scripted"

    def __init__(self, replies: dict[str, str]) -> None:
        self.table = replies
        self.asked: list[tuple[str | None, str]] = []

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        for index, question in enumerate(questions):
            self.asked.append((system, question))
            yield index, Reply(self.table[question], "answered", "m")


def test_each_filled_prompt_is_asked_once() -> None:
    model = Scripted({"c: q": " Metz\n", ": q": "I do NOT know it; sorry."})
    prompt = Prompt("short", "{context}: {question}", system="be short", abstention="I do not know")
    writer = PromptedWriter(model, prompt)
    replies = writer.write(["q", "q", "q"], [Context(("c",), 1), Context((), 0), Context(("c",), 1)])
    assert [reply.text for reply in replies] == ["Metz", "", "Metz"]
    assert model.asked == [("be short", "c: q"), ("be short", ": q")]
    assert writer.name == f"short {prompt.fingerprint}"
    with pytest.raises(ValueError, match=r"must have the places \['context', 'question'\], got \['query'\]"):
        PromptedWriter(model, Prompt("p", "{query}"))


def test_a_sentence_of_not_knowing_is_whole_words() -> None:
    model = Scripted({": a": "Canada", ": b": "N/A.", ": c": "It is N/A here", ": d": "the end is nigh"})
    writer = PromptedWriter(model, Prompt("p", "{context}: {question}", abstention="N/A"))
    replies = writer.write(["a", "b", "c", "d"], [Context((), 0)] * 4)
    assert [reply.text for reply in replies] == ["Canada", "", "", "the end is nigh"]
