"""Draft questions for the passages of a data set folder."""

from pathlib import Path

from graphrerank.data.dataset import Dataset
from graphrerank.data.folder import AUTO
from graphrerank.data.synthetic_queries.questions import DRAFTED_FILE, MANY, REWORDED, draft_questions
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, parse_json_answer
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import write_json_lines

#: Value of ``drafted_by`` for questions drafted without a language model.
WORDS = "words"
#: Maximum number of questions per passage on average. More questions would repeat the same words.
MOST_PER_PASSAGE = 10


def draft_folder(
    folder: str | Path, count: int, *, model: ChatModel | None = None, drafted_by: str = WORDS, seed: int = 0
) -> int:
    """Draft questions for a data set folder and write them to ``drafted.jsonl``.

    Questions refer to single passages, to passages connected by edges (``data.edges=auto``) and to many passages.
    Without a language model, a question consists of words of its passages (see
    :func:`~graphrerank.data.synthetic_queries.questions.draft_questions`). With a language model, the model writes each
    question. There are no questions about many passages then, and questions without a valid answer of the model are
    dropped.

    Source: FastInsight, 2026, section 4.2.1, "synthetic query generation". The paper does not give its prompt.

    Args:
        folder: Data set folder.
        count: Maximum number of questions. There are at most ten per passage.
        model: Language model that writes the questions. If None, questions consist of words of the passages.
        drafted_by: Name of the author of the questions, written to the file.
        seed: Random seed.

    Returns:
        Number of questions. If it is 0, because the passages have too few words, no file is written.

    Raises:
        ValueError: If the language model returned no valid question.
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
            raise UserError(f"the language model {drafted_by} returned no valid question. Choose another model")
    rows = (
        {"text": text, "relevant": [graph.node_ids[node] for node in nodes], "kind": kind, "drafted_by": drafted_by}
        for text, nodes, kind in drafts
    )
    write_json_lines(Path(folder) / DRAFTED_FILE, rows)
    return len(drafts)


def parse_question(content: str) -> str:
    """Parse the answer of a language model strictly.

    Args:
        content: Answer, which must be ``{"question": "..."}``.

    Returns:
        Question in one line.

    Raises:
        ValueError: If ``content`` has another form or the question is blank.
    """
    answer = parse_json_answer(content)
    text = answer.get("question") if isinstance(answer, dict) and set(answer) == {"question"} else None
    if not isinstance(text, str) or not text.strip():
        raise UserError(f'the answer must be {{"question": "..."}}, got {content[:80]!r}')
    return " ".join(text.split())
