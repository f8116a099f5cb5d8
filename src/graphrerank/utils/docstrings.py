"""Entries of docstrings in Google style."""

import inspect
import re

_ENTRY = re.compile(r"    \*{0,2}(\w+): ")


def docstring_entries(docstring: str | None, section: str) -> dict[str, str]:
    r"""Return the entries of a section of a docstring, such as ``Args`` or ``Attributes``.

    Args:
        docstring: Docstring in Google style, or None.
        section: Name of the section, without the colon.

    Returns:
        Lines of each entry by name, indented as in a docstring without common indentation.

    Example:
        >>> docstring_entries("Cut.\n\nArgs:\n    top_k: Number of\n        passages.\n", "Args")
        {'top_k': '    top_k: Number of\n        passages.'}
    """
    _, _, text = inspect.cleandoc(docstring or "").partition(f"\n{section}:\n")
    entries: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            break  # the next section
        if match := _ENTRY.match(line):
            name = match[1]
            entries[name] = line
        elif name:
            entries[name] += f"\n{line}"
    return entries
