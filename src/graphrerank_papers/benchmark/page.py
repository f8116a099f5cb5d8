"""The page of the benchmark: rows that saw a set's train split apart from those that did not, and published rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphrerank.evaluation.tables import NOTHING, markdown_table
from graphrerank_papers.benchmark.published import PublishedRow


@dataclass(frozen=True, kw_only=True)
class MeasuredRow:
    """What a system reached on a data set."""

    title: str
    embedder: str
    language_model: str
    trained_on: Sequence[str]  # data sets; empty where nothing was trained
    saw_train: bool  # whether the set's own train split is among them
    published: str | None  # the published method that this is
    measures: Mapping[str, float]  # means, shares


@dataclass(frozen=True, kw_only=True)
class MeasuredSet:
    """A data set, and all systems on it."""

    name: str
    of: str  # the set whose published numbers are shown: its own name, or that of the set that it is a part of
    skipped: Sequence[str]  # rows that were not run
    passages: int
    edges: int
    questions: int  # of the split
    asked: int  # of them
    published_passages: int  # of the corpus that others publish on
    published_questions: int
    rows: Sequence[MeasuredRow]


def render_benchmark(
    sets: Sequence[MeasuredSet],
    missing: Sequence[str],
    published: Sequence[PublishedRow],
    *,
    command: str,
    measures: Sequence[str],
    notes: Sequence[str] = (),
) -> str:
    """Write the page in Markdown; ``missing`` names data sets that were not there, ``notes`` are the user's."""
    absent = ", ".join(f"`{name}`" for name in missing) or "none"
    parts = [
        f"# Benchmark\n\nWritten by\n\n```\n{command}\n```\n\n{HOW_TO_READ}\n\n"
        f"Data sets that were not at hand, and are not on this page: {absent}.",
        *(["\n".join(f"- {note}" for note in notes)] if notes else []),
    ]
    return "\n\n".join([*parts, *(_section(each, published, measures) for each in sets)]) + "\n"


def _section(each: MeasuredSet, published: Sequence[PublishedRow], measures: Sequence[str]) -> str:
    groups = {
        "Without this set's train questions": [row for row in each.rows if not row.saw_train],
        "Trained on this set's train questions": [row for row in each.rows if row.saw_train],
    }
    skipped = f" Not run here: {', '.join(each.skipped)}." if each.skipped else ""
    parts = [f"## {each.name}\n\n{_corpus(each)}{skipped}"]
    for title, rows in groups.items():
        table = _measured_table(rows, measures) if rows else "No row."
        parts.append(f"### {each.name}: {title.lower()}\n\n{table}")
    if others := [row for row in published if each.of in row.recall]:
        parts.append(f"### {each.name}: published, R@5\n\n{_published_table(each, others)}")
    return "\n\n".join(parts)


def _corpus(each: MeasuredSet) -> str:
    """Say what was searched and asked, and how that differs from what others publish on."""
    asked = f"{each.asked:,} questions" if each.asked == each.questions else f"{each.asked:,} of {each.questions:,}"
    ours = f"{each.passages:,} passages, {each.edges:,} edges, {asked}{' questions' if 'of' in asked else ''}."
    theirs = f"{each.published_passages:,} passages and {each.published_questions:,} questions"
    if _is_as_large(each):
        return f"{ours} Published numbers are of as many, {theirs}; the texts need not be the same."
    smaller = each.passages < each.published_passages
    easier = ", and fewer passages are easier to search" if smaller else ""
    return (
        f"{ours} **Not the corpus of published numbers**, which has {theirs}{easier}: "
        "no number of ours here compares with a published one."
    )


def _is_as_large(each: MeasuredSet) -> bool:
    return (each.passages, each.asked) == (each.published_passages, each.published_questions)


def _measured_table(rows: Sequence[MeasuredRow], measures: Sequence[str]) -> str:
    cells = [
        [
            row.title,
            row.embedder,
            row.language_model,
            ", ".join(row.trained_on) or "nothing",
            *(_percent(row.measures.get(measure)) for measure in measures),
        ]
        for row in rows
    ]
    return markdown_table(["system", "embedder", "language model", "trained on", *measures], cells, text_columns=4)


def _published_table(each: MeasuredSet, published: Sequence[PublishedRow]) -> str:
    embedders = list(dict.fromkeys(row.embedder for row in each.rows))
    part = "" if _is_as_large(each) else f" over {each.passages:,} passages"
    run = {row.published: row.measures["R@5"] for row in each.rows if row.published is not None}
    cells = [
        [
            row.method,
            row.source,
            row.embedder,
            row.language_model,
            f"{row.recall[each.of]:.1f}",
            f"{_percent(run[row.method])}{part}" if row.method in run else "not run",
        ]
        for row in published
    ]
    header = ["method", "source", "embedder", "language model", "published", f"run here, {', '.join(embedders)}"]
    return markdown_table(header, cells, text_columns=4)


def _percent(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.1f}"


HOW_TO_READ = """Percent, means over questions. *Trained on*: the data sets in the manifest of the row's checkpoint.
A row stands under *without this set's train questions* if neither the set nor a train split of it is among them.

Published rows are others' numbers, on their corpora, with their embedders and language models. Ours differ, always:
where even the numbers of passages and questions differ, the set says so. The last column of those tables is the
method as this project runs it, over our embedder and corpus, without a language model: it alone stands beside our
rows on equal terms."""
