"""Draft questions of a data set folder, in a separate file."""

from pathlib import Path

from graphrerank.data.dataset import Dataset
from graphrerank.data.folder import AUTO
from graphrerank.data.synthetic_queries.questions import DRAFTED_FILE, MANY, REWORDED, draft_questions
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, parse_json_answer
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import write_json_lines

WORDS = "words"  # what drafts without a language model
MOST_PER_PASSAGE = 10  # of few passages, more questions would ask for the same words again


def draft_folder(
    folder: str | Path, count: int, *, model: ChatModel | None = None, drafted_by: str = WORDS, seed: int = 0
) -> int:
    """Write ``drafted.jsonl``: questions of single passages, of joined ones and of many, over ``data.edges=auto``.

    At most ``count`` questions, and ten for each passage. Without a model they are words of their passages
    (:func:`~graphrerank.data.synthetic_queries.questions.draft_questions`); a model writes a question for each in
    their place,
    none for many passages, and drafts without a usable answer are left out. The number of questions is returned; 0,
    and no file, where no passage has the words for one.

    Source: FastInsight, 2026, section 4.2.1, "synthetic query generation", whose prompt is not printed.
    """
    graph = Dataset.from_folder(folder, edges=AUTO).graph
    shares = {} if model is None else {MANY: 0, REWORDED: 0}
    drafts = draft_questions(graph, min(count, MOST_PER_PASSAGE * graph.num_nodes), shares=shares, seed=seed)
    if not drafts:
        return 0
    if model is not None:
        prompt, texts = shipped_prompt("drafted_question"), graph.texts
        groups = ("\n\n".join(f"- {texts[node]}" for node in draft.nodes) for draft in drafts)
        questions = [prompt.fill(passages=passages) for passages in groups]
        instructions = prompt.instructions()
        written = ask_strictly(model, questions, system=instructions, parse=parse_question, tries=3, form=prompt.form)
        drafts = [draft._replace(text=text) for text, draft in zip(written, drafts, strict=True) if text is not None]
        if not drafts:
            raise UserError(f"the language model {drafted_by} gave no usable question; ask another one")
    rows = (
        {"text": text, "relevant": [graph.node_ids[node] for node in nodes], "kind": kind, "drafted_by": drafted_by}
        for text, nodes, kind in drafts
    )
    write_json_lines(Path(folder) / DRAFTED_FILE, rows)
    return len(drafts)


def parse_question(content: str) -> str:
    """Parse an answer, strictly: a question that is not blank, in one line."""
    answer = parse_json_answer(content)
    text = answer.get("question") if isinstance(answer, dict) and set(answer) == {"question"} else None
    if not isinstance(text, str) or not text.strip():
        raise UserError(f'the answer must be {{"question": "..."}}, got {content[:80]!r}')
    return " ".join(text.split())
