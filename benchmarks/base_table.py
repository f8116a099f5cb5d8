"""Evaluate the checkpoint `base` on all test splits, with several retrievers and kinds of edges.

``python benchmarks/base_table.py --datasets DIR`` runs ``evaluate.py checkpoint=base`` for every data set, retriever
and kind of edges, one run after the other, and writes docs/base.md. Runs that are already in the output folder are not
repeated.
"""

import argparse
import itertools
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from command_line import add_datasets, add_page, add_run_folder

from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.result import EvaluationResult

ROOT = Path(__file__).parents[1]
SETS = ("spider", "bird", "2wikimultihopqa", "hotpotqa", "scifact", "nfcorpus", "attack")
NO_EDGES = {
    "spider": ["data.edges=[]"],
    "bird": ["data.edges=[]", "data.edge_types=null"],
    "2wikimultihopqa": ["data.mentions=false"],
    "hotpotqa": ["data.mentions=false"],
    "scifact": ["data.knn=0"],
    "nfcorpus": ["data.knn=0"],
}
EXPAND, HYBRID, AUTO = "retriever=hybrid_expand", "retriever=hybrid", "data.edges=auto"
RETRIEVERS = {
    "auto": [EXPAND, AUTO],
    "hybrid": [HYBRID, AUTO],
    "dense": [HYBRID, "retriever.bm25_weight=0", "retriever.dense_weight=1", AUTO],
    "BM25": [HYBRID, "retriever.bm25_weight=1", "retriever.dense_weight=0", AUTO],
    "no edges": [HYBRID],
}
GRAPHS = {
    "no edges": RETRIEVERS["no edges"],
    "hand-chosen": [EXPAND],
    "auto": RETRIEVERS["auto"],
}
EXTRA = {  # additional rows of the first table: title, data set and settings
    "2wikimultihopqa over edges_computed.tsv": (
        "2wikimultihopqa",
        ["data.mentions=false", "data.edges=[edges_computed.tsv]"],
    ),
    "2wikimultihopqa over mentions and entities by spaCy": ("2wikimultihopqa", ["data.entities=spacy"]),
    "hotpotqa dev": ("hotpotqa", ["split=dev", AUTO]),
}
SYSTEMS = {"retriever": "retriever", "ppr": "PPR", "gcs": "GCS", "gatv2": "`base`"}
MEASURES = ("PR@5", "PR@10", "R@2", "R@5", "R@10", "nDCG@10")
OTHER_EDGES = ("shuffled", "removed")


def run_folder(arguments: argparse.Namespace, checkpoint: str, title: str, name: str) -> Path:
    """Return the run folder of a checkpoint for a data set and the title of a condition."""
    return arguments.folder.resolve() / checkpoint.strip("/").replace("/", "_") / title.replace(" ", "_") / name


def run(arguments: argparse.Namespace, checkpoint: str, title: str, name: str, settings: Sequence[str]) -> dict:
    """Evaluate on one data set with the given settings and return the data set's entry of ``metrics.json``."""
    run_dir = run_folder(arguments, checkpoint, title, name)
    if not (run_dir / "metrics.json").is_file():
        print(f"{checkpoint}: {title}: {name}", file=sys.stderr, flush=True)
        overrides = [f"checkpoint={checkpoint}", f"paths.datasets={arguments.datasets.resolve()}", f"data={name}"]
        overrides += ["edge_ablations=[]", *settings, *arguments.settings, f"hydra.run.dir={run_dir}"]
        subprocess.run([sys.executable, str(ROOT / "evaluate.py"), *overrides], check=True, stdout=subprocess.DEVNULL)
    (found,) = json.loads((run_dir / "metrics.json").read_text())["datasets"].values()
    return found


def run_all(arguments: argparse.Namespace, checkpoint: str, conditions: dict[str, list[str]]) -> dict[str, dict]:
    """Evaluate a checkpoint under each condition on each data set. ATT&CK always has its own edges."""
    results: dict[str, dict] = {title: {} for title in conditions}
    for title, name in itertools.product(conditions, SETS):
        if name in NO_EDGES:
            settings = conditions[title] + (NO_EDGES[name] if title == "no edges" else [])
        elif AUTO in conditions[title]:
            settings = [setting for setting in conditions[title] if setting != AUTO]
        else:
            continue
        results[title][name] = run(arguments, checkpoint, title, name, settings)
    return results


