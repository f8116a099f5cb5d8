"""Numbers that a page repeats are those of their source: a generated table, a file that ships, or a model."""

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from graphrerank.config.components import ComponentFactory, build_component
from graphrerank.models.checkpoint import PRETRAINED
from graphrerank.serving.feedback_log import FeedbackSettings
from graphrerank.serving.limits import Limits
from graphrerank_papers.benchmark import PUBLISHED
from tests.support import ROOT

DOCS = ROOT / "docs"
#: Data sets of the first table of docs/base.md that also have probabilities.
TEST_SETS = ("spider", "bird", "2wikimultihopqa", "hotpotqa", "scifact", "nfcorpus", "attack")
Rows = Mapping[str, list[str]]


def read(path: Path) -> str:
    """Return a page's text with single spaces in place of line breaks, so that a sentence can be searched for."""
    return " ".join(path.read_text(encoding="utf-8").split())


def table(page: Path, heading: str) -> Rows:
    """Return the first table under a heading: the cells of each row by the row's first cell, without bold type."""
    _, section = ("\n" + page.read_text(encoding="utf-8")).split(f"\n{heading}\n", 1)
    lines = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)[0].splitlines()
    rows = [[cell.strip().strip("*") for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in rows if not set(row[0]) <= set("-: ")}


def test_points_lost_without_edges_are_those_of_the_table() -> None:
    over_shuffled, _, over_none, _ = table(DOCS / "base.md", "## Does the graph help?")["2wikimultihopqa"]
    lost = f"{over_shuffled.removeprefix('+')} points of PR@5"
    assert re.search(rf"{re.escape(lost)}\D+{re.escape(over_none.removeprefix('+'))}\D", read(DOCS / "evaluating.md"))


def test_calibration_error_of_base_is_that_of_the_table() -> None:
    rows = table(DOCS / "base.md", "## Probabilities")
    errors = {name: float(rows[name][2]) for name in TEST_SETS}
    on_nfcorpus = errors.pop("nfcorpus")
    said = f"{min(errors.values()):.3f} to {max(errors.values()):.3f} on six test splits and {on_nfcorpus:.3f} on"
    assert said in read(DOCS / "evaluating.md")


def test_gains_on_the_home_page_are_those_of_readme() -> None:
    rows = table(ROOT / "README.md", "## Does it help on corpora that it never saw?")
    home = read(DOCS / "index.md")
    for corpus, said in (("multi-hop passages", "from {} to {}"), ("encyclopedia, English", "{} and {} on an English")):
        _, retriever, _, base, *_ = rows[corpus]
        assert said.format(retriever, base) in home
    german, chinese = (rows[f"encyclopedia, {language}"] for language in ("German", "Chinese"))
    languages = read(DOCS / "your_data.md")
    assert f"nDCG@10 is {german[3]} in German and {chinese[3]} in Chinese" in languages
    assert f"that of the retriever {german[1]} and {chinese[1]} " in languages


def test_gain_of_the_trained_model_is_that_of_readme() -> None:
    """The example in README prints the rows of the trained models, with two digits."""
    printed = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = table(DOCS / "training.md", "## When does training pay?")
    for name, row in (
        ("retriever", "retriever"),
        ("MLP", "trained, without the graph (MLP)"),
        ("GATv2", "trained (GATv2)"),
    ):
        cells = [float(cell) for cell in re.search(rf"│{name} +│(.*)│", printed)[1].split("│")]
        assert rows[row] == [f"{cells[column]:.1f}" for column in (1, 4, 5)]
    base, trained = (float(rows[row][2]) for row in ("`base`", "trained (GATv2)"))
    assert f"is {trained - base:.1f} points of nDCG@10 above `base`" in read(DOCS / "training.md")
    assert f"training gained {trained - base:.1f} points of nDCG@10" in read(DOCS / "ten_minutes.md")
    assert f"a trained model gains {trained - base:.1f} points" in read(DOCS / "tour.md")
    assert f"an nDCG@10 of {base}, and the model that `graphrerank train` trains on 3,720 others {trained}." in read(
        ROOT / "README.md"
    )


def test_size_of_base_is_that_of_its_files() -> None:
    size = sum(file.stat().st_size for file in (PRETRAINED / "base").iterdir() if file.is_file())
    assert f"The checkpoint takes {size / 1000:.0f} KB" in read(DOCS / "compare.md")


@pytest.mark.parametrize(
    ("network", "features"), [("MLP", "scores"), ("GATv2", "scores"), ("MLP", "paper"), ("GATv2", "paper")]
)
def test_parameters_of_grapher_are_those_of_the_models(network: str, features: str) -> None:
    parts = ComponentFactory()
    message_passing = "true" if network == "GATv2" else "false"
    config = parts.compose("+model=gatv2", f"+features={features}", f"model.message_passing={message_passing}")
    count = sum(weight.numel() for weight in build_component(config.model).parameters())
    assert f"{count:,} ({network} `{features}`)" in read(DOCS / "papers" / "grapher.md")


def test_multi_hop_results_are_those_of_the_table_of_base() -> None:
    source = table(DOCS / "base.md", "## All data sets")["2wikimultihopqa"]
    retriever_r5, base_r5, *others = source[2:12]
    rows = table(DOCS / "expand_then_rerank.md", "# Expand, then rerank")
    shown = {name: [rows[name][1], rows[name][3], rows[name][4]] for name in ("retriever", "PPR", "GCS", "`base`")}
    assert shown["retriever"][0] == retriever_r5
    assert shown["`base`"][0] == base_r5
    assert [shown[name][1] for name in shown] == others[:4]
    assert [shown[name][2] for name in shown] == others[4:]


def test_published_numbers_of_the_page_are_those_of_the_benchmark() -> None:
    page = (DOCS / "papers" / "benchmark.md").read_text(encoding="utf-8")
    lines = page.split("| method | source | embedder |", 1)[1].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    shown = sorted((row[0], row[2], *row[4:7]) for row in cells)
    sets = ("2wikimultihopqa", "hotpotqa", "musique")
    assert shown == sorted(
        (entry["method"], entry["embedder"], *(str(entry["R@5"].get(name, "")) for name in sets))
        for entry in json.loads(PUBLISHED.read_text(encoding="utf-8"))
    )


def test_limits_of_the_security_page_are_the_defaults() -> None:
    limits, log = Limits(), FeedbackSettings()
    security, feedback = read(ROOT / "SECURITY.md"), read(DOCS / "feedback.md")
    bodies = f"{limits.body_bytes >> 20} MiB, {limits.json_nodes:,} brackets and colons"
    assert f"Bodies have at most {bodies}" in security
    assert f"{limits.documents:,} documents and {limits.edges:,} edges" in security
    assert f"`feedback.days`, {log.days} by default" in feedback
    assert f"`feedback.max_bytes`, {log.max_bytes >> 20} MiB by default" in feedback


@pytest.mark.parametrize(
    ("script", "page"),
    [
        ("base_table", "base"),
        ("ablation_table", "ablations"),
        ("edge_robustness", "edge_robustness"),
        ("compare_peers", "compare"),
    ],
)
def test_a_generated_page_has_the_text_of_its_script(script: str, page: str) -> None:
    """The page of left_out_table.py is left out, because it was measured with an earlier `base` and says so."""
    template = page_template(ROOT / "benchmarks" / f"{script}.py")
    text = read(DOCS / f"{page}.md")
    paragraphs = [" ".join(part.split()) for part in re.split(r"\{\w+\}|\n\n", template)]
    assert [paragraph for paragraph in paragraphs if paragraph not in text] == []


def page_template(script: Path) -> str:
    """Return the constant ``PAGE`` of a script, without running the script."""
    for statement in ast.parse(script.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and [ast.unparse(target) for target in statement.targets] == ["PAGE"]:
            return str(ast.literal_eval(statement.value))
    raise AssertionError(f"{script} has no PAGE")
