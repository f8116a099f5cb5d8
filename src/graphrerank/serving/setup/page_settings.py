"""Content of the web page before the first request."""

from itertools import islice
from pathlib import Path

from graphrerank.data.readers.records import read_jsonl
from graphrerank.serving.settings import PageSettings

NUM_QUESTIONS = 4  # number of questions of the data set that the page offers as examples
MAX_QUESTION = 300  # characters


def page_settings(name: str, index: Path | None = None, *, has_permissions: bool = False) -> PageSettings:
    """Return the content of the page before the first request.

    Args:
        name: Name of the artifact.
        index: Folder of the corpus that is searched. If None, the page reranks passages that people enter.
        has_permissions: Whether callers have principals. If they do, example questions are omitted because they could
            reveal hidden passages.

    Returns:
        The settings, with the first questions of the corpus as examples.
    """
    if index is None:
        return PageSettings(name)
    questions = [] if has_permissions else first_questions(index)
    return PageSettings(name, searches=True, questions=questions, corpus=index.absolute().name)


def first_questions(folder: Path) -> list[str]:
    """Return the first questions of a data set folder.

    Args:
        folder: Data set folder.

    Returns:
        At most four questions, each truncated to 300 characters. Empty if the folder has no ``queries.jsonl``.
    """
    file = folder / "queries.jsonl"
    if not file.is_file():
        return []
    texts = [record.get("text") for _, record in islice(read_jsonl(file), NUM_QUESTIONS)]
    return [text[:MAX_QUESTION] for text in texts if isinstance(text, str)]
