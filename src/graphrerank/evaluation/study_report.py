"""A study on the terminal and as Markdown."""

from collections.abc import Sequence

from graphrerank.evaluation.study import DatasetStudy, Study
from graphrerank.evaluation.study_notes import notes_of, title_of, verdicts
from graphrerank.evaluation.study_tables import across_table, dataset_tables, quality_table
from graphrerank.evaluation.tables import Cell, Table, markdown_table
from graphrerank.evaluation.terminal import print_table

SHOWN_TEXT = 120  # characters of a text of several sentences


def render_study(study: Study) -> str:
    """Write everything of a study as Markdown."""
    parts = ["# Systems side by side", f"`{study.command}`"]
    for dataset in study.datasets.values():
        parts += [f"## {title_of(dataset)}", _bullets([verdict.sentence for verdict in verdicts(dataset)])]
        for table in dataset_tables(dataset):
            parts += [f"### {table.title.capitalize()}", table.caption, _markdown(table)]
            if table.title == "quality":
                parts.append(_bullets(notes_of(dataset, study.settings.get("ties", "own"))))
    if study.across:
        table = across_table(study)
        parts += [f"## {table.title.capitalize()}", table.caption, _markdown(table)]
    return "\n\n".join(part for part in parts if part) + "\n"


def print_study(dataset: DatasetStudy, *, ties: str) -> None:
    """Print the quality of all systems, the ceiling, ties, missing queries, the results of the tests, and win rates.

    Means over queries with several relevant nodes (``/multi``) are left to the reports.
    """
    lines = [*notes_of(dataset, ties), *(verdict.line for verdict in verdicts(dataset))]
    shown = [measure for measure in dataset.measures if not measure.endswith("/multi")] or dataset.measures
    print_table(quality_table(dataset, shown), title=title_of(dataset), lines=lines)
    for table in dataset.tables:
        if table.printed:
            print_table(table, title=table.title)


def _bullets(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {_escaped(sentence)}" for sentence in sentences)


def _markdown(table: Table) -> str:
    rows = [[_markdown_cell(cell) for cell in row] for row in table.rows]
    return markdown_table([_escaped(name) for name in table.header], rows, text_columns=table.text_columns)


def _markdown_cell(cell: Cell) -> str:
    text = " ".join(cell.text.split())
    if cell.prose and len(text) > SHOWN_TEXT:
        text = f"{text[: SHOWN_TEXT - 3]}..."
    text = f"**{_escaped(text)}**" if cell.best else _escaped(text)
    return f"{text} ({_escaped(cell.note)})" if cell.note else text


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
