"""Language models: clients, a cache of answers, and the tasks that they perform."""

from graphrerank.language_models.answer_cache import AnswerCache, ChatModel, remembering
from graphrerank.language_models.answer_judge import PairwiseJudge, Verdicts
from graphrerank.language_models.client import LanguageModel
from graphrerank.language_models.keywords import LanguageModelKeywords
from graphrerank.language_models.local import TransformersLanguageModel
from graphrerank.language_models.map_reduce import CitedAnswer, MapReduceAnswers, Summary
from graphrerank.language_models.prompt import Prompt, in_form, is_schema, shipped_prompt
from graphrerank.language_models.recorded_model import RecordedModel
from graphrerank.language_models.reply import (
    ANSWERED,
    CUT,
    FAILED,
    OUTCOMES,
    REFUSED,
    REJECTED,
    UNUSABLE,
    Reply,
    ReplyingModel,
)
from graphrerank.language_models.reply_cache import ReplyCache, all_replies
from graphrerank.language_models.strict_answers import ask_strictly

__all__ = [
    "ANSWERED",
    "CUT",
    "FAILED",
    "OUTCOMES",
    "REFUSED",
    "REJECTED",
    "UNUSABLE",
    "AnswerCache",
    "ChatModel",
    "CitedAnswer",
    "LanguageModel",
    "LanguageModelKeywords",
    "MapReduceAnswers",
    "PairwiseJudge",
    "Prompt",
    "RecordedModel",
    "Reply",
    "ReplyCache",
    "ReplyingModel",
    "Summary",
    "TransformersLanguageModel",
    "Verdicts",
    "all_replies",
    "ask_strictly",
    "in_form",
    "is_schema",
    "remembering",
    "shipped_prompt",
]
