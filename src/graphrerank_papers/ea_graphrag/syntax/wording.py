"""Features of the words: their variety and kinds, the question they ask, markers of complexity."""

from collections import Counter

from graphrerank_papers.ea_graphrag.syntax.parsed_text import ParsedText
from graphrerank_papers.ea_graphrag.syntax.units import FINITE

MTLD_RATIO = 0.72  # share of different words at which a segment of text ends (McCarthy and Jarvis, 2010)
CONTENT = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM"})
PROPOSITIONAL = frozenset({"VERB", "ADJ", "ADV", "ADP", "CCONJ", "SCONJ"})
_CONNECTIVES = """
after also although as because before besides but consequently finally furthermore hence however if instead meanwhile
moreover nevertheless otherwise since so still then therefore though thus unless until when whereas whether while yet
"""
CONNECTIVES = frozenset(_CONNECTIVES.split())
QUESTION_WORDS = ("who", "what", "which", "when", "where", "why", "how")
AS_WHO = frozenset({"who", "whom", "whose"})

LEXICAL = {
    "type_token_ratio": "Different words per word.",
    "root_type_token_ratio": "Different words divided by the square root of words (Guiraud).",
    "mtld": "Mean words until the share of different ones falls below 0.72, in both directions (MTLD).",
    "share_hapaxes": "Share of words that occur once.",
    "mean_word_length": "Mean characters of a word.",
    "share_long_words": "Share of words with seven or more characters.",
    "num_content_words": "Nouns, verbs, adjectives, adverbs and numbers.",
    "num_function_words": "All other words.",
    "content_function_ratio": "Content words per function word.",
    "information_density": "Content words per token, punctuation included.",
    "propositional_density": "Verbs, adjectives, adverbs, prepositions and conjunctions per word.",
    "share_nouns": "Share of words that are common nouns.",
    "share_proper_nouns": "Share of words that are names.",
    "share_verbs": "Share of words that are verbs, without auxiliaries.",
    "share_adjectives": "Share of words that are adjectives.",
    "share_adverbs": "Share of words that are adverbs.",
    "share_pronouns": "Share of words that are pronouns.",
    "num_numbers": "Numbers.",
    "num_capitalized": "Capitalised words after the first token.",
}

QUESTION = {
    "is_question": "1 if the text asks: a question mark, or a question's word order.",
    **{f"asks_{word}": f"1 if the question's first question word is {word}." for word in QUESTION_WORDS},
    "asks_how_many": "1 if that word is how, before many, much or another measure.",
    "asks_yes_no": "1 for a question without question word.",
    "num_question_words": "Question words and relative pronouns (tags beginning with W).",
}

MARKERS = {
    "num_coordinators": "Coordinating conjunctions.",
    "num_subordinators": "Words that mark a subordinate clause.",
    "num_negations": "Negations.",
    "num_passives": "Passive verbs.",
    "num_modals": "Modal verbs.",
    "num_comparatives": "Comparatives.",
    "num_superlatives": "Superlatives.",
    "num_connectors": "Conjunctions, subordinating words and connecting adverbs.",
    "num_commas": "Commas, semicolons, colons and dashes.",
    "num_quotes_and_brackets": "Quotation marks and brackets.",
}


def lexical_features(text: ParsedText) -> dict[str, float]:
    """Return ``LEXICAL``; all 0 for a text without words."""
    words = [word for word, counted in zip(text.words, text.is_word, strict=True) if counted]
    kinds = Counter(kind for kind, counted in zip(text.pos, text.is_word, strict=True) if counted)
    frequency, total = Counter(words), max(1, len(words))
    content = sum(kinds[kind] for kind in CONTENT)
    function = len(words) - content
    return {
        "type_token_ratio": len(frequency) / total,
        "root_type_token_ratio": len(frequency) / total**0.5,
        "mtld": mtld(words),
        "share_hapaxes": sum(count == 1 for count in frequency.values()) / total,
        "mean_word_length": sum(map(len, words)) / total,
        "share_long_words": sum(len(word) >= 7 for word in words) / total,
        "num_content_words": content,
        "num_function_words": function,
        "content_function_ratio": content / max(1, function),
        "information_density": content / max(1, len(text)),
        "propositional_density": sum(kinds[kind] for kind in PROPOSITIONAL) / total,
        "share_nouns": kinds["NOUN"] / total,
        "share_proper_nouns": kinds["PROPN"] / total,
        "share_verbs": kinds["VERB"] / total,
        "share_adjectives": kinds["ADJ"] / total,
        "share_adverbs": kinds["ADV"] / total,
        "share_pronouns": kinds["PRON"] / total,
        "num_numbers": kinds["NUM"],
        "num_capitalized": sum(shape[:1].isupper() for shape in text.shapes[1:]),
    }


