"""BIRD: which tables of large databases does a question need?

Source: Li et al. 2023, BIRD. The authors' archives hold ``train.json`` with ``train_tables.json`` and ``dev.json`` with
``dev_tables.json``; databases of the two are disjoint, and ``metadata.split`` of a table says to which it belongs.
"""

from graphrerank_papers.builders.draft import Draft
from graphrerank_papers.builders.raw_files import RawFiles
from graphrerank_papers.builders.table_retrieval import SqlQuestion, draft_tables, read_databases

SPLITS = ("dev", "train")


def build_bird(files: RawFiles) -> Draft:
    """Read the schemas and the questions of the splits that are there."""
    given = [split for split in SPLITS if files.matching(f"{split}_tables.json", f"{split}.json")]
    notes = [f"The files of the split {split} were not given." for split in SPLITS if split not in given]
    if not given:
        files.one("train.json", "dev.json")
    databases = [(base, split) for split in given for base in read_databases(files.one(f"{split}_tables.json"))]
    questions = []
    for split in reversed(given):
        records = files.one(f"{split}.json").records("question", "db_id", "SQL")
        for i, (_, record) in enumerate(records):
            metadata = {key: record.get(key) for key in ("evidence", "difficulty")}
            questions.append(
                SqlQuestion(f"bird-{split}-{i}", record["question"], split, record["db_id"], record["SQL"], metadata)
            )
    return draft_tables(databases, questions, notes=notes)
