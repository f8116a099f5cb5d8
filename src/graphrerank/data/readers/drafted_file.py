"""``drafted.jsonl`` of a data set folder: questions that were drafted from its passages, and asked by nobody."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphrerank.data.drafted_questions import Draft
from graphrerank.data.readers.edge_list import FILTERED
from graphrerank.data.readers.records import bad_line, read_jsonl

DRAFTED = "drafted.jsonl"  # of its own, so that nothing takes drafts for questions that were asked and judged


def drafted_lines(drafts: Sequence[Draft], node_ids: Sequence[str], *, drafted_by: str) -> str:
    r"""Write drafts as the lines of the file.

    Example:
        >>> drafted_lines([Draft("lake moon", [1])], ["a", "b"], drafted_by="words")
        '{"text": "lake moon", "relevant": ["b"], "drafted_by": "words"}\n'
    """
    rows = [
        {"text": draft.text, "relevant": [node_ids[node] for node in draft.nodes], "drafted_by": drafted_by}
        for draft in drafts
    ]
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def read_drafted(path: Path, node_number: Mapping[str, int]) -> list[Draft]:
    """Read ``{"text": "...", "relevant": ["d1", ...]}``, one a line; other keys are ignored.

    A question that needs a document that is left out (a node number of -1) is left out, too.

    Raises:
        ValueError: If a line is not of that form, an id is not in the corpus, or no question is left; names file and
            line.
    """
    drafts = []
    for line, record in read_jsonl(path):
        text, relevant = record.get("text"), record.get("relevant")
        if not isinstance(text, str) or not text.strip():
            raise bad_line(path, line, needed="a `text` that is not blank", found=text)
        if not isinstance(relevant, list) or not relevant or not all(isinstance(doc_id, str) for doc_id in relevant):
            raise bad_line(path, line, needed='"relevant": [...], ids of the corpus, one at least', found=relevant)
        if unknown := [doc_id for doc_id in relevant if doc_id not in node_number]:
            raise bad_line(path, line, needed="ids of the corpus in `relevant`", found=unknown[0])
        nodes = [node_number[doc_id] for doc_id in dict.fromkeys(relevant)]
        if FILTERED not in nodes:
            drafts.append(Draft(text, nodes))
    if not drafts:
        raise ValueError(f"{path}: needed a question with documents of the corpus that are kept, found none")
    return drafts
