"""2WikiMultihopQA: questions over two to four Wikipedia passages, among ten.

Source: Ho et al. 2020, 2WikiMultihopQA; ``train.json`` and ``dev.json`` of ``data_ids_april7.zip``, in HotpotQA's
format. Its ``test.json`` has no labels and is not read.
"""

from graphrerank_papers.builders.draft import Draft
from graphrerank_papers.builders.multi_hop import draft_questions, hotpot_questions, split_files
from graphrerank_papers.builders.raw_files import RawFiles

FILES = {"train": ("train.json",), "dev": ("dev.json",)}


def build_two_wiki(files: RawFiles, *, sample: int | None = None, seed: int = 0) -> Draft:
    """Read the splits that are there; see :func:`~graphrerank_papers.builders.multi_hop.draft_questions`."""
    return draft_questions("2wiki", hotpot_questions(split_files(files, FILES)), sample=sample, seed=seed)
