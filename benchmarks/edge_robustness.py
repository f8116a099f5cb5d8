"""Evaluate the checkpoint `base` over edges of each type and over artificial edges.

``python benchmarks/edge_robustness.py --datasets DIR`` finds the edges of ``data.edges=auto`` once per data set, ranks
over these and over other edges in one process, and writes docs/edge_robustness.md.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from command_line import add_datasets, add_page
from torch import Tensor

from graphrerank import GraphReranker
from graphrerank.config.components import ComponentFactory
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import EDGE_TYPES, OTHER, REFERENCE
from graphrerank.data.candidates import PreparedDataset, rank, with_vectors
from graphrerank.data.enrichment.neighbours import random_edges
from graphrerank.evaluation.reranking import measure_queries, trained_system
from graphrerank.evaluation.significance import ALPHA, paired_randomization
from graphrerank.evaluation.systems import System, base_ranking
from graphrerank.features.text_match import TextMatch
from graphrerank.utils.files import write_text

ROOT = Path(__file__).parents[1]
CHOOSE = ("choose_nl2bash_tldr", "choose_sphinx_docs", "choose_xquad_en", "choose_xquad_zh")
SETS = ("2wikimultihopqa", "hotpotqa", "scifact", *CHOOSE)
SPLIT, MEASURES, JUDGED = "test", ("R@5", "PR@5", "nDCG@10"), "nDCG@10"
LISTS, LIST_LENGTH = 5, 11  # number of co-citation lists per passage, and length of a list
ALLOWED = 0.5  # points by which `auto` may be below the best setting
Edges = tuple[Tensor, Tensor | None, Tensor | int]  # pairs [M, 2] of nodes, weights [M], types [M]


@dataclass(frozen=True)
class Row:
    """Row of the table: a data set with one kind of edges."""

    name: str
    edges: str
    cells: tuple[str, ...]  # cells of the table
    base: float  # nDCG@10, percent
    gain: float  # points above the retriever
    p: float


def settings(graph: CorpusGraph, *, seed: int) -> Iterator[tuple[str, Edges]]:
    """Yield the edges of each setting except the complete graph, which uses the candidates of the first setting."""
    pairs, weight, types = graph.typed_edges()
    once = pairs[:, 0] < pairs[:, 1]
    pairs, weight, types = pairs[once], weight[once], types[once]
    yield "none", (pairs[:0], None, OTHER)
    for number in torch.unique(types).tolist():
        yield EDGE_TYPES[number], (pairs[types == number], weight[types == number], number)
    yield "auto", (pairs, weight, types)
    noise = random_edges(pairs, len(torch.unique(pairs, dim=0)), num_nodes=graph.num_nodes, seed=seed)
    both = torch.cat([weight, torch.ones(len(noise))]), torch.cat([types, torch.full((len(noise),), OTHER)])
    yield "auto and random", (torch.cat([pairs, noise]), *both)
    generator, whole = torch.Generator().manual_seed(seed), graph.num_nodes // LIST_LENGTH * LIST_LENGTH
    lists = [torch.randperm(graph.num_nodes, generator=generator)[:whole] for _ in range(LISTS)]
    yield "co-citations", (pairs_within(torch.cat(lists).view(-1, LIST_LENGTH)), None, REFERENCE)


def pairs_within(lists: Tensor) -> Tensor:
    """Return all distinct pairs ``[M, 2]`` of nodes in the same row of ``lists``, which is padded with -1."""
    pairs = lists[:, torch.combinations(torch.arange(lists.shape[1]))].view(-1, 2)
    return torch.unique(pairs[(pairs >= 0).all(1)].sort(dim=1).values, dim=0)


def rank_set(
    parts: ComponentFactory, name: str, reranker: GraphReranker, arguments: argparse.Namespace
) -> Iterator[Row]:
    """Rank the questions of a data set under each setting."""
    data = name if name in parts.choices("data") else str(arguments.datasets / name)
    searches = {"encoder": "minilm", "retriever": "hybrid_expand", "splits": [SPLIT]}
    dataset, encoder, build = parts.load(parts.component("data", data, edges="auto"), **searches)
    asked = dataset.split(SPLIT).queries
    count = min(arguments.questions, len(asked))
    dataset = with_vectors(dataset, encoder, parts.cache / "candidates")
    dataset = dataset.with_queries(asked[torch.arange(count) * len(asked) // count])
    match, without = TextMatch.of(dataset.graph), None
    model = trained_system("base", reranker.checkpoint.model, reranker.device)

    def measure(edges: str, count: int, prepared: PreparedDataset) -> Row:
        prepared = prepared.with_features(reranker.feature_names, text_match=match)
        systems = System("retriever", base_ranking), model
        theirs, ours = (measure_queries(prepared, SPLIT, system, measures=MEASURES) for system in systems)
        percent = [f"{100 * float(of[measure].nanmean()):.1f}" for measure in MEASURES for of in (theirs, ours)]
        p, gain = float(paired_randomization(ours[JUDGED], theirs[JUDGED])), ours[JUDGED] - theirs[JUDGED]
        cells = (f"{count:,}", f"{100 * prepared.ceiling(SPLIT):.1f}", *percent, f"{p:.2g}")
        print(name, edges, *cells, flush=True)
        return Row(name, edges, cells, 100 * float(ours[JUDGED].nanmean()), 100 * float(gain.nanmean()), p)

    for title, edges in settings(dataset.graph, seed=arguments.seed):
        changed = dataset.with_graph(dataset.graph.with_only(*edges, undirected=True))
        prepared = rank(changed, encoder, build(changed.graph))
        without = without or prepared
        yield measure(title, len(edges[0]), prepared)
    pairs = pairs_within(without.ranking.nodes)
    graph = dataset.graph.with_only(pairs, None, OTHER, undirected=True)
    yield measure("complete", len(pairs), replace(without, dataset=dataset.with_graph(graph)))


def conclusions(rows: list[Row]) -> str:
    """Describe where `base` is below the retriever, its result with the worst edges, and where `auto` is worse."""
    worst = [min((row for row in rows if row.name == name), key=lambda row: row.gain) for name in SETS]
    below = [f"{row.name} over {row.edges} ({row.gain:+.1f})" for row in rows if row.gain < 0 and row.p < ALPHA]
    costs = []
    for auto in (row for row in rows if row.edges == "auto"):
        best = max((row for row in rows if row.name == auto.name), key=lambda row: row.base)
        if best.base - auto.base > ALLOWED:
            costs.append(f"{auto.name} ({auto.base:.1f}, {best.edges} {best.base:.1f})")
    mean, listed = sum(row.gain for row in worst) / len(worst), (f"{r.name} {r.edges} {r.gain:+.1f}" for r in worst)
    said = {
        "Difference from the retriever in nDCG@10 with the worst edges of each data set": (
            f"{mean:+.1f} on average: {', '.join(listed)}"
        ),
        "Data sets and edges with which `base` is significantly below the retriever": ", ".join(below) or "none",
        f"Data sets where `auto` is more than {ALLOWED} points below the best edges": ", ".join(costs) or "none",
    }
    return "\n".join(f"- {title}: {found}." for title, found in said.items())


def main() -> None:
    """Rank all data sets and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_datasets(parser)
    parser.add_argument(
        "--questions", type=int, default=150, help="maximum number of questions per data set (default: %(default)s)"
    )
    parser.add_argument("--checkpoint", default="base", help="checkpoint to evaluate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random edges (default: %(default)s)")
    add_page(parser, "edge_robustness")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts, reranker = ComponentFactory(datasets=arguments.datasets), GraphReranker.from_pretrained(arguments.checkpoint)
    rows = [row for name in SETS for row in rank_set(parts, name, reranker, arguments)]
    names = [row.name if row.edges == "none" else "" for row in rows]
    lines = [f"| {name} | {row.edges} | {' | '.join(row.cells)} |" for name, row in zip(names, rows, strict=True)]
    heads = [f"{measure} retriever | `base`" for measure in MEASURES]
    header = f"| data set | edges | number | ceiling | {' | '.join(heads)} | p |\n| --- | --- |{' --: |' * 9}"
    write_text(arguments.out, PAGE.format(header=header, table="\n".join(lines), conclusions=conclusions(rows)))
    print(arguments.out)


PAGE = """# `base` with other edges

After reading this page you know how `base` ranks with sparse, noisy or useless edges.

```
python benchmarks/edge_robustness.py --datasets DIR
```

The command writes this page, with at most 150 evenly spaced questions of each test split, MiniLM and
`retriever=hybrid_expand`. Numbers are percentages. `base` was trained on other questions of the first three data sets,
and never saw the other four.

- *None*: no edges.
- *Reference*, *entity*, *adjacency*, *similarity*: the edges of one type alone.
- *Auto*: the edges of `data.edges=auto`. A pair that is connected by edges of two types counts twice.
- *Auto and random*: in addition, the same number of edges of type `other` between random passages that are not
  connected.
- *Co-citations*: each passage is in five random lists of eleven passages, and all passages of a list are connected with
  edges of type `reference`.
- *Complete*: all candidates of *none* are connected with edges of type `other`.

*Ceiling* is the share of questions whose relevant passages are all among the 100 candidates. *p* is the p-value of a
paired randomisation test of nDCG@10.

{header}
{table}

{conclusions}
"""


if __name__ == "__main__":
    main()
