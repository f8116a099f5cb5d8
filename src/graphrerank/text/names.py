"""Normalisation of entity names, so that different spellings match."""

import html
import re
import unicodedata

_APOSTROPHES = str.maketrans("\u2019\u2018\u02bc`", "''''")
_POSSESSIVE = re.compile(r"'s\b|(?<=s)'(?=\s|$)", re.IGNORECASE)
_NOT_WORD = re.compile(r"[\W_]+")
_ARTICLES = frozenset({"a", "an", "the"})


def normalize_entity(name: str) -> str:
    """Normalise the name of an entity: remove case, accents, punctuation, possessives and leading articles.

    Args:
        name: Name as written in a text. HTML entities are decoded.

    Returns:
        Normalised name. Empty if the name consists only of articles and punctuation.

    Example:
        >>> [normalize_entity(name) for name in ("The  Beatles'", "Lothair II's", "U.S.", "Bahrām Beyzāie", "the")]
        ['beatles', 'lothair ii', 'us', 'bahram beyzaie', '']
    """
    name = unicodedata.normalize("NFKD", html.unescape(name))
    name = "".join(char for char in name if not unicodedata.combining(char))
    name = _POSSESSIVE.sub("", name.translate(_APOSTROPHES)).replace(".", "").replace("'", "")
    words = _NOT_WORD.sub(" ", name.casefold()).split()
    while words and words[0] in _ARTICLES:
        del words[0]
    return " ".join(words)
