"""Characters that every file can hold."""


def whole_characters(text: str) -> str:
    r"""Replace halves of characters, which no file can hold, as of an emoji that the limit of tokens cut."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
