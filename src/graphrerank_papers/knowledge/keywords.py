"""Find the keywords of a text: its words without stop words."""

import re
from itertools import filterfalse

from graphrerank.text.languages import CHARACTERS, ENGLISH, language_of

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_POSSESSIVE = re.compile(r"'s?$")
_ENGLISH = """
a about above across after again against all almost alone along already also although always am among an and another
any anybody anyone anything are aren't around as at away back be became because become becomes been before behind
being below between both but by came can can't cannot come could couldn't did didn't do does doesn't doing don't
done down during each either else enough even ever every everybody everyone everything few first for from further
get gets getting give given go goes going gone got had hadn't has hasn't have haven't having he he'd he'll he's her
here hers herself him himself his how however i i'd i'll i'm i've if in indeed instead into is isn't it it's its
itself just last least less let let's like made make makes many may maybe me might mine more most mostly much must
mustn't my myself neither never no nobody none nor not nothing now nowhere of off often on once one only onto or
other others otherwise our ours ourselves out over own per perhaps put quite rather really same say says seem seemed
seems several shall shan't she she'd she'll she's should shouldn't since so some somebody someone something
sometimes still such than that that's the their theirs them themselves then there therefore these they they'd
they'll they're they've this those though through throughout thus to together too toward towards under until up upon
us use used using various very via was wasn't we we'd we'll we're we've well were weren't what what's whatever when
where where's whether which while who who's whole whom whose why will with within without won't would wouldn't yet
you you'd you'll you're you've your yours yourself yourselves
"""
STOP_WORDS = frozenset(_ENGLISH.split())


def find_keywords(text: str, language: str = ENGLISH) -> list[str]:
    """Return the unique words of a text in lower case, without stop words and single letters.

    Keywords are in order of first occurrence. They are not stemmed, because they are shown to users. In scripts without
    spaces, they are pairs of characters.

    Source: "KET-RAG", 2025, section 5.1. The paper does not list its stop words.

    Args:
        text: Text to analyse.
        language: Name of the language in :mod:`graphrerank.text.languages`. Use ``characters`` for scripts without
            spaces.

    Example:
        >>> find_keywords("Who was the author of Lothair's 855 letters, and of the letters to O'Neill?")
        ['author', 'lothair', '855', 'letters', "o'neill"]
    """
    if language != ENGLISH:
        rules = language_of(language)
        runs = [run for run in _WORD.findall(text.casefold()) if len(run) > 1 or not run.isascii()]
        is_cut = language == CHARACTERS
        return list(
            dict.fromkeys(rules.all_terms(runs) if is_cut else filterfalse(rules.stop_words.__contains__, runs))
        )
    keywords: dict[str, None] = {}
    for word in _WORD.findall(text.casefold().replace("’", "'")):  # noqa: RUF001
        stem = _POSSESSIVE.sub("", word)
        if (len(stem) > 1 or not stem.isascii()) and stem not in STOP_WORDS and word not in STOP_WORDS:
            keywords[stem] = None
    return list(keywords)
