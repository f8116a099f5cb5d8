"""Tables in Markdown."""

from collections.abc import Sequence

from graphrerank.utils.safe_loading import shown_name


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int = 1) -> str:
    """Return a table in Markdown, with right-aligned numbers.

    Args:
        header: Names of the columns.
        rows: Cells of each row.
        text_columns: Number of text columns, which are left-aligned.

    Returns:
        The table, without a line break at the end.

    Example:
        >>> print(markdown_table(["system", "nDCG@10"], [["base", "83.2"]]))
        | system | nDCG@10 |
        | --- | --: |
        | base | 83.2 |
    """
    rule = ["---"] * text_columns + ["--:"] * (len(header) - text_columns)
    return "\n".join(f"| {' | '.join(map(shown_name, line))} |" for line in [header, rule, *rows])
