"""Parse untrusted YAML into nodes, without constructing objects."""

from typing import Any

from graphrerank.installation.extras import optional
from graphrerank_documents.document import UnreadableError

#: Maximum depth of nested lists and mappings. The C parser of PyYAML crashes the process for very deep ones.
MAX_DEPTH = 100


def yaml_nodes(text: str, purpose: str) -> Any:
    """Return the root node of a YAML document.

    Args:
        text: YAML. It may be hostile.
        purpose: Purpose of the text, such as ``front matter``, for the message if PyYAML is not installed.

    Returns:
        Root node of PyYAML, or None if ``text`` is empty.

    Raises:
        UnreadableError: If ``text`` is not valid YAML, has several documents, or is nested too deeply.
        MissingExtraError: If PyYAML is not installed.

    Example:
        >>> yaml_nodes("a: [b, c]", "settings").tag
        'tag:yaml.org,2002:map'
    """
    yaml = optional("yaml", purpose)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise UnreadableError(f"YAML with more than {MAX_DEPTH} levels of nesting")
        return yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise UnreadableError(f"not valid YAML{f' (line {mark.line + 1})' if mark else ''}") from error
