"""Edges between passages that mention each other's titles, for corpora without hyperlinks.

All texts are searched in one Aho-Corasick pass over words. Because the automaton's letters are words and not
characters, matches start and end at word boundaries. Accents, punctuation and HTML entities are normalised first, so
"A. J. Mintu" matches "A J Mintu".
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import le

import ahocorasick
import torch
from torch import Tensor

from graphrerank.utils.checks import UserError

MAX_OWNERS = 2  # A name of more passages is ambiguous and ignored.
# A name that is mentioned in more than `MIN_COMMON` passages and in a larger share of the corpus is ignored.
MAX_MENTION_SHARE = 0.02
MIN_COMMON = 10
MIN_CHARACTERS = 3  # Shorter names are ignored.

NameWords = tuple[str, ...]  # Words in lower case.
Owner = tuple[bool, bool]  # Whether the first and the last word of a name are capitalised.

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"  # In scripts without spaces, each character is a word.
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_DISAMBIGUATION = re.compile(r"\s*\([^()]*\)\s*$")
_OPENING = re.compile(r"\s*(.{3,80}?)\s*(?:\(|,? (?:is|was|are|were) )", re.DOTALL)


def find_mentions(titles: Sequence[str], texts: Sequence[str]) -> Tensor:
    """Find the passages whose text mentions the name of another passage, in time linear in the corpus.

    A passage has up to four names, in order of strength: its title; its title without a trailing parenthesis such as
    "(film)"; the name that opens its text, if it has at least two words and shares one with the title ("Harnam Singh
    Rawail (21 August ..." for the passage "H. S. Rawail"); and the title up to the first comma, if this part has at
    least two words. A name belongs only to the passages for which it is strongest. Short names and names without a
    letter ("1984") are ignored.

    A mention is counted if its first and last word are capitalised wherever those of the name are, so a lower-case
    title matches any case. It must not lie inside a longer mention ("York" in "New York").

    The thresholds were chosen on the training questions of 2WikiMultihopQA and HotpotQA, by the share of questions
    whose relevant passages are all in the top 30 or one hop from them. On these, ignoring case or counting mentions
    inside longer ones adds edges without improving that share.

    Args:
        titles: Titles of the ``n`` passages. A passage without a title has an empty one and is never mentioned.
        texts: Texts of the ``n`` passages, without the titles.

    Returns:
        Sorted pairs (mentioning passage, mentioned passage), ``[M, 2]`` int64.

    Raises:
        UserError: If the arguments differ in length.

    Example:
        >>> titles = ["Laila Majnu (1976 film)", "H. S. Rawail"]
        >>> texts = ["Laila Majnu is directed by Harnam Singh Rawail.", "Harnam Singh Rawail (born 1921) made films."]
        >>> find_mentions(titles, texts)
        tensor([[0, 1]])
    """
    if len(titles) != len(texts):
        raise UserError(
            f"`titles` and `texts` must have one entry per passage, got {len(titles)} titles and {len(texts)} texts"
        )
    owners = _names(titles, texts)
    clear = [len(bearers) <= MAX_OWNERS for bearers in owners.values()]
    mentions: dict[int, list[tuple[int, int]]] = {}
    mentioning: Counter[int] = Counter()  # Number of mentioning passages by name.
    mentioned = _searching(owners)
    for source, text in enumerate(texts):
        for name, bearers in mentioned(text).items():
            if clear[name] and source not in bearers:
                mentioning[name] += 1
                mentions.setdefault(name, []).extend((source, node) for node in bearers)
    limit = max(MIN_COMMON, MAX_MENTION_SHARE * len(titles))
    common = {name for name, count in mentioning.items() if count > limit}
    pairs = {pair for name, named_pairs in mentions.items() if name not in common for pair in named_pairs}
    return torch.tensor(sorted(pairs), dtype=torch.int64).reshape(-1, 2)


def split_words(text: str) -> list[str]:
    """Split a text into words without accents, punctuation and HTML entities.

    Args:
        text: Text to split.

    Returns:
        Words in their original case.
    """
    if "&" in text:
        text = html.unescape(text)
    if not text.isascii():
        text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return _WORD.findall(text)


def _names(titles: Sequence[str], texts: Sequence[str]) -> dict[NameWords, dict[int, Owner]]:
    """Return the passages of each name. A name belongs only to the passages for which it is strongest."""
    tiers: list[dict[NameWords, dict[int, Owner]]] = [{} for _ in range(5)]
    for node, (title, text) in enumerate(zip(titles, texts, strict=True)):
        for tier, words in _names_of(title, text):
            name = tuple(word.lower() for word in words)
            length = sum(map(len, name)) + len(name) - 1
            if words and length >= MIN_CHARACTERS and any(char.isalpha() for word in name for char in word):
                owner = (words[0][0].isupper(), words[-1][0].isupper())
                tiers[tier].setdefault(name, {}).setdefault(node, owner)
    # Later entries override earlier ones, so the strongest tier is last.
    return {name: bearers for tier in reversed(tiers) for name, bearers in tier.items()}


def _names_of(title: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the words of each name of a passage with its tier. Tier 0 is the strongest."""
    title_words = split_words(title)
    yield 0, title_words
    yield 1, split_words(_DISAMBIGUATION.sub("", title))
    opening = _OPENING.match(text)
    if opening is not None:
        words = split_words(opening[1])
        if len(words) > 1 and {word.lower() for word in words} & {word.lower() for word in title_words}:
            yield 3, words
    head = split_words(title.partition(",")[0])
    if len(head) > 1:
        yield 4, head


def _searching(owners: Mapping[NameWords, Mapping[int, Owner]]) -> Callable[[str], dict[int, list[int]]]:
    """Return a function that maps a text to the names mentioned in it (by number) and their passages."""
    all_bearers = [list(bearers.items()) for bearers in owners.values()]
    vocabulary = {word: number for number, word in enumerate({word for name in owners for word in name}, start=1)}
    automaton = ahocorasick.Automaton(ahocorasick.STORE_ANY, ahocorasick.KEY_SEQUENCE)
    for number, name in enumerate(owners):
        automaton.add_word(tuple(vocabulary[word] for word in name), (number, len(name)))
    automaton.make_automaton()

    def mentioned(text: str) -> dict[int, list[int]]:
        words = split_words(text)
        letters = tuple(vocabulary.get(word.lower(), 0) for word in words)
        spans = []
        for last, (name, length) in automaton.iter(letters) if owners and letters else ():
            first = last - length + 1
            written = (words[first][0].isupper(), words[last][0].isupper())
            if bearers := [node for node, owner in all_bearers[name] if all(map(le, owner, written))]:
                spans.append((first, -last, name, bearers))
        bearers_of: dict[int, list[int]] = {}
        reached = -1
        for _, negative_last, name, bearers in sorted(spans):
            if -negative_last > reached:  # Otherwise, the span lies inside a longer mention.
                reached = -negative_last
                bearers_of[name] = sorted({*bearers_of.get(name, ()), *bearers})
        return bearers_of

    return mentioned
