"""What is done with text before any graph: names, sentences, entities and relations, the client of language models."""

from graphrerank.text.answer_cache import AnswerCache, ChatModel, remembering
from graphrerank.text.answer_judge import PairwiseJudge, Verdicts
from graphrerank.text.keywords import find_keywords
from graphrerank.text.knowledge import Entity, Knowledge, KnowledgeExtractor, Relation
from graphrerank.text.knowledge_cache import KnowledgeCache
from graphrerank.text.language_model import LanguageModel
from graphrerank.text.language_model_keywords import LanguageModelKeywords
from graphrerank.text.language_model_knowledge import LanguageModelKnowledgeExtractor
from graphrerank.text.local_language_model import TransformersLanguageModel
from graphrerank.text.map_reduce import CitedAnswer, MapReduceAnswers, Summary
from graphrerank.text.names import normalize_entity
from graphrerank.text.question_answering import answer_questions
from graphrerank.text.sentences import split_sentences
from graphrerank.text.spacy_knowledge import SpacyKnowledgeExtractor
from graphrerank.text.strict_answers import ask_strictly
from graphrerank.text.tokenizer import Tokenizer, TransformersTokenizer, WordTokenizer, count_tokens

__all__ = [
    "AnswerCache",
    "ChatModel",
    "CitedAnswer",
    "Entity",
    "Knowledge",
    "KnowledgeCache",
    "KnowledgeExtractor",
    "LanguageModel",
    "LanguageModelKeywords",
    "LanguageModelKnowledgeExtractor",
    "MapReduceAnswers",
    "PairwiseJudge",
    "Relation",
    "SpacyKnowledgeExtractor",
    "Summary",
    "Tokenizer",
    "TransformersLanguageModel",
    "TransformersTokenizer",
    "Verdicts",
    "WordTokenizer",
    "answer_questions",
    "ask_strictly",
    "count_tokens",
    "find_keywords",
    "normalize_entity",
    "remembering",
    "split_sentences",
]
