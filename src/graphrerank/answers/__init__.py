"""Answers from retrieved passages: packed, written, scored and compared."""

from graphrerank.answers.answer_counts import AnswerCounts, Price
from graphrerank.answers.correctness_judge import CorrectnessJudge
from graphrerank.answers.extractive_reader import ExtractiveReader
from graphrerank.answers.map_reduce_writer import CitedReply, MapReduceWriter
from graphrerank.answers.packing import Context, Packing, passages_of
from graphrerank.answers.prompted_writer import PromptedWriter, Writer
from graphrerank.answers.scoring import ANSWER_MEASURES, KIND_MEASURES, question_kinds, score_answers
from graphrerank.answers.stage import AnswerStage, SystemAnswers

__all__ = [
    "ANSWER_MEASURES",
    "KIND_MEASURES",
    "AnswerCounts",
    "AnswerStage",
    "CitedReply",
    "Context",
    "CorrectnessJudge",
    "ExtractiveReader",
    "MapReduceWriter",
    "Packing",
    "Price",
    "PromptedWriter",
    "SystemAnswers",
    "Writer",
    "passages_of",
    "question_kinds",
    "score_answers",
]
