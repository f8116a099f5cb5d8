"""KET-RAG's own benchmark: a text of one paragraph a line without titles, and 500 questions with answers.

Source: Huang et al. 2025, KET-RAG; ``ragtest-NAME/input/document.txt`` and ``qa-pairs.json`` of its repository. It has
no judgements. Where the data set that its questions come from is given too (the own files of MuSiQue, HotpotQA or
2WikiMultihopQA), a question whose supporting paragraphs all stand in the text is judged by them, in the split
``test_silver``.
"""

from graphrerank_papers.builders.draft import Draft, Dropped, Judgement, document, query
from graphrerank_papers.builders.multi_hop import HopQuestion, hotpot_questions, musique_questions
from graphrerank_papers.builders.raw_files import RawFiles


def build_ketrag(files: RawFiles) -> Draft:
    """Read one of the benchmarks."""
    lines = [line.strip() for _, line in files.one("input/document.txt", "document.txt").lines()]
    records = [record for _, record in files.one("qa-pairs.json").records("id", "question", "answer")]
    doc_ids: dict[str, str] = {}
    for i, line in enumerate(lines):
        doc_ids.setdefault(_letters(line), f"ket:{i}")
    origin = _origins(files)
    dropped: list[Dropped] = []
    judgements: list[Judgement] = []
    for record in records:
        if (question := origin.get(record["id"])) is None:
            dropped.extend([Dropped("judgement", record["id"], "the question is not in the files of its data set")])
            continue
        gold = [doc_ids.get(_letters(question.passages[place][1])) for place in question.supporting]
        if None in gold or not gold:
            dropped.append(Dropped("judgement", record["id"], "a supporting paragraph is not in the text"))
        else:
            judgements += [Judgement(record["id"], doc_id) for doc_id in dict.fromkeys(gold) if doc_id]
    return Draft(
        [document(f"ket:{i}", "", line) for i, line in enumerate(lines)],
        [query(record["id"], record["question"], answer=record["answer"]) for record in records],
        {"test_silver": judgements},
        dropped=dropped if origin else [],
        notes=[] if origin else ["The data set of the questions was not given: there are answers, and no judgements."],
    )


def _origins(files: RawFiles) -> dict[str, HopQuestion]:
    musique = [(file, "") for file in files.matching("musique*.jsonl")]
    hotpot = [
        (file, "") for file in files.matching("hotpot*.json", "train.json", "dev.json")
    ]  # 2WikiMultihopQA's form too
    return {each.query_id: each for each in (*musique_questions(musique), *hotpot_questions(hotpot))}


def _letters(text: str) -> str:
    return "".join(text.split())
