import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization
from graphrerank.evaluation.tables import p_text
from graphrerank_papers.grapher.page import (
    PAGE_MEASURES,
    JudgedSet,
    ResultRow,
    ResultTables,
    draw_plot,
    render_page,
    seed_average,
)

SETS = [
    JudgedSet("spider", 876, 742, 200, 60, {50: 0.97, 200: 0.998}),
    JudgedSet("scifact", 5183, 0, 100, 0, {50: 0.9, 200: 0.95}),
]


def run(share: float, seed: int) -> dict[str, dict[str, torch.Tensor]]:
    """Yes and no per query; spider's first 60 queries have several relevant nodes, scifact's have none."""
    generator = torch.Generator().manual_seed(seed)
    values: dict[str, dict[str, torch.Tensor]] = {}
    for one in SETS:
        several = torch.arange(one.num_queries) < one.num_several
        for measure in ("PR@5", "PR@10"):
            hits = (torch.rand(one.num_queries, generator=generator) < share).double()
            values.setdefault(one.name, {})[measure] = hits
            values[one.name][f"{measure}/multi"] = hits.masked_fill(~several, torch.nan)
    return values


@pytest.fixture(scope="module")
def tables() -> ResultTables:
    trained = {"settings": "learning rate 0.003", "num_parameters": 30850, "seconds": [20.0, 22.0, 24.0]}
    rows = [
        ResultRow("retriever", "", [run(0.5, 0)]),
        ResultRow("PPR", "", [run(0.5, 1)], "restart probability 0.4"),
        ResultRow("GCS", "", [run(0.6, 2)], "restart probability 0.7"),
        ResultRow("MLP", "scores", [run(0.7, seed) for seed in (3, 4, 5)], **trained),
        ResultRow("GATv2", "scores", [run(0.9, seed) for seed in (6, 7, 8)], **trained),
    ]
    ablations = [ResultRow("GATv2", "scores", [run(0.9, 6)]), ResultRow("50 candidates", "scores", [run(0.3, 9)])]
    return ResultTables(
        command="python train.py experiment=grapher_tables paths.datasets=DIR",
        encoder="all-MiniLM-L6-v2",
        top_k=200,
        tuning="bird_train (5,940 queries)",
        search="trained on bird_train, judged on spider val (700 queries)",
        training="trained on bird_train and spider",
        grid="learning rate 0.001 or 0.003",
        tried={
            "learning rate 0.001": {"MLP `scores`": 0.7, "GATv2 `scores`": 0.81},
            "learning rate 0.003": {"MLP `scores`": 0.75, "GATv2 `scores`": 0.81},
        },
        sets=SETS,
        rows=rows,
        ablations=ablations,
        minutes=12.3,
        workers=2,
    )


def section(page: str, title: str) -> str:
    return re.split(r"^#+ ", page.split(f" {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def cells(text: str, first: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_a_cell_is_mean_deviation_and_interval(tables: ResultTables) -> None:
    row = tables.rows[-1]
    got = cells(section(render_page(tables), "spider"), "GATv2 `scores`")
    for measure, cell in zip(PAGE_MEASURES, got, strict=True):
        by_seed = torch.stack([100 * values["spider"][measure].nanmean() for values in row.runs])
        low, high = (100 * bootstrap_interval(seed_average(row.runs, "spider", measure))).tolist()
        assert cell == f"**{by_seed.mean():.1f}** ± {by_seed.std():.1f} [{low:.1f}, {high:.1f}]"


def test_one_run_has_no_deviation_and_no_query_has_a_dash(tables: ResultTables) -> None:
    page = render_page(tables)
    assert "±" not in cells(section(page, "spider"), "GCS")[3]
    assert cells(section(page, "scifact"), "GCS")[0] == "-"
    assert "nan" not in page.lower()


def test_the_highest_is_bold_by_number_not_by_text(tables: ResultTables) -> None:
    rows = [replace(tables.rows[0], runs=[run(1.0, 0)]), *tables.rows[1:]]
    column = [
        cells(section(render_page(replace(tables, rows=rows)), "scifact"), name)[3] for name in ("retriever", "GCS")
    ]
    assert column[0].startswith("**100.0**")
    assert not column[1].startswith("**")


def test_comparison_against_the_mlp_of_the_same_features(tables: ResultTables) -> None:
    other = ResultRow("MLP", "paper", [run(0.1, 11)])
    page = render_page(replace(tables, rows=[*tables.rows, other]))
    text = section(page, "What the graph and the training add")
    line = next(line for line in text.splitlines() if line.startswith("| GATv2 `scores` | spider |"))
    ours = seed_average(tables.rows[4].runs, "spider", "PR@10")
    for place, baseline in ((2, 0), (3, 2), (4, 3)):
        theirs = seed_average(tables.rows[baseline].runs, "spider", "PR@10")
        expected = f"{100 * (ours - theirs).mean():+.1f} ({p_text(float(paired_randomization(ours, theirs)))})"
        assert line.strip("|").split("|")[place].strip() == expected


def test_ablations_are_tested_against_their_first_row_and_ceilings_stand_beside(tables: ResultTables) -> None:
    text = section(render_page(tables), "Ablations")
    ours, theirs = (row.runs[0]["spider"]["PR@10"] for row in tables.ablations[::-1])
    expected = f"{100 * ours.mean():.1f} ({p_text(float(paired_randomization(ours, theirs)))})"
    assert cells(text, "50 candidates")[0] == expected
    assert cells(text, "ceiling with 50 candidates") == ["97.0", "90.0"]
    assert cells(text, "ceiling with 200 candidates") == ["99.8", "95.0"]
    assert "## Ablations" not in render_page(replace(tables, ablations=[]))


def test_all_that_was_tried_and_what_was_chosen(tables: ResultTables) -> None:
    text = section(render_page(tables), "Every setting that was tried")
    assert cells(text, "learning rate 0.001") == ["70.0", "**81.0**"]
    assert cells(text, "learning rate 0.003") == ["**75.0**", "81.0"]  # the first of equals is the chosen one
    one = dict([*tables.tried.items()][:1])
    assert "that was tried" not in render_page(replace(tables, tried=one))


def test_page_says_how_it_was_made(tables: ResultTables) -> None:
    page = render_page(tables, plot="results.png")
    for text in (
        tables.command, tables.encoder, tables.tuning, tables.search, tables.training, tables.grid, "3 seeds",
        "| 30,850 | 22 |", "12 minutes of one core, shared by 2 processes", "restart probability 0.7",
        "(results.png)", "| scifact | 5,183 | 0 | 100 | 0 | 95.0 |",
    ):  # fmt: skip
        assert text in page
    assert "](" not in render_page(tables)
    assert max(map(len, re.findall(r"^[^|!\n].*$", page, re.MULTILINE))) < 400


def test_tables_are_whole(tables: ResultTables) -> None:
    for table in re.findall(r"(?:^\|.*\|\n)+", render_page(tables), re.MULTILINE):
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_plot_is_a_png(tables: ResultTables, tmp_path: Path) -> None:
    draw_plot(tmp_path / "results.png", tables)
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")
