"""HotpotQA with distractors: questions over two Wikipedia passages, each among eight others.

Source: Yang et al. 2018, HotpotQA; files ``hotpot_train_v1.1.json`` and ``hotpot_dev_distractor_v1.json``.
"""

from graphrerank_papers.builders.draft import Draft
from graphrerank_papers.builders.multi_hop import draft_questions, hotpot_questions, split_files
from graphrerank_papers.builders.raw_files import RawFiles

FILES = {"train": ("hotpot_train*.json",), "dev": ("hotpot_dev*.json",)}


def build_hotpotqa(files: RawFiles, *, sample: int | None = None, seed: int = 0) -> Draft:
    """Read the splits that are there; see :func:`~graphrerank_papers.builders.multi_hop.draft_questions`."""
    return draft_questions("hotpot", hotpot_questions(split_files(files, FILES)), sample=sample, seed=seed)
