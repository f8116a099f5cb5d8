"""Spider 1.0: which tables does a question need? Databases of train, dev and test are disjoint.

Source: Yu et al. 2018, Spider. The authors' archive holds ``tables.json``, ``train_spider.json``,
``train_others.json`` and ``dev.json``, and for the test split ``test_tables.json`` and ``test.json``; the split
``train_others`` are questions of older data sets.
"""

from graphrerank_papers.builders.draft import Draft
from graphrerank_papers.builders.raw_files import RawFiles
from graphrerank_papers.builders.table_retrieval import SqlQuestion, draft_tables, merge_databases, read_databases

SPLITS = {"train_spider.json": "train", "train_others.json": "train_others", "dev.json": "dev", "test.json": "test"}


def build_spider(files: RawFiles, *, only_asked: bool = False) -> Draft:
    """Read the schemas and the questions of the splits that are there.

    Args:
        files: The authors'.
        only_asked: Leave out databases that no question asks: ``test_tables.json`` has those of all splits.
    """
    schemas = [*files.matching("tables.json"), *files.matching("test_tables.json")]
    if not schemas:
        files.one("tables.json", "test_tables.json")
    databases = merge_databases([read_databases(file) for file in schemas])
    questions = [
        SqlQuestion(f"spider-{split}-{i}", record["question"], split, record["db_id"], record["query"])
        for name, split in SPLITS.items()
        for file in files.matching(name)
        for i, (_, record) in enumerate(file.records("question", "db_id", "query"))
    ]
    absent = [split for name, split in SPLITS.items() if not files.matching(name)]
    notes = [f"Splits whose files were not given: {', '.join(absent)}."] if absent else []
    asked = {each.database for each in questions}
    kept = [(base, None) for base in databases if base.name in asked or not only_asked]
    return draft_tables(kept, questions, notes=notes)
