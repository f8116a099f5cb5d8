"""Build HippoRAG's data sets of 1,000 questions per corpus: HotpotQA, 2WikiMultihopQA, MuSiQue, NQ and PopQA."""

import json
from collections.abc import Mapping
from typing import Any

from graphrerank.data.readers.records import Record
from graphrerank_papers.builders.builder import DatasetWriter, builder
from graphrerank_papers.builders.raw_files import RawFiles


@builder(
    "hipporag",
    "HippoRAG's 1,000 questions",
    "that of the data set",
    "https://huggingface.co/datasets/osunlp/HippoRAG_2",
)
def hipporag(files: RawFiles, writer: DatasetWriter) -> None:
    """Build one of HippoRAG's data sets, with all questions in the split ``test``.

    The supporting passages of a question are looked up in the corpus by title and text, ignoring white space. If no
    passage matches both, the only passage with the same title is taken. The questions of NQ have no ids and are
    numbered.

    Source: Gutierrez et al. 2025, HippoRAG 2.

    Args:
        files: Files that include one ``<name>_corpus.json`` and the ``<name>.json`` with its questions.
        writer: Writer of the data set folder.

    Raises:
        ValueError: If a supporting passage is not in the corpus.
        UserError: If a file is missing or ambiguous.
    """
    corpus = files.one("*_corpus.json")
    name = corpus.stem.removesuffix("_corpus")
    by_text: dict[str, str] = {}
    by_title: dict[str, list[str]] = {}
    for i, passage in enumerate(corpus.records()):
        title, text = passage["title"], passage["text"]
        by_text.setdefault(_letters(title, text), f"{name}:{i}")
        by_title.setdefault(_letters(title), []).append(f"{name}:{i}")
        writer.document(f"{name}:{i}", title, text)
    for i, question in enumerate(files.one(f"{name}.json").records()):
        query_id = str(question.get("_id", question.get("id", f"{name}:q{i}")))
        writer.query(query_id, question["question"], **_answers(question))
        judged = []
        for title, text in _supporting(question):
            exact, same_title = by_text.get(_letters(title, text)), by_title.get(_letters(title), [])
            if exact is None and len(same_title) != 1:
                raise ValueError(f"supporting passages must be in the corpus, got {title!r}")
            judged.append(exact or same_title[0])
        writer.judge("test", query_id, *judged)


def _supporting(question: Record) -> list[tuple[str, str]]:
    """Return the title and the text of each supporting passage of a question, in any format of the data sets."""
    if "supporting_facts" in question:
        text_of = {title: "".join(sentences) for title, sentences in question["context"]}
        titles = dict.fromkeys(fact[0] for fact in question["supporting_facts"])
        return [(title, text_of.get(title, "")) for title in titles]
    listed = question["contexts"] if "contexts" in question else question["paragraphs"]
    return [
        (passage["title"], passage["text"] if "text" in passage else passage["paragraph_text"])
        for passage in listed
        if passage.get("is_supporting", True)
    ]


def _answers(question: Record) -> Mapping[str, Any]:
    key = next((name for name in ("answer", "reference", "gold_ans") if name in question), "obj")
    aliases = list(question.get("answer_aliases", []))
    for further in ("possible_answers", "o_aliases"):
        entry = question.get(further, [])
        aliases += json.loads(entry) if isinstance(entry, str) else entry
    return {"answer": question[key], "answer_aliases": aliases}


def _letters(*texts: str) -> str:
    return "\n".join("".join(text.split()) for text in texts)
