"""Evaluate `base` and a cross-encoder on corpora that `base` never saw.

python benchmarks/unseen_table.py --datasets DIR --cross-encoder MODEL

No model was trained on the questions or passages of these corpora. Those named ``choose_`` were used for model
selection. Every system ranks the same hundred candidates of the same questions, which are evenly spaced in their split.
The script writes the first table of the README. The scores of the cross-encoder are cached under ``--cache``, so that
another checkpoint can be evaluated quickly. MODEL is cross-encoder/ms-marco-MiniLM-L12-v2 or its folder.
``graphrerank build git --from CLONE`` makes the corpus ``git_flask``.
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import torch
from base_table import ROOT, percent

from graphrerank import Dataset, evaluate
from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.evaluation.latency import TOTAL
from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.significance import across_datasets


class Corpus(NamedTuple):
    """Corpus of one row of the table."""

    title: str
    folder: str
    split: str = "test"
    questions: int = 100  # maximum number


CORPORA = (  # corpora with a graph first
    Corpus("multi-hop passages", "ketrag_musique", "test_silver"),
    Corpus("documentation: commit messages to sections", "choose_sphinx_docs"),
    Corpus("command pages", "choose_nl2bash_tldr"),
    Corpus("code: commit messages to functions", "git_flask", questions=50),
    Corpus("encyclopedia, English", "choose_xquad_en"),
    Corpus("encyclopedia, German", "choose_xquad_de"),
    Corpus("encyclopedia, Chinese", "choose_xquad_zh"),
)
SEARCH, READER, BASE = "search", "reader", "base"
PIPELINES = {
    SEARCH: "vector_search",
    READER: "re2",
    BASE: "expand_then_rerank",
}  # The last system is tested against each of the others.
MEASURE, LEVEL = "nDCG@10", 0.05
FIRST = "unseen corpus"  # heading of the first column, which identifies the table


def load(parts: ComponentFactory, datasets: Path, corpus: Corpus) -> Dataset:
    """Load a corpus with its questions as the split ``test``."""
    path = datasets.resolve() / corpus.folder
    dataset = parts.dataset("folder", path=str(path), edges="auto", splits={"test": corpus.split})
    queries = dataset.split("test").queries
    count = min(corpus.questions, len(queries))
    return dataset.with_queries(queries[torch.arange(count) * len(queries) // count])


def reader(parts: ComponentFactory, arguments: argparse.Namespace) -> ConfiguredComponent:
    """Return the cross-encoder."""
    settings = {"model": arguments.cross_encoder, "max_length": arguments.max_length, "dtype": arguments.dtype}
    return parts.component("pair_encoder", "cross_encoder", **settings)


def judge(arguments: argparse.Namespace, corpus: Corpus) -> DatasetResult:
    """Evaluate all systems on one corpus."""
    parts = ComponentFactory(datasets=arguments.datasets, cache=arguments.cache)
    result = evaluate(
        PIPELINES,
        load(parts, arguments.datasets, corpus),
        retriever="hybrid_expand",
        encoder="minilm",
        pair_encoder=reader(parts, arguments),
        settings={BASE: {"steps.1.scorer.checkpoint": arguments.checkpoint}},
        measures=[MEASURE],
        parts=parts,
        show=False,
    )
    (found,) = result.datasets.values()
    return found


def table(found: Mapping[str, DatasetResult]) -> str:
    """Format one row per corpus, and the means over several corpora."""
    header = [FIRST, "questions", f"{MEASURE}: retriever", "cross-encoder", "`base`"]
    header += ["p vs. retriever", "p vs. cross-encoder", "ms: retriever", "cross-encoder", "`base`"]
    rows = [header, ["---", *["--:"] * (len(header) - 1)]]
    for title, result in found.items():
        p = {test.baseline: test.p_randomization for test in result.tests}
        rows.append(row(title, [result], p))
    if together := {entry.baseline: entry.p_combined for entry in across_datasets(list(found.values()))}:
        rows.append(row("mean", list(found.values()), together))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def row(title: str, found: Sequence[DatasetResult], p: Mapping[str, float]) -> list[str]:
    """Return the cells for a group of corpora, with p-values of `base` against each other system."""
    scores = {name: fmean(each.systems[name].means[MEASURE] for each in found) for name in PIPELINES}
    bold = "**" if scores[BASE] > scores[SEARCH] and p[SEARCH] < LEVEL else ""
    cells = [title, f"{sum(len(each.query_ids) for each in found)}", percent(scores[SEARCH]), percent(scores[READER])]
    cells += [f"{bold}{percent(scores[BASE])}{bold}", *(f"{p[name]:.2g}" for name in (SEARCH, READER))]
    return cells + [f"{fmean(milliseconds(each, name) for each in found):,.0f}" for name in PIPELINES]


def milliseconds(found: DatasetResult, name: str) -> float:
    """Return the median time of all stages in milliseconds, one question at a time."""
    cost = found.systems[name].cost
    assert cost is not None
    return cost.ms[TOTAL]["p50"]


def write(path: Path, content: str) -> None:
    """Replace the table of a page that begins like this one."""
    pages, found = re.subn(
        rf"^\| {FIRST} \|.*(?:\n\|.*)*", lambda _: content, path.read_text(encoding="utf-8"), flags=re.M
    )
    if found != 1:
        sys.exit(f"{path} must contain one table whose first column is named {FIRST!r}, got {found}")
    path.write_text(pages, encoding="utf-8")


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the arguments for corpora, cross-encoder and cache."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=Path, required=True, help="folder of the data sets")
    parser.add_argument(
        "--cross-encoder", required=True, metavar="MODEL", help="folder or hub name of the cross-encoder"
    )
    parser.add_argument(
        "--max-length",
        type=int,
        default=256,
        help="maximum number of tokens of a question with a passage (default: %(default)s)",
    )
    parser.add_argument(
        "--dtype", default="bfloat16", help="number format of the cross-encoder's weights (default: %(default)s)"
    )
    parser.add_argument("--cache", type=Path, help="cache folder; the one of conf/paths by default")
    return parser


def main() -> None:
    """Evaluate on every corpus and write the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("--checkpoint", default="base", help="checkpoint to evaluate (default: %(default)s)")
    parser.add_argument(
        "--corpora",
        nargs="*",
        default=[corpus.folder for corpus in CORPORA],
        help="names of the corpora's folders; all by default",
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "README.md", help="page whose table is replaced (default: README.md)"
    )
    arguments = parser.parse_args()
    found = {}
    for corpus in (corpus for corpus in CORPORA if corpus.folder in arguments.corpora):
        found[corpus.title] = judge(arguments, corpus)
        print(f"{corpus.folder}\n{table(found)}", file=sys.stderr, flush=True)
    write(arguments.out, table(found))


if __name__ == "__main__":
    main()