def full_table(results: dict[str, dict]) -> str:
    """Format the table of all systems on every data set, with the paired test of ``base`` against the retriever."""
    of_all = [f"{measure}: {' | '.join(SYSTEMS.values())}" for measure in ("PR@10", "nDCG@10")]
    header = f"| data set | queries | ceiling | R@5: retriever | `base` | {' | '.join(of_all)} | p | p50 ms |"
    lines = [header, f"| --- |{' --: |' * 14}"]
    for name, found in results.items():
        systems = found["systems"]
        cells = [f"{found['queries']:,}", f"{percent(found['ceiling'])} ({percent(found['base_ceiling'])})"]
        cells += [percent(systems[key]["R@5"]) for key in ("retriever", "gatv2")]
        cells += [percent(systems[key][measure]) for measure in ("PR@10", "nDCG@10") for key in SYSTEMS]
        cells += [p_value(found), f"{systems['gatv2']['latency_ms']['p50']:.1f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def p_value(found: dict, measure: str = "nDCG@10") -> str:
    """Return the p-value of the paired test of ``base`` against the retriever."""
    key = ("retriever", measure)
    (test,) = (entry for entry in found["comparisons"] if (entry["baseline"], entry["measure"]) == key)
    return f"{test['p_value']:.2g}"


def probabilities_table(studies: list[Path]) -> str:
    """Format the table of calibration errors of candidates and of whole lists, for every data set."""
    header = ["data set", "relevant", "mean probability", "ECE", "Brier score"]
    header += ["top 10 complete", "mean probability", "ECE", "AUC"]
    lines = [f"| {' | '.join(header)} |", f"| --- |{' --: |' * 8}"]
    for study in studies:
        for name, dataset in json.loads(study.read_text())["datasets"].items():
            (found,) = dataset["reliability"]
            bins = zip(found["counts"], found["probabilities"], strict=True)
            mean = sum(count * probability for count, probability in bins if count) / found["num_pairs"]
            (lists,) = (entry for entry in dataset["list_reliability"] if entry["measure"] == "PR@10")
            cells = [percent(found["share_relevant"]), percent(mean), f"{found['ece']:.4f}", f"{found['brier']:.4f}"]
            cells += [percent(lists["share_complete"]), percent(lists["mean_probability"]), f"{lists['ece']:.3f}"]
            cells.append("" if lists["auc"] is None else f"{lists['auc']:.3f}")
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def retrievers_table(results: dict[str, dict[str, dict]], measure: str = "nDCG@10") -> str:
    """Format the table of retriever, GCS and ``base`` for every data set and condition."""
    lines = [f"| {measure} | {' | '.join(results)} |", f"| --- | {'--- | ' * len(results)}".rstrip()]
    for name in SETS:
        cells = []
        for found in results.values():
            if name in found:
                numbers = [found[name]["systems"][key][measure] for key in ("retriever", "gcs", "gatv2")]
                best = "**" if numbers[2] >= max(numbers[:2]) else ""
                shown = f"{percent(numbers[0])} → {percent(numbers[1])} → {best}{percent(numbers[2])}{best}"
                cells.append(f"{shown} (p {p_value(found[name], measure)})")
            else:
                cells.append("")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def below(results: dict[str, dict[str, dict]], measure: str = "nDCG@10") -> str:
    """Describe the data sets and conditions for which ``base`` is below the retriever."""
    found = [
        f"{name}, {title} (p {p_value(each, measure)})"
        for title, of_sets in results.items()
        for name, each in of_sets.items()
        if each["systems"]["gatv2"][measure] < each["systems"]["retriever"][measure]
    ]
    return f"on {'; '.join(found)}" if found else "nowhere"


def edges_table(results: dict[str, dict[str, dict]]) -> str:
    """Format the table of ``base`` for every data set and kind of edges."""
    header = [f"{measure}: {' | '.join(GRAPHS)}" for measure in ("R@5", "nDCG@10")]
    lines = [f"| data set | {' | '.join(header)} |", f"| --- |{' --: |' * 2 * len(GRAPHS)}"]
    for name in (name for name in SETS if name in NO_EDGES):
        cells = [percent(results[title][name]["systems"]["gatv2"][of]) for of in ("R@5", "nDCG@10") for title in GRAPHS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def other_edges_table(datasets: Sequence[DatasetResult]) -> str:
    """Format the table of differences between ``base`` and ``base`` with other edges among the same candidates."""
    lines = ["| data set | over shuffled edges | p | over no edges | p |", f"| --- |{' --: |' * 4}"]
    for dataset in datasets:
        others = {entry.edges: entry for entry in dataset.counterfactuals if entry.system == "gatv2"}
        found = [others[kind] for kind in OTHER_EDGES]
        cells = [f"{100 * test.difference:+.1f} | {test.p_randomization:.2g}" for test in found]
        lines.append(f"| {dataset.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def percent(share: float) -> str:
    """Format a share in percent."""
    return f"{100 * share:.1f}"


def main() -> None:
    """Run the missing evaluations and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_datasets(parser)
    parser.add_argument("--checkpoint", default="base", help="checkpoint to evaluate (default: %(default)s)")
    parser.add_argument("--settings", nargs="*", default=[], help="settings of evaluate.py to add to every run")
    add_run_folder(parser, "base_table")
    add_page(parser, "base")
    arguments = parser.parse_args()
    first = arguments.checkpoint
    results = run_all(arguments, first, RETRIEVERS)
    extra = {
        title: run(arguments, first, title, name, [EXPAND, *settings]) for title, (name, settings) in EXTRA.items()
    }
    shaken = {
        "shaken": [*RETRIEVERS["auto"], "significance_measures=[PR@5]", f"edge_ablations=[{','.join(OTHER_EDGES)}]"]
    }
    run_all(arguments, first, shaken)
    folders = [run_folder(arguments, first, "shaken", name) for name in SETS]
    page = PAGE.format(
        full=full_table(results["auto"] | extra),
        shaken=other_edges_table(
            [each for folder in folders for each in EvaluationResult.load(folder).datasets.values()]
        ),
        probabilities=probabilities_table(
            [run_folder(arguments, first, "auto", name) / "result.json" for name in SETS]
        ),
        edges=edges_table(run_all(arguments, first, GRAPHS)),
        retrievers=retrievers_table(results),
        below=below(results),
    )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(page, encoding="utf-8")
    print(arguments.out)


PAGE = """# The checkpoint `base`

After reading this page you know how `base` ranks on each test set, how much of it is due to the graph, and how reliable
its probabilities are.

```
graphrerank evaluate checkpoint=base data=NAME data.edges=auto retriever=hybrid_expand paths.datasets=DIR
```

The command evaluates `base` on one data set. This page was written by `python benchmarks/base_table.py --datasets DIR`.
`base` was trained on the train splits of these corpora, on other corpora and on drafted questions
(`graphrerank train experiment=base`). Every number on this page is measured on a test split (Spider and BIRD: dev), in
percent. [Data sets that the model never saw](left_out.md) has other corpora. `base` can also use [the scores of a
cross-encoder](expand_then_rerank.md#with-a-cross-encoder).

## All data sets

- Edges are those of `data.edges=auto`. ATT&CK comes with edges.
- *Ceiling* is the share of queries whose relevant passages are all among the candidates, and in brackets the same
  before expansion.
- The restart probabilities of GCS and PPR were tuned on BIRD train.
- *p* is the p-value of a two-sided paired randomisation test over queries, for nDCG@10 of `base` and the retriever.
- *p50* is the median time of the reranking stage of `base`, for one query at a time on one CPU thread.

{full}

`base` is one seed of three. The seeds differ from their mean by at most 0.3 points of nDCG@10 on these data sets, and
by 0.2 on the five data sets that were used for model selection (`choose_*`, 200 questions each; +2.8, +2.8 and +2.9
points over the retriever on average). A difference below two such deviations is not meaningful. The averaged weights of
the three seeds are no better than those of each.

## Does the graph help?

The table shows by how many points of PR@5 `base` is above itself with other edges among the same candidates, with p as
above. An MLP trained like `base-2`, without attention along edges and without scores of best pairs, was 1.4 points of
PR@5 and 0.9 of nDCG@10 below `base-2` (p = 0.0001, all data sets together). [Ablations](ablations.md) measures types of
edges, evidence of pairs, and expansion.

{shaken}

## Probabilities

The table compares the mean probability of candidates with the share of relevant ones, and the mean probability that the
first ten contain all relevant passages with the share of such lists. ECE is the expected calibration error. Both
calibrations were fitted on the validation splits of all data sets together. They are inaccurate on data sets with far
more relevant passages than the others. Calibrating on forty judged queries of such a corpus corrects them ([complete
lists](evaluating.md#is-the-top-of-the-list-complete)).

{probabilities}

## Other edges

*No edges* is hybrid search without any edge, *hand-chosen* uses the edges of `conf/data`, and *auto* those of
`data.edges=auto`. With edges, candidates are expanded along them.

{edges}

## Other retrievers

Each cell shows nDCG@10 of the retriever, of GCS and of `base`. It is bold where `base` is at or above both, and p
compares `base` with the retriever. *Auto* is `retriever=hybrid_expand`, *hybrid* is 0.3 BM25 + 0.7 cosine without
expansion, and *dense* and *BM25* are one of the two alone. All columns but the last use `data.edges=auto`. `base` is
{below} below the retriever. `python benchmarks/base_plot.py` draws the picture.

![nDCG@10 of retriever, GCS and base by data set and retriever](base.png)

{retrievers}
"""


if __name__ == "__main__":
    main()