def question_features(text: ParsedText) -> dict[str, float]:
    """Return ``QUESTION``; all 0 for an empty text."""
    question_words = [
        index for index, tag in enumerate(text.tags) if tag[:1] == "W" and _question_word(text.words[index])
    ]
    opens = len(text) > 1 and (0 in question_words or _inverted(text))
    is_question = "?" in text.words or opens
    word = _question_word(text.words[question_words[0]]) if question_words and is_question else ""
    after = text.tags[question_words[0] + 1] if question_words and question_words[0] + 1 < len(text) else ""
    return {
        "is_question": is_question,
        **{f"asks_{name}": word == name for name in QUESTION_WORDS},
        "asks_how_many": word == "how" and after in {"JJ", "RB"},
        "asks_yes_no": is_question and not word,
        "num_question_words": sum(tag[:1] == "W" for tag in text.tags),
    }


def marker_features(text: ParsedText) -> dict[str, float]:
    """Return ``MARKERS``; all 0 for an empty text."""
    tags = Counter(text.tags)
    joining = sum(
        relation in {"cc", "mark"} or (relation == "advmod" and word in CONNECTIVES)
        for relation, word in zip(text.relations, text.words, strict=True)
    )
    return {
        "num_coordinators": tags["CC"],
        "num_subordinators": text.count("mark"),
        "num_negations": text.count("neg"),
        "num_passives": text.count("auxpass"),
        "num_modals": tags["MD"],
        "num_comparatives": tags["JJR"] + tags["RBR"],
        "num_superlatives": tags["JJS"] + tags["RBS"],
        "num_connectors": joining,
        "num_commas": tags[","] + tags[":"],
        "num_quotes_and_brackets": tags["``"] + tags["''"] + tags["-LRB-"] + tags["-RRB-"],
    }


def mtld(words: list[str]) -> float:
    """Return the measure of textual lexical diversity.

    Source: McCarthy and Jarvis, MTLD, vocd-D, and HD-D, 2010. *Where we differ:* without a repeated word no segment
    ends, and the number of words is returned.

    Example:
        >>> round(mtld("the cat saw the dog and the dog saw the cat".split()), 2)  # (11 / 1 + 11 / 1.893) / 2
        8.41
        >>> mtld("one two three".split())
        3.0
    """
    counts = [_num_segments(words), _num_segments(words[::-1])]
    return sum(len(words) / count if count else len(words) for count in counts) / 2


def _num_segments(words: list[str]) -> float:
    """Return the number of segments of text, with a fraction for the last one."""
    ended, seen, size = 0.0, set[str](), 0
    for word in words:
        seen.add(word)
        size += 1
        if len(seen) / size < MTLD_RATIO:
            ended, seen, size = ended + 1, set(), 0
    return ended + ((1 - len(seen) / size) / (1 - MTLD_RATIO) if size else 0.0)


def _question_word(word: str) -> str:
    if word in AS_WHO:
        return "who"
    return word if word in QUESTION_WORDS else ""


def _inverted(text: ParsedText) -> bool:
    """Return whether a finite verb comes first and its subject later."""
    if text.tags[0] not in FINITE:
        return False
    verb = text.heads[0] if text.relations[0] in {"aux", "auxpass"} else 0
    return any(
        relation.startswith("nsubj") and head == verb for relation, head in zip(text.relations, text.heads, strict=True)
    )
