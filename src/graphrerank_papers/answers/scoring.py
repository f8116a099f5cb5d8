"""Measures of written answers, a number for each question."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from graphrerank.metrics.coverage import coverage, normalize_answer
from graphrerank_papers.answers.measures import answer_f1, contain_match, exact_match

EM, F1, CONTAIN_MATCH, CONTEXT_COVERAGE = "EM", "F1", "Contain-Match", "Context-Coverage"
JUDGED = "Judged"  # accuracy by a model's verdict
SCORED = (EM, F1, CONTAIN_MATCH, CONTEXT_COVERAGE)
OF_TEXTS = {EM: exact_match, F1: answer_f1, CONTAIN_MATCH: contain_match}


def score_answers(
    said: Sequence[str | None], contexts: Sequence[str], right: Sequence[Sequence[str] | None]
) -> dict[str, Tensor]:
    """Score ``Q`` answers, each with the context that it was written from.

    Args:
        said: Answers; a blank one abstains, None is missing, as where the request failed.
        contexts: Packed contexts.
        right: Right answers of each question; empty if the data set says that there is none, None if unknown.

    Returns:
        ``[Q]`` float64 of each of :data:`SCORED`, in [0, 1]. Of a question without an answer, EM, F1 and Contain-Match
        are 1 if the answer abstains, else 0 (as in SQuAD 2.0), and Context-Coverage is NaN; of a question of which
        nothing is said, all are NaN. A missing answer has 0 in EM, F1 and Contain-Match.
    """
    scores = {name: torch.full((len(said),), torch.nan, dtype=torch.float64) for name in SCORED}
    for row, (text, context, answers) in enumerate(zip(said, contexts, right, strict=True)):
        if answers is None:
            continue
        for name, measure in OF_TEXTS.items():
            scores[name][row] = 0.0 if text is None else measure(text, answers) if answers else _abstains(text)
        if answers:
            scores[CONTEXT_COVERAGE][row] = coverage(context, answers)
    return scores


def _abstains(text: str) -> float:
    return float(not normalize_answer(text))


def question_kinds(num_relevant: Sequence[int], scores: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Group questions: ``[Q]`` bool of those with several relevant passages, with one, and without an answer.

    ``scores`` are those of any system (:func:`score_answers`). A question without an answer is in no other group;
    groups without a question are left out.
    """
    counts = torch.tensor(list(num_relevant))
    unanswerable = scores[CONTEXT_COVERAGE].isnan() & ~scores[EM].isnan()
    groups = {
        "multi-hop": (counts > 1) & ~unanswerable,
        "single-hop": (counts <= 1) & ~unanswerable,
        "unanswerable": unanswerable,
    }
    return {name: inside for name, inside in groups.items() if bool(inside.any())}
