"""Characters that every file can hold, and those that words are matched in."""

import unicodedata


def whole_characters(text: str) -> str:
    r"""Replace halves of characters, which no file can hold, as of an emoji that the limit of tokens cut."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def matched_form(text: str) -> str:
    r"""Return a text in Unicode's NFKC, in which its words are matched: one form of accents, widths and ligatures.

    Example:
        >>> matched_form("\uff21\uff22\uff11 Zu\u0308rich \ufb01nds")
        'AB1 Zürich finds'
    """
    return text if text.isascii() else unicodedata.normalize("NFKC", text)
