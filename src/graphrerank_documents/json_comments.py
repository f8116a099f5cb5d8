"""JSON with comments and trailing commas, as in ``tsconfig.json`` and the settings of editors."""

import re

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")


def without_comments(text: str) -> str:
    """Return JSON without comments and trailing commas.

    Args:
        text: JSON with comments. Strings are unchanged.

    Example:
        >>> without_comments('{"a": "// b",} // c')
        '{"a": "// b"}  '
    """
    text = _COMMENT.sub(lambda found: found[0] if found[0].startswith('"') else " ", text)
    return _COMMA.sub(lambda found: found[0] if found[0].startswith('"') else "", text)
