"""Names of the files of a data set folder. Cheap to import: reader processes of documents use it."""

CORPUS = "corpus.jsonl"
#: Written by ``graphrerank index``: what was read, linked and left out of each file.
ACCOUNT = "index.json"
