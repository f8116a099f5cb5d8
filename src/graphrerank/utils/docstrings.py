"""Docstrings in Google style: read their entries, and describe arguments that several callables share in one place."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Described = TypeVar("Described", bound=Callable[..., Any])
_SECTION = re.compile(r"\n(?:Returns|Yields|Raises|Attributes|Example|Note):\n")
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


def with_entries(docstring: str, section: str, entries: Mapping[str, str]) -> str:
    r"""Return a docstring in which a section has the given entries. The section is added if it is missing.

    Args:
        docstring: Docstring in Google style.
        section: Name of the section, without the colon: ``Args`` or ``Attributes``.
        entries: Lines of each entry by name, in the form that :func:`docstring_entries` returns.

    Returns:
        Docstring without common indentation.

    Example:
        >>> docstring = "Cut.\n\nReturns:\n    Passages.\n"
        >>> print(with_entries(docstring, "Args", {"top_k": "    top_k: Number of passages."}))
        Cut.
        <BLANKLINE>
        Args:
            top_k: Number of passages.
        <BLANKLINE>
        Returns:
            Passages.
    """
    old = "\n".join(docstring_entries(docstring, section).values())
    text = inspect.cleandoc(docstring).replace(f"\n{section}:\n{old}", "", 1)
    match = _SECTION.search(text)
    start = len(text) if match is None else match.start()
    new = "\n".join(entries.values())
    return f"{text[:start].rstrip()}\n\n{section}:\n{new}\n\n{text[start:].strip()}".rstrip()


def arguments_from(*sources: Any) -> Callable[[Described], Described]:
    """Describe the arguments of a function or class that also belong to another one by the latter's docstring.

    The decorator adds the missing entries to the section ``Args:``, in the order of the signature. ``help`` and the
    reference then show every argument, and each description is written once.

    Args:
        *sources: Functions, classes or records whose docstrings have a section ``Args:`` or ``Attributes:``. The first
            one that describes an argument is used.

    Returns:
        Decorator that changes the docstring and returns the same object.

    Raises:
        TypeError: If no source describes an argument.

    Example:
        >>> def search(query, top_k):
        ...     '''Search.
        ...
        ...     Args:
        ...         query: Text of the query.
        ...         top_k: Number of passages.
        ...     '''
        >>> @arguments_from(search)
        ... def search_twice(query, top_k, second_query):
        ...     '''Search for two queries.
        ...
        ...     Args:
        ...         second_query: Text of the second query.
        ...     '''
        >>> print(search_twice.__doc__)
        Search for two queries.
        <BLANKLINE>
        Args:
            query: Text of the query.
            top_k: Number of passages.
            second_query: Text of the second query.
    """
    shared: dict[str, str] = {}
    for source in reversed(sources):
        for section in ("Attributes", "Args"):
            shared |= docstring_entries(source.__doc__, section)

    def describe(described: Described) -> Described:
        if described.__doc__ is None:  # Python runs with -OO
            return described
        own = docstring_entries(described.__doc__, "Args")
        names = [name for name in inspect.signature(described).parameters if name not in ("self", "cls")]
        if missing := [name for name in names if name not in own and name not in shared]:
            raise TypeError(f"{described.__qualname__}: no source describes {', '.join(missing)}")
        described.__doc__ = with_entries(
            described.__doc__, "Args", {name: own.get(name) or shared[name] for name in names}
        )
        return described

    return describe
