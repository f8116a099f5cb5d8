"""Unicode normalisation of text."""

import unicodedata


def whole_characters(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode. They occur where a token limit has cut an emoji.

    Args:
        text: Text that may contain lone surrogates.

    Returns:
        Text that can be encoded in UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def matched_form(text: str) -> str:
    r"""Return a text in Unicode normalisation form NFKC, which unifies accents, character widths and ligatures.

    Args:
        text: Text to normalise.

    Returns:
        Normalised text, in which words are matched.

    Example:
        >>> matched_form("\uff21\uff22\uff11 Zu\u0308rich \ufb01nds")
        'AB1 Zürich finds'
    """
    return text if text.isascii() else unicodedata.normalize("NFKC", text)
