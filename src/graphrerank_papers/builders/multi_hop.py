"""Multi-hop questions that come with passages: their union is the corpus, their supporting passages are relevant."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphrerank.checks import check_counts
from graphrerank.data.readers.records import Record
from graphrerank_papers.builders.draft import Draft, Dropped, Judgement, document, query
from graphrerank_papers.builders.raw_files import RawFile, RawFiles

Passage = tuple[str, str]  # title and text


@dataclass(frozen=True)
class HopQuestion:
    """A question with its passages."""

    query_id: str
    text: str
    split: str
    passages: Sequence[Passage]
    supporting: Sequence[int]  # places in ``passages``; empty if the files do not say
    metadata: Mapping[str, Any] = field(default_factory=dict)
    trouble: str = ""  # why it cannot be judged


def draft_questions(prefix: str, questions: Iterable[HopQuestion], *, sample: int | None, seed: int) -> Draft:
    """Combine questions; equal passages are one document, in the order in which they first come.

    Args:
        prefix: Of the documents' ids.
        questions: Those of all splits.
        sample: Of each split keep this many questions and their passages alone, as GraphER does with 2,000; None: all.
        seed: Of the draw, which depends on nothing else but the questions' ids.
    """
    check_counts(sample=sample)
    doc_ids: dict[Passage, str] = {}
    queries: list[Record] = []
    qrels: dict[str, list[Judgement]] = {}
    dropped: list[Dropped] = []
    for each in _sampled(list(questions), sample, seed):
        if each.trouble:
            dropped.append(Dropped("query", each.query_id, each.trouble))
            continue
        context = [doc_ids.setdefault(passage, f"{prefix}:{len(doc_ids)}") for passage in each.passages]
        queries.append(query(each.query_id, each.text, **each.metadata, context=context))
        relevant = dict.fromkeys(context[place] for place in each.supporting)
        qrels.setdefault(each.split, []).extend(Judgement(each.query_id, doc_id) for doc_id in relevant)
    notes = [] if sample is None else [f"{sample} questions of each split, drawn with seed {seed}."]
    documents = [document(doc_id, *passage) for passage, doc_id in doc_ids.items()]
    return Draft(documents, queries, qrels, dropped=dropped, notes=notes)


def hotpot_questions(files: Sequence[tuple[RawFile, str]]) -> Iterator[HopQuestion]:
    """Read files in HotpotQA's format, each with the name of its split."""
    for file, split in files:
        for place, record in file.records("_id", "question", "context"):
            try:
                passages = [(title.strip(), join_sentences(sentences)) for title, sentences in record["context"]]
                titles = {title: i for i, (title, _) in reversed(list(enumerate(passages)))}
                wanted = list(dict.fromkeys(fact[0].strip() for fact in record.get("supporting_facts") or ()))
            except (TypeError, ValueError, AttributeError, IndexError) as error:
                raise ValueError(f"{place}: needed a question in HotpotQA's format ({error!r})") from error
            trouble = "" if wanted else "has no supporting facts"
            if any(title not in titles for title in wanted):
                trouble = "has a supporting passage that is not among its passages"
            supporting = [] if trouble else [titles[title] for title in wanted]
            metadata = {key: record.get(key) for key in ("answer", "type", "level", "evidences")}
            yield HopQuestion(record["_id"], record["question"], split, passages, supporting, metadata, trouble)


def musique_questions(files: Sequence[tuple[RawFile, str]]) -> Iterator[HopQuestion]:
    """Read files in MuSiQue's format, each with the name of its split."""
    for file, split in files:
        for place, record in file.records("id", "question", "paragraphs"):
            try:
                passages = [(each["title"].strip(), each["paragraph_text"].strip()) for each in record["paragraphs"]]
                supporting = [i for i, each in enumerate(record["paragraphs"]) if each.get("is_supporting")]
            except (TypeError, KeyError, AttributeError) as error:
                raise ValueError(f"{place}: needed a question in MuSiQue's format ({error!r})") from error
            trouble = "" if supporting else "has no supporting paragraph"
            if not record.get("answerable", True):
                trouble = "has no answer in its paragraphs"
            metadata = {key: record.get(key) for key in ("answer", "answer_aliases")}
            yield HopQuestion(record["id"], record["question"], split, passages, supporting, metadata, trouble)


def split_files(files: RawFiles, patterns: Mapping[str, Sequence[str]]) -> list[tuple[RawFile, str]]:
    """Find the file of each split, by patterns of its name; a ValueError if there is none at all."""
    found = []
    for split, names in patterns.items():
        if files.matching(*names):
            found.append((files.one(*names), split))
    if not found:
        files.one(*(name for names in patterns.values() for name in names))
    return found


def join_sentences(sentences: Sequence[str]) -> str:
    """Join sentences that may begin with their own blank, as HotpotQA's do, or not, as 2WikiMultihopQA's.

    Example:
        >>> join_sentences(["It walks.", " It works."]), join_sentences(["It walks.", "It works."])
        ('It walks. It works.', 'It walks. It works.')
    """
    text = ""
    for sentence in sentences:
        text += sentence if not text or text[-1].isspace() or sentence[:1].isspace() else f" {sentence}"
    return text.strip()


def _sampled(questions: list[HopQuestion], sample: int | None, seed: int) -> list[HopQuestion]:
    if sample is None:
        return questions
    order = sorted(questions, key=lambda each: hashlib.sha256(f"{seed}:{each.query_id}".encode()).digest())
    drawn: dict[str, set[str]] = {}
    for each in order:
        chosen = drawn.setdefault(each.split, set())
        if len(chosen) < sample and not each.trouble:
            chosen.add(each.query_id)
    return [each for each in questions if each.query_id in drawn[each.split]]
