"""File names in a data set folder. The module is cheap to import, because reader processes of documents use it."""

CORPUS = "corpus.jsonl"
#: Report of ``graphrerank index`` on the passages, links and skipped content of each file.
ACCOUNT = "index.json"
