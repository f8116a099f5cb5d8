"""Answers from retrieved passages: packed, written, scored and compared."""

from graphrerank.answers.packing import Context, Packing, passages_of
from graphrerank.answers.scoring import ANSWER_MEASURES, question_kinds, score_answers

__all__ = ["ANSWER_MEASURES", "Context", "Packing", "passages_of", "question_kinds", "score_answers"]
