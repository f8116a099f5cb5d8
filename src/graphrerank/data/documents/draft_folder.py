"""Draft questions of a data set folder, in a separate file."""

from collections.abc import Sequence
from pathlib import Path

from graphrerank.checks import UserError
from graphrerank.data.dataset import Dataset
from graphrerank.data.drafted_questions import DRAFTED, Draft, draft_questions
from graphrerank.data.readers.folder import AUTO
from graphrerank.files import write_json_lines
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, read_json

WORDS = "words"  # what drafts without a language model
MOST_PER_PASSAGE = 10  # of few passages, more questions would ask for the same words again


def draft_folder(
    folder: str | Path, count: int, *, model: ChatModel | None = None, drafted_by: str = WORDS, seed: int = 0
) -> int:
    """Write ``drafted.jsonl``: questions of single passages, and of two or three that ``data.edges=auto`` joins.

    At most ``count`` questions, and ten for each passage. Without a model they are words of their passages
    (:func:`~graphrerank.data.drafted_questions.draft_questions`); a model writes a question for each in their place,
    and drafts without a usable answer are left out. The number of questions is returned; 0, and no file, where no
    passage has the words for one.
    """
    graph = Dataset.from_folder(folder, edges=AUTO).graph
    drafts = draft_questions(graph, min(count, MOST_PER_PASSAGE * graph.num_nodes), seed=seed)
    if not drafts:
        return 0
    if model is not None:
        texts = graph.texts
        written = write_questions(model, [[texts[node] for node in draft.nodes] for draft in drafts])
        drafts = [Draft(text, draft.nodes) for text, draft in zip(written, drafts, strict=True) if text is not None]
        if not drafts:
            raise UserError(f"the language model {drafted_by} gave no usable question; ask another one")
    rows = (
        {"text": draft.text, "relevant": [graph.node_ids[node] for node in draft.nodes], "drafted_by": drafted_by}
        for draft in drafts
    )
    write_json_lines(Path(folder) / DRAFTED, rows)
    return len(drafts)


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
        raise UserError(f'the answer must be {{"question": "..."}}, got {content[:80]!r}')
    return " ".join(text.split())
