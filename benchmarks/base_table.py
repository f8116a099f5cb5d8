"""python benchmarks/base_table.py --datasets DIR: the checkpoint `base` on test splits, by retriever and edges.

Runs ``evaluate.py checkpoint=base`` on every data set with every retriever and graph, one after the other, further
checkpoints with every graph, and other trainings of it; writes docs/base.md. A run that is already in the output folder
is read, not repeated.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from graphrerank.evaluation.across import across_datasets
from graphrerank.evaluation.findings import Counterfactual, PairedTest
from graphrerank.evaluation.run_json import with_new_names
from graphrerank.evaluation.study import DatasetStudy, read_study

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
AUTO_ALONE = {"auto": RETRIEVERS["auto"]}
EXTRA = {  # further rows of the first table: title -> data set and settings
    "2wikimultihopqa over edges_computed.tsv": (
        "2wikimultihopqa",
        ["data.mentions=false", "data.edges=[edges_computed.tsv]"],
    ),
    "2wikimultihopqa over mentions and entities by spaCy": ("2wikimultihopqa", ["data.entities=spacy"]),
    "hotpotqa dev": ("hotpotqa", ["split=dev", AUTO]),
}
SYSTEMS = {"retriever": "retriever", "ppr": "PPR", "gcs": "GCS", "gatv2": "`base`"}
MEASURES = ("PR@5", "PR@10", "R@2", "R@5", "R@10", "nDCG@10")
BY_EDGES = ("R@5", "PR@5", "PR@10", "nDCG@10")
OTHER_EDGES = ("shuffled", "removed")
ABLATED, MULTI_HOP = ("PR@5", "PR@10", "R@5", "nDCG@10"), ("2wikimultihopqa", "hotpotqa")


def run_folder(arguments: argparse.Namespace, checkpoint: str, title: str, name: str) -> Path:
    """Return the folder of a checkpoint's run on one data set under one title."""
    return arguments.folder.resolve() / checkpoint.strip("/").replace("/", "_") / title.replace(" ", "_") / name


def run(arguments: argparse.Namespace, checkpoint: str, title: str, name: str, settings: Sequence[str]) -> dict:
    """Evaluate on one data set with some settings and return its part of ``metrics.json``."""
    run_dir = run_folder(arguments, checkpoint, title, name)
    if not (run_dir / "metrics.json").is_file():
        print(f"{checkpoint}: {title}: {name}", file=sys.stderr, flush=True)
        overrides = [f"checkpoint={checkpoint}", f"paths.datasets={arguments.datasets.resolve()}", f"data={name}"]
        overrides += ["counterfactuals=[]", *settings, *arguments.settings, f"hydra.run.dir={run_dir}"]
        subprocess.run([sys.executable, str(ROOT / "evaluate.py"), *overrides], check=True, stdout=subprocess.DEVNULL)
    (found,) = with_new_names(json.loads((run_dir / "metrics.json").read_text()))["datasets"].values()
    return found


def run_all(arguments: argparse.Namespace, checkpoint: str, conditions: dict[str, list[str]]) -> dict[str, dict]:
    """Evaluate a checkpoint under each condition on each data set; ATT&CK has edges of its own and no others."""
    results: dict[str, dict] = {title: {} for title in conditions}
    for title, name in itertools.product(conditions, SETS):
        if name in NO_EDGES:
            settings = conditions[title] + (NO_EDGES[name] if title == "no edges" else [])
        elif title in RETRIEVERS and AUTO in conditions[title]:
            settings = [setting for setting in conditions[title] if setting != AUTO]
        else:
            continue
        results[title][name] = run(arguments, checkpoint, title, name, settings)
    return results


def full_table(results: dict[str, dict]) -> str:
    """Lay out all systems and measures on every data set."""
    head = f"| data set | system | {' | '.join(MEASURES)} | p50 ms |"
    lines = [head, f"| --- | --- | {'--: | ' * (len(MEASURES) + 1)}".rstrip()]
    for name, found in results.items():
        ceilings = f"ceiling {percent(found['ceiling'])}, {percent(found['base_ceiling'])} before expansion"
        title = f"{name}, {found['queries']:,} queries ({ceilings})"
        for place, (key, system) in enumerate(SYSTEMS.items()):
            numbers = found["systems"][key]
            cells = [percent(numbers[measure]) for measure in MEASURES]
            latency = f"{numbers['latency_ms']['p50']:.1f}"
            lines.append(f"| {title if not place else ''} | {system} | {' | '.join(cells)} | {latency} |")
    return "\n".join(lines)


