"""HippoRAG's sets of 1,000 questions over one corpus each: HotpotQA, 2WikiMultihopQA, MuSiQue, NQ and PopQA.

Source: Gutierrez et al. 2025, HippoRAG 2; the files ``NAME.json`` and ``NAME_corpus.json`` of its data set on the hub.
A question's supporting passage is the corpus passage with the same title and text, ignoring white space, or else the
only one with that title. Questions of NQ come without ids and are named by their places.
"""

import json
from collections.abc import Mapping
from typing import Any

from graphrerank.data.readers.records import Record
from graphrerank_papers.builders.draft import Draft, Judgement, document, query
from graphrerank_papers.builders.raw_files import RawFiles


def build_hipporag(files: RawFiles) -> Draft:
    """Read the questions and the corpus, for the split ``test``."""
    corpus_file = files.one("*_corpus.json")
    name = corpus_file.name.rsplit("/", 1)[-1].removesuffix(".gz").removesuffix("_corpus.json")
    questions_file = files.one(f"{name}.json")
    try:
        corpus, questions = corpus_file.json(), questions_file.json()
        ids = [f"{name}:{i}" for i in range(len(corpus))]
        by_text = {_key(p["title"], p["text"]): doc_id for p, doc_id in reversed(list(zip(corpus, ids, strict=True)))}
        by_title: dict[str, list[str]] = {}
        for passage, doc_id in zip(corpus, ids, strict=True):
            by_title.setdefault(_key(passage["title"], ""), []).append(doc_id)
        judgements = []
        question_ids = [str(q.get("_id", q.get("id", f"{name}:q{place}"))) for place, q in enumerate(questions)]
        for query_id, question in zip(question_ids, questions, strict=True):
            for title, text in _supporting(question):
                exact, same_title = by_text.get(_key(title, text)), by_title.get(_key(title, ""), [])
                if exact is None and len(same_title) != 1:
                    raise ValueError(
                        f"{questions_file.label}: needed supporting passages of the corpus, found {title!r}"
                    )
                judgements.append(Judgement(query_id, exact or same_title[0]))
        documents = [document(i, p["title"], p["text"]) for i, p in zip(ids, corpus, strict=True)]
        queries = [
            query(query_id, q["question"], **_answers(q)) for query_id, q in zip(question_ids, questions, strict=True)
        ]
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{corpus_file.label}, {questions_file.label}: not HippoRAG's form ({error!r})") from error
    return Draft(documents, queries, {"test": list(dict.fromkeys(judgements))})


def _supporting(question: Record) -> list[tuple[str, str]]:
    """List title and text of a question's supporting passages, in the form of HotpotQA, MuSiQue, or NQ and PopQA."""
    if "supporting_facts" in question:
        text_of = {title: "".join(sentences) for title, sentences in question["context"]}
        return [
            (title, text_of.get(title, "")) for title in dict.fromkeys(fact[0] for fact in question["supporting_facts"])
        ]
    listed = question["contexts"] if "contexts" in question else question["paragraphs"]
    return [
        (each["title"], each["text"] if "text" in each else each["paragraph_text"])
        for each in listed
        if each.get("is_supporting", True)
    ]


def _answers(question: Record) -> Mapping[str, Any]:
    """Read the answers, under the names that the five sets give them."""
    key = next(name for name in ("answer", "reference", "gold_ans", "obj") if name in question)
    answer, aliases = question[key], list(question.get("answer_aliases", []))
    for further in ("possible_answers", "o_aliases"):
        entry = question.get(further, [])
        aliases += json.loads(entry) if isinstance(entry, str) else entry
    return {"answer": answer, "answer_aliases": aliases}


def _key(title: str, text: str) -> str:
    return "".join(title.split()) + "\n" + "".join(text.split())
