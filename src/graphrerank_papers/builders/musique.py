"""MuSiQue: questions of two to four hops over 20 paragraphs.

Source: Trivedi et al. 2022, MuSiQue; ``musique_ans_v1.0_train.jsonl`` and ``..._dev.jsonl``, or those of
``musique_full``, whose unanswerable questions are dropped.
"""

from graphrerank_papers.builders.draft import Draft
from graphrerank_papers.builders.multi_hop import draft_questions, musique_questions, split_files
from graphrerank_papers.builders.raw_files import RawFiles


def build_musique(files: RawFiles, *, sample: int | None = None, seed: int = 0, variant: str = "ans") -> Draft:
    """Read the splits that are there; see :func:`~graphrerank_papers.builders.multi_hop.draft_questions`.

    Args:
        files: The authors'.
        sample: Questions of each split; None for all.
        seed: Of the draw.
        variant: ``ans`` or ``full``; the authors' archive holds both.
    """
    names = {split: (f"musique_{variant}_*{split}.jsonl",) for split in ("train", "dev")}
    return draft_questions("musique", musique_questions(split_files(files, names)), sample=sample, seed=seed)