def trainings_table(trainings: list[dict[str, dict]]) -> str:
    """Lay out mean and standard deviation of several trainings on every data set, the one that ships among them."""
    lines = [f"| data set | {' | '.join(BY_EDGES)} |", f"| --- |{' --: |' * len(BY_EDGES)}"]
    for name in SETS:
        cells = []
        for measure in BY_EDGES:
            numbers = [100 * found[name]["systems"]["gatv2"][measure] for found in trainings]
            spread = f" ± {statistics.stdev(numbers):.1f}" if len(numbers) > 1 else ""
            cells.append(f"{statistics.mean(numbers):.1f}{spread}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def probabilities_table(studies: list[Path]) -> str:
    """Lay out the reliability of the probabilities on every data set of some ``study.json``."""
    lines = [
        "| data set | candidates | relevant | mean probability | ECE | Brier score | of the share alone |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    for study in studies:
        for name, dataset in json.loads(study.read_text())["datasets"].items():
            (found,) = dataset["reliability"]
            pairs, share = found["num_pairs"], found["share_relevant"]
            bins = zip(found["counts"], found["probabilities"], strict=True)
            mean = sum(count * probability for count, probability in bins if count) / pairs
            errors = " | ".join(f"{number:.4f}" for number in (found["ece"], found["brier"], share * (1 - share)))
            lines.append(f"| {name} | {pairs:,} | {percent(share)} | {percent(mean)} | {errors} |")
    return "\n".join(lines)


def lists_table(studies: list[Path]) -> str:
    """Lay out the reliability of the confidence in whole lists on every data set of some ``study.json``."""
    lines = ["| data set | k | complete | mean probability | ECE | AUC |", "| --- | --: | --: | --: | --: | --: |"]
    for study in studies:
        for name, dataset in json.loads(study.read_text())["datasets"].items():
            for place, found in enumerate(dataset["list_reliability"]):
                shares = f"{percent(found['share_complete'])} | {percent(found['mean_probability'])}"
                k = found["measure"].partition("@")[2]
                auc = "" if found["auc"] is None else f"{found['auc']:.3f}"
                lines.append(f"| {name if not place else ''} | {k} | {shares} | {found['ece']:.3f} | {auc} |")
    return "\n".join(lines)


def robustness_table(results: dict[str, dict[str, dict]], measure: str) -> str:
    """Lay out retriever -> GCS -> ``base`` on every data set under every condition."""
    lines = [f"| {measure} | {' | '.join(results)} |", f"| --- | {'--- | ' * len(results)}".rstrip()]
    for name in SETS:
        cells = []
        for found in results.values():
            if name in found:
                numbers = [found[name]["systems"][key][measure] for key in ("retriever", "gcs", "gatv2")]
                best = "**" if numbers[2] >= max(numbers[:2]) else ""
                cells.append(f"{percent(numbers[0])} → {percent(numbers[1])} → {best}{percent(numbers[2])}{best}")
            else:
                cells.append("")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def edges_table(results: dict[str, dict[str, dict]], measure: str) -> str:
    """Lay out one measure of every checkpoint on every data set over every graph."""
    lines = [f"| {measure} by edges | checkpoint | {' | '.join(GRAPHS)} |", f"| --- | --- |{' --: |' * len(GRAPHS)}"]
    for name in (name for name in SETS if name in NO_EDGES):
        for place, (checkpoint, found) in enumerate(results.items()):
            cells = [percent(found[title][name]["systems"]["gatv2"][measure]) for title in GRAPHS]
            lines.append(f"| {name if not place else ''} | `{checkpoint}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def tests_table(results: dict[str, dict]) -> str:
    """Lay out the paired tests of ``base`` on every data set."""
    lines = ["| data set | against | PR@10 | p | nDCG@10 | p |", "| --- | --- | --: | --: | --: | --: |"]
    for name, found in results.items():
        for other in ("retriever", "gcs"):
            tests = {entry["measure"]: entry for entry in found["comparisons"] if entry["baseline"] == other}
            cells = [f"{100 * tests[m]['difference']:+.1f} | {tests[m]['p_value']:.2g}" for m in ("PR@10", "nDCG@10")]
            lines.append(f"| {name} | {SYSTEMS[other]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def no_harm_table(results: dict[str, dict[str, dict]], measure: str = "nDCG@10") -> str:
    """Lay out by how much ``base`` is above or below the retriever on every data set under every condition."""
    lines = [f"| {measure}: difference | {' | '.join(results)} |", f"| --- |{' --: |' * len(results)}"]
    for name in SETS:
        cells = []
        for found in results.values():
            entries = found[name]["comparisons"] if name in found else []
            tests = [entry for entry in entries if (entry["baseline"], entry["measure"]) == ("retriever", measure)]
            cells.append(" ".join(f"{100 * test['difference']:+.1f} ({test['p_value']:.2g})" for test in tests))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def ablation_table(datasets: Sequence[DatasetStudy]) -> str:
    """Lay out by how much GATv2 is above the MLP on every data set, on the multi-hop ones and on all together."""
    lines = [
        f"| data set |{''.join(f' {measure} | p |' for measure in ABLATED)}",
        f"| --- |{' --: | --: |' * len(ABLATED)}",
    ]
    for dataset in datasets:
        tests = {test.measure: test for test in dataset.tests if (test.system, test.baseline) == ("gatv2", "mlp")}
        lines.append(f"| {dataset.name} | {' | '.join(_difference(tests[measure]) for measure in ABLATED)} |")
    multi_hop = [dataset for dataset in datasets if dataset.name in MULTI_HOP]
    for title, together in {"the two multi-hop sets": multi_hop, "all together": datasets}.items():
        found = {
            entry.measure: f"{100 * entry.difference:+.1f} | {entry.p_combined:.2g}"
            for entry in across_datasets(together)
            if (entry.system, entry.baseline) == ("gatv2", "mlp")
        }
        lines.append(f"| {title} | {' | '.join(found[measure] for measure in ABLATED)} |")
    return "\n".join(lines)


def other_edges_table(datasets: Sequence[DatasetStudy]) -> str:
    """Lay out by how much ``base`` is above itself over other edges among the same candidates."""
    lines = [f"| data set |{''.join(f' edges {kind} | p |' for kind in OTHER_EDGES)}"]
    lines.append(f"| --- |{' --: | --: |' * len(OTHER_EDGES)}")
    for dataset in datasets:
        found = {entry.edges: entry for entry in dataset.counterfactuals if entry.system == "gatv2"}
        lines.append(f"| {dataset.name} | {' | '.join(_difference(found[kind]) for kind in OTHER_EDGES)} |")
    return "\n".join(lines)


def _difference(test: PairedTest | Counterfactual) -> str:
    return f"{100 * test.difference:+.1f} | {test.p_randomization:.2g}"


def percent(share: float) -> str:
    """Format a share in percent."""
    return f"{100 * share:.1f}"


def main() -> None:
    """Run what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=Path, required=True)
    parser.add_argument("--checkpoint", nargs="+", default=["base"], help="the page is of the first")
    parser.add_argument("--trainings", nargs="*", default=[], help="the same training with other seeds: run folders")
    parser.add_argument("--ablations", type=Path, help="the run of experiment=base, with its MLP")
    parser.add_argument("--settings", nargs="*", default=[], help="of evaluate.py, added to every run")
    parser.add_argument("--folder", type=Path, default=Path("runs/base_table"))
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "base.md")
    arguments = parser.parse_args()
    first = arguments.checkpoint[0]
    results = run_all(arguments, first, RETRIEVERS)
    by_edges = {checkpoint: run_all(arguments, checkpoint, GRAPHS) for checkpoint in arguments.checkpoint}
    extra = {
        title: run(arguments, first, title, name, [EXPAND, *settings]) for title, (name, settings) in EXTRA.items()
    }
    trainings = [results["auto"], *(run_all(arguments, other, AUTO_ALONE)["auto"] for other in arguments.trainings)]
    studies = [run_folder(arguments, first, "auto", name) / "study.json" for name in SETS]
    ablations = ABLATIONS_NOT_RUN
    if arguments.ablations:
        ablated = str(arguments.ablations.resolve())
        tested = {
            "auto": [*RETRIEVERS["auto"], f"tested=[{','.join(ABLATED)}]", f"counterfactuals=[{','.join(OTHER_EDGES)}]"]
        }
        run_all(arguments, ablated, tested)
        folders = [run_folder(arguments, ablated, "auto", name) for name in SETS]
        judged = [dataset for folder in folders for dataset in read_study(folder).datasets.values()]
        ablations = ABLATIONS.format(mlp=ablation_table(judged), other_edges=other_edges_table(judged))
    page = PAGE.format(
        full=full_table(results["auto"] | extra),
        tests=tests_table(results["auto"] | extra),
        ablations=ablations,
        trainings=TRAININGS.format(table=trainings_table(trainings)) if arguments.trainings else TRAINED_ONCE,
        probabilities=probabilities_table(studies),
        lists=lists_table(studies),
        edges="\n\n".join(edges_table(by_edges, measure) for measure in BY_EDGES),
        pr=robustness_table(results, "PR@10"),
        ndcg=robustness_table(results, "nDCG@10"),
        no_harm=no_harm_table(results),
    )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(page, encoding="utf-8")
    print(arguments.out)


ABLATIONS = """`base` minus the MLP of the same training (`python train.py experiment=base`), which has the same
features of nodes, those over edges among them, but no attention along edges and no score of best pairs. Points, with
the p of a two-sided paired randomisation test over queries; together: the mean over data sets, each of which counts the
same.

{mlp}

`base` minus itself in PR@5, the same candidates with other edges among them: *shuffled*, each candidate has as many
neighbours of each type as before, but others; *removed*, none. What types of edges, evidence of pairs and expansion are
worth: [ablations.md](ablations.md).

{other_edges}"""

ABLATIONS_NOT_RUN = """The MLP of the same training was not judged (`--ablations RUN`)."""

TRAININGS = """Mean and standard deviation over trainings with different seeds, of which
the one that ships is one; otherwise as above. A difference below two such deviations is none.

{table}"""

TRAINED_ONCE = """This training has one seed, which was set before. Of an earlier one, without drafted questions
and random edges, three seeds deviated from their mean by 0.0 to 0.4 points of nDCG@10 and by 0.0 to 0.7 points of R@5
(most on 2WikiMultihopQA). A difference below two such deviations is none."""

PAGE = """# The checkpoint `base`

Written by `python benchmarks/base_table.py --datasets DIR --ablations RUN`, where RUN is of `python train.py
experiment=base`. It was trained on train splits and on questions drafted from the same corpora; every number on this
page is of a test split (Spider and BIRD: dev). Percent. GCS and PPR: restart probability tuned on BIRD train. Latency
of the reranking stage for one query at a time, one CPU thread, beside other jobs. Vectors of MiniLM in float32.
What ships takes a cross-encoder's scores, too ([expand_then_rerank.md](expand_then_rerank.md#with-a-cross-encoder));
without them, as here, it ranks as this training does.

## All data sets, candidates expanded along the graph

`python evaluate.py checkpoint=base data=NAME data.edges=auto retriever=hybrid_expand paths.datasets=DIR`; ATT&CK has
edges of its own.

{full}

### `base` against the retriever and against GCS

Difference in points; p of a two-sided paired randomisation test over queries.

{tests}

### Does the graph help?

{ablations}

### Trained again

{trainings}

## Probabilities

All candidates of the test splits, expanded: how far the probabilities are from the shares of relevant candidates (ECE:
expected calibration error). The training fitted the calibration on the validation splits of all sets together
(`graphrerank calibrate checkpoint=base` repeats it). It does not distinguish data sets, and is too low on sets with far
more relevant candidates than the others.

{probabilities}

Of whole lists: the probability that the first five or ten hold all relevant candidates (PR@k), against the share of
lists that do. Fitted on the same validation splits but NFCorpus's, whose questions have more relevant documents than a
list can hold. Forty judged questions fit both to a corpus: on NFCorpus these errors fall below 0.02
([evaluating.md](evaluating.md#is-the-top-of-the-list-complete)).

{lists}

## Other edges

*no edges*: hybrid without any edge. *hand-chosen*: as `conf/data/NAME.yaml` says. *auto*: `data.edges=auto`. With
edges, candidates are expanded along them.

Paired tests of *auto* minus *hand-chosen*: above on 2WikiMultihopQA and HotpotQA (PR@5 +3.0 and +2.4, p at most 0.02),
no difference on BIRD and NFCorpus, and more than half a point below on SciFact (PR@5 -2.7, p = 0.02; R@5 -2.2,
p = 0.03; nDCG@10 -0.9, p = 0.09) and on Spider (PR@5 -1.0, p = 0.07; R@5 -0.7, p = 0.02; nDCG@10 -0.8, p = 0.003).
Questions that were not trained on show neither: on 700 of Spider's validation split, which are about other databases,
*auto* is above the foreign keys alone (PR@5 +0.9, p = 0.34; nDCG@10 +0.5, p = 0.29), and on SciFact's 728 training
questions, by a model that never saw the set, it is 0.1 to 0.4 points below the nearest neighbours alone (p at least
0.4). So `auto` stays as it is.

{edges}

## Other retrievers

Retriever → GCS → `base`; bold where `base` is at or above both. *auto*: `retriever=hybrid_expand`. *hybrid*: 0.3 BM25 +
0.7 cosine, no expansion. *dense*, *BM25*: one of the two ranks, the other remains a feature of the candidates. All with
`data.edges=auto`; *no edges*: hybrid without any edge. `python benchmarks/base_plot.py` draws the table of nDCG@10.

![nDCG@10 of retriever, GCS and base by data set and retriever](base.png)

{pr}

{ndcg}

### No harm

`base` minus the retriever in points, with the p of a two-sided paired randomisation test over queries, under the same
conditions. It is nowhere significantly below the retriever, so that nothing falls back to the retriever's ranking.

{no_harm}
"""


if __name__ == "__main__":
    main()
