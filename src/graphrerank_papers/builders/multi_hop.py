"""Build data sets of multi-hop questions: HotpotQA, 2WikiMultihopQA, MuSiQue and KET-RAG's benchmark.

The corpus is the union of the passages of all questions. The supporting passages of a question are relevant to it.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from graphrerank.data.readers.records import Record
from graphrerank.utils.checks import check_counts
from graphrerank_papers.builders.builder import DatasetWriter, builder
from graphrerank_papers.builders.raw_files import RawFiles

#: Title and text of a passage.
Passage = tuple[str, str]


@dataclass(frozen=True)
class HopQuestion:
    """Multi-hop question with its passages.

    Attributes:
        query_id: Id of the question.
        text: Text of the question.
        passages: Titles and texts of the passages, supporting ones and distractors.
        supporting: Indices of the supporting passages in ``passages``. Empty if the files list none.
        metadata: Metadata of the query, such as the answer.
        problem: Reason why the question cannot be judged, or an empty string.
    """

    query_id: str
    text: str
    passages: Sequence[Passage]
    supporting: Sequence[int]
    metadata: Mapping[str, Any]
    problem: str


Parse = Callable[[Record], HopQuestion]
#: Number of questions per split, or None for all, and the random seed of the sample.
Sample = tuple[int | None, int]


@builder("hotpotqa", "HotpotQA with distractors", "CC BY-SA 4.0", "https://hotpotqa.github.io")
def hotpotqa(files: RawFiles, writer: DatasetWriter, *, sample: int | None = None, seed: int = 0) -> None:
    """Build HotpotQA's distractor setting: questions about two Wikipedia passages among ten (Yang et al. 2018).

    Args:
        files: Files that include ``hotpot_train*.json`` or ``hotpot_dev*.json``.
        writer: Writer of the data set folder.
        sample: Number of questions to draw from each split. If None, all questions are used.
        seed: Random seed of the sample.

    Raises:
        UserError: If neither file is there, or ``sample`` is not a positive integer.
    """
    patterns = {"train": "hotpot_train*.json", "dev": "hotpot_dev*.json"}
    _write_questions(files, writer, "hotpot", hotpot_question, patterns, (sample, seed))


@builder(
    "2wikimultihopqa",
    "2WikiMultihopQA",
    "Apache-2.0 (text: Wikipedia, CC BY-SA)",
    "https://github.com/Alab-NII/2wikimultihop",
)
def two_wiki(files: RawFiles, writer: DatasetWriter, *, sample: int | None = None, seed: int = 0) -> None:
    """Build 2WikiMultihopQA: questions about two to four Wikipedia passages among ten (Ho et al. 2020).

    ``test.json`` is ignored because it has no labels.

    Args:
        files: Files that include ``train.json`` or ``dev.json``.
        writer: Writer of the data set folder.
        sample: Number of questions to draw from each split. If None, all questions are used.
        seed: Random seed of the sample.

    Raises:
        UserError: If neither file is there, or ``sample`` is not a positive integer.
    """
    patterns = {"train": "train.json", "dev": "dev.json"}
    _write_questions(files, writer, "2wiki", hotpot_question, patterns, (sample, seed))


@builder("musique", "MuSiQue", "CC BY 4.0", "https://github.com/stonybrooknlp/musique")
def musique(
    files: RawFiles, writer: DatasetWriter, *, sample: int | None = None, seed: int = 0, variant: str = "ans"
) -> None:
    """Build MuSiQue: questions of two to four hops about 20 paragraphs (Trivedi et al. 2022).

    Args:
        files: Files that include ``musique_<variant>_*train.jsonl`` or ``musique_<variant>_*dev.jsonl``.
        writer: Writer of the data set folder.
        sample: Number of questions to draw from each split. If None, all questions are used.
        seed: Random seed of the sample.
        variant: Variant of the data set, ``ans`` or ``full``. Unanswerable questions of ``full`` are dropped. The
            authors' archive contains both variants.

    Raises:
        UserError: If neither file is there, or ``sample`` is not a positive integer.
    """
    patterns = {split: f"musique_{variant}_*{split}.jsonl" for split in ("train", "dev")}
    _write_questions(files, writer, "musique", musique_question, patterns, (sample, seed))


@builder(
    "ketrag",
    "KET-RAG's benchmark",
    "Apache-2.0 (texts: those of MuSiQue, CC BY 4.0, and HotpotQA, CC BY-SA 4.0)",
    "https://github.com/waetr/KET-RAG",
)
def ketrag(files: RawFiles, writer: DatasetWriter) -> None:
    """Build KET-RAG's benchmark: 500 questions with answers, over a text with one untitled paragraph per line.

    The benchmark has no judgements. If ``files`` also include MuSiQue, HotpotQA or 2WikiMultihopQA, each question whose
    supporting paragraphs are all in the text gets them as judgements, in the split ``test_silver``.

    Source: Huang et al. 2025, KET-RAG.

    Args:
        files: Files that include ``document.txt`` and ``qa-pairs.json``.
        writer: Writer of the data set folder.

    Raises:
        UserError: If a file is missing or ambiguous.
    """
    doc_ids: dict[str, str] = {}
    for i, line in enumerate(files.one("input/document.txt", "document.txt").lines()):
        doc_ids.setdefault(_letters(line), f"ket:{i}")
        writer.document(f"ket:{i}", "", line.strip())
    origin = {
        question.query_id: question
        for parse, patterns in (
            (musique_question, ["musique*.jsonl"]),
            (hotpot_question, ["hotpot*.json", "train.json", "dev.json"]),  # the last two are 2WikiMultihopQA's
        )
        for file in files.matching(*patterns)
        for question in map(parse, file.records())
    }
    if not origin:
        writer.notes.append("The data set of the questions was not given: there are answers, and no judgements.")
    for record in files.one("qa-pairs.json").records():
        writer.query(record["id"], record["question"], answer=record["answer"])
        question = origin.get(record["id"])
        texts = [_letters(question.passages[i][1]) for i in question.supporting] if question else []
        if question is None and origin:
            writer.drop("judgement", record["id"], "the question is not in the files of its data set")
        elif question is not None and not (texts and doc_ids.keys() >= {*texts}):
            writer.drop("judgement", record["id"], "a supporting paragraph is not in the text")
        else:
            writer.judge("test_silver", record["id"], *(doc_ids[text] for text in texts))


def _write_questions(
    files: RawFiles, writer: DatasetWriter, prefix: str, parse: Parse, patterns: Mapping[str, str], sample: Sample
) -> None:
    """Write the questions of all splits in the files, and each distinct passage once."""
    # GraphER draws 2,000 questions of each split. The draw depends only on the seed and the ids.
    count, seed = sample
    check_counts(sample=count)
    files.matching(*patterns.values(), required=True)
    if count is not None:
        writer.notes.append(f"{count} questions of each split, drawn with seed {seed}.")
    doc_ids: dict[Passage, str] = {}
    for split, pattern in patterns.items():
        questions = [parse(record) for record in files.one(pattern).records()] if files.matching(pattern) else []
        ids = sorted((question.query_id for question in questions if not question.problem), key=partial(_drawn, seed))
        drawn = set(ids[:count])
        for question in questions:
            if question.problem and count is None:
                writer.drop("query", question.query_id, question.problem)
            elif question.query_id in drawn:
                context = [doc_ids.setdefault(passage, f"{prefix}:{len(doc_ids)}") for passage in question.passages]
                writer.query(question.query_id, question.text, **question.metadata, context=context)
                writer.judge(split, question.query_id, *(context[i] for i in question.supporting))
    for passage, doc_id in doc_ids.items():
        writer.document(doc_id, *passage)


def _drawn(seed: int, query_id: str) -> bytes:
    return hashlib.sha256(f"{seed}:{query_id}".encode()).digest()


def hotpot_question(record: Record) -> HopQuestion:
    """Parse a question in HotpotQA's format.

    Args:
        record: Object of the JSON file.

    Returns:
        Question with its passages. The sentences of each passage are joined into one text.
    """
    passages = [(title.strip(), join_sentences(sentences)) for title, sentences in record["context"]]
    titles = {title: i for i, (title, _) in reversed(list(enumerate(passages)))}
    wanted = list(dict.fromkeys(fact[0].strip() for fact in record.get("supporting_facts") or ()))
    problem = "" if wanted else "has no supporting facts"
    if any(title not in titles for title in wanted):
        problem = "has a supporting passage that is not among its passages"
    supporting = [] if problem else [titles[title] for title in wanted]
    metadata = {key: record.get(key) for key in ("answer", "type", "level", "evidences")}
    return HopQuestion(record["_id"], record["question"], passages, supporting, metadata, problem)


def musique_question(record: Record) -> HopQuestion:
    """Parse a question in MuSiQue's format.

    Args:
        record: Object of the JSONL file.

    Returns:
        Question with its paragraphs.
    """
    passages = [(each["title"].strip(), each["paragraph_text"].strip()) for each in record["paragraphs"]]
    supporting = [i for i, each in enumerate(record["paragraphs"]) if each.get("is_supporting")]
    problem = "" if supporting else "has no supporting paragraph"
    if not record.get("answerable", True):
        problem = "has no answer in its paragraphs"
    metadata = {key: record.get(key) for key in ("answer", "answer_aliases")}
    return HopQuestion(record["id"], record["question"], passages, supporting, metadata, problem)


def join_sentences(sentences: Sequence[str]) -> str:
    """Join sentences into a text, with exactly one separator between two of them.

    HotpotQA's sentences begin with a space and 2WikiMultihopQA's do not. A space is inserted only where there is no
    white space.

    Args:
        sentences: Sentences in order.

    Returns:
        Text without leading and trailing white space.

    Example:
        >>> join_sentences(["It walks.", " It works."]), join_sentences(["It walks.", "It works."])
        ('It walks. It works.', 'It walks. It works.')
    """
    text = ""
    for sentence in sentences:
        text += sentence if not text or text[-1].isspace() or sentence[:1].isspace() else f" {sentence}"
    return text.strip()


def _letters(text: str) -> str:
    return "".join(text.split())
