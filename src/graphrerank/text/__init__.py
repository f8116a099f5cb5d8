"""Sentences, words, tokens and names of plain text."""

from graphrerank.text.keywords import find_keywords
from graphrerank.text.names import normalize_entity
from graphrerank.text.sentences import split_sentences
from graphrerank.text.shared_words import words_of
from graphrerank.text.stems import lead, words
from graphrerank.text.tokenizer import Tokenizer, TransformersTokenizer, WordTokenizer, count_tokens
from graphrerank.text.word_table import TextWords, WordTable

__all__ = [
    "TextWords",
    "Tokenizer",
    "TransformersTokenizer",
    "WordTable",
    "WordTokenizer",
    "count_tokens",
    "find_keywords",
    "lead",
    "normalize_entity",
    "split_sentences",
    "words",
    "words_of",
]
