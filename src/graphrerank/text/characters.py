"""Characters that every file can hold."""


def whole_characters(text: str) -> str:
    r"""Replace halves of characters, which no file can hold, as of an emoji that the limit of tokens cut.

    Example:
        >>> whole_characters("\ud83d \ud83d\ude00") == "\N{REPLACEMENT CHARACTER} \N{GRINNING FACE}"
        True
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
