"""Simulate users to measure whether a reranker improves by learning from clicks, and whether it ever gets worse.

python benchmarks/learn_from_use.py --datasets DIR --cache DIR --out DIR

Users ask 60 % of the questions of judged data sets, some more often than others. The other questions measure nDCG@10
and are never in a log. A user looks at rank k with probability 1/k (`position`), or reads down the list until satisfied
(`cascade`), and clicks a relevant passage with probability 0.9 and any other passage with probability 0.08. In 5 % of
the lists, clicks contradict relevance. One user asks a tenth of all questions and always clicks the fifth passage. Two
neighbours of each list are exchanged with probability 0.5, as a service with feedback.explore=0.5 does. The acceptance
test has drafted questions and no judgements.

The runs called `nothing` have clicks without information: relevance is drawn from the probabilities of `base`
(`agree`, where the order is already right), or is independent of the passage (`noise`).

The script writes the table and the plot of docs/learning.md. Lists are scored once and cached in --cache.
"""

import argparse
import random
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from command_line import add_datasets, add_numbers
from torch import Tensor

from graphrerank.config.components import ComponentFactory
from graphrerank.core import Ranking
from graphrerank.data.synthetic_queries.questions import draft_questions
from graphrerank.evaluation.measuring import measure_ranking
from graphrerank.evaluation.significance import randomization_tests
from graphrerank.feedback.learning import LearningData, LearningResult, learn_from_sessions
from graphrerank.feedback.log import Session
from graphrerank.feedback.relevance import order
from graphrerank.feedback.stages import exact_scores
from graphrerank.models.checkpoint import load_primary
from graphrerank.utils.files import save_figure, write_json

SETS = {  # data sets and splits that `base` was not trained on
    "choose_nl2bash_tldr": "test",
    "git_flask": "train",
    "2wikimultihopqa": "test",
    "nfcorpus": "test",
    "choose_xquad_de": "test",
    "choose_sphinx_docs": "test",
}
MAX_QUESTIONS = 1200  # maximum number of questions of a data set, evenly spaced
SESSIONS = (50, 200, 1000, 5000)  # numbers of sessions of a run
TRAFFIC = 0.6  # share of the questions that users ask; the others are held out
SHOWN, EXPLORE = 10, 0.5  # length of a list, and `feedback.explore` of the service
RELEVANT, OTHER = 0.9, 0.08  # click probabilities of relevant and other passages
ADVERSARIAL = 0.05  # share of the lists in which clicks contradict relevance
LOUD = 0.1  # share of the lists that are shown to the user who always clicks the fifth passage
DRAFTED = 60  # number of drafted questions of the acceptance test
LEVEL = 0.05  # level at which a deployed ranker counts as worse than `base`
MODELS, NOTHING = ("position", "cascade"), ("agree", "noise")


def prepare(parts: ComponentFactory, folder: Path, name: str, cache: Path) -> LearningData:
    """Rank and score all questions of a data set and its drafted questions, or load them from the cache."""
    path = cache / f"learn_from_use_{name}.pt"
    if path.is_file():
        material: LearningData = torch.load(path, weights_only=False)
        return material
    checkpoint = load_primary("base")
    manifest = checkpoint.graph_reranker
    dataset = parts.dataset("folder", path=str(folder / name), edges="auto", splits={"test": SETS[name]})
    queries = dataset.split("test").queries
    count = min(MAX_QUESTIONS, len(queries))
    dataset = dataset.with_queries(queries[torch.arange(count) * len(queries) // count])
    dataset = dataset.with_drafts(draft_questions(dataset.graph, DRAFTED))
    prepared = parts.prepare(
        dataset,
        retriever=parts.from_manifest("retriever", manifest.retriever),
        encoder=parts.from_manifest("encoder", manifest.encoder),
        reads_vectors=False,
    ).with_features(manifest.retriever.feature_names)
    begin = time.process_time()
    material = LearningData.of(prepared, checkpoint.model, ["train"])
    took = 1000 * (time.process_time() - begin) / len(dataset.query_ids)
    print(f"{name}: {took:.1f} ms of CPU a question to score its list", file=sys.stderr)
    torch.save(material, path)
    return material


class Users:
    """Simulated users of one data set."""

    def __init__(self, material: LearningData, seed: int, truth: str = "judged") -> None:
        self.rng, self.material = random.Random(seed), material
        dataset, lists = material.prepared.dataset, material.lists
        judged = dataset.split("test").queries
        shuffled = judged[torch.randperm(len(judged), generator=torch.Generator().manual_seed(0))]
        count = int(TRAFFIC * len(judged))
        self.asked, self.measured = shuffled[:count].tolist(), shuffled[count:]
        gains = dataset.split("test").relevance(judged, lists.nodes[judged], num_nodes=dataset.graph.num_nodes)
        self.relevant = dict(zip(judged.tolist(), (gains > 0).tolist(), strict=True))
        if truth == "agree":  # The order of base is right.
            draw = torch.Generator().manual_seed(seed)
            of_base = torch.softmax(lists.scores.masked_fill(~lists.mask, -torch.inf), dim=1)
            drawn = torch.rand(of_base.shape, generator=draw) < 2 * of_base
            self.relevant = {query: drawn[query].tolist() for query in judged.tolist()}
        self.truth = truth
        self.shown = order(lists.scores, lists.nodes)[:, :SHOWN].tolist()
        self.frequency = [1 / (1 + rank) ** 0.5 for rank in range(count)]

    def sessions(self, count: int, model: str, *, explore: bool = True) -> list[Session]:
        """Return the shown lists with their clicks, in the order of time."""
        queries = self.rng.choices(self.asked, self.frequency, k=count)
        return [self._session(number, query, model, explore) for number, query in enumerate(queries)]

    def _session(self, number: int, query: int, model: str, explore: bool) -> Session:
        rng, dataset = self.rng, self.material.prepared.dataset
        columns = list(self.shown[query])
        swaps: tuple[tuple[int, int, float], ...] = ()
        if explore and len(columns) > 1:  # The service exchanges neighbours in the same way.
            first = rng.randrange(len(columns) - 1)
            swaps = ((first + 1, first + 2, EXPLORE),)
            if rng.random() < EXPLORE:
                columns[first], columns[first + 1] = columns[first + 1], columns[first]
        loud, adversarial = rng.random() < LOUD, rng.random() < ADVERSARIAL
        gains = []
        goes_on = True
        for rank, column in enumerate(columns, 1):
            relevant = self.relevant[query][column] != adversarial
            chance = RELEVANT if relevant else OTHER
            if self.truth == "noise":
                chance = 0.3
            looks = rng.random() < 1 / rank if model == "position" else goes_on
            clicks = looks and rng.random() < chance
            if model == "cascade":
                goes_on = goes_on and rng.random() < (0.3 if clicks else 0.85)
            gains.append(float(rank == 5) if loud else float(clicks))
        ids = tuple(dataset.graph.node_ids[int(self.material.lists.nodes[query, column])] for column in columns)
        user = "loud" if loud else f"user {rng.randrange(1000)}"
        return Session(str(number), float(number), user, dataset.query_texts[query], ids, tuple(gains), swaps=swaps)


def ndcg(material: LearningData, queries: Tensor, scores: Tensor) -> Tensor:
    """Return nDCG@10 of each question."""
    dataset, nodes = material.prepared.dataset, material.lists.nodes[queries]
    ranking = Ranking(nodes.gather(1, order(scores, nodes)), scores)
    scores_by_measure = measure_ranking(dataset, dataset.split("test"), queries, ranking, ["nDCG@10"])
    return scores_by_measure["nDCG@10"].nan_to_num(0.0)


def measure(material: LearningData, users: Users, learned: LearningResult) -> dict[str, Any]:
    """Compare the deployed ranker with `base` on the held-out questions. It is `base` if no update was accepted."""
    base = ndcg(material, users.measured, material.lists.scores[users.measured])
    deployed = ungated = base
    if learned.change is not None and (learned.accepted or users.truth == "judged"):
        ungated = ndcg(material, users.measured, exact_scores(learned.change.model, material.prepared, users.measured))
        deployed = ungated if learned.accepted else base
    p_worse = float(randomization_tests(base - deployed)[1])
    stage = learned.change.stage if learned.change is not None else ""
    scores = {"base": base, "deployed": deployed, "ungated": ungated}
    means = {name: float(each.mean()) for name, each in scores.items()}
    outcome = {"accepted": learned.accepted, "stage": stage, "tests": learned.tests, "refusals": learned.refusals}
    return {**means, "p worse": p_worse, "slope": learned.propensities.slope, **outcome}


def run(material: LearningData, count: int, model: str, seed: int, truth: str = "judged") -> dict[str, Any]:
    """Simulate sessions, learn from them and measure."""
    users = Users(material, seed, truth)
    sessions, begin = users.sessions(count, model), time.process_time()
    learned = learn_from_sessions(material, sessions, seed=seed)
    row = {"sessions": count, "model": model, "truth": truth, "seed": seed, "seconds": time.process_time() - begin}
    return {**row, **measure(material, users, learned)}


def plot(results: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Plot the gain over `base` by the number of sessions: deployed rankers as lines, learned ones as dotted lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, model in zip(figure.subplots(1, 2, sharey=True), MODELS, strict=True):
        for name, rows in results.items():
            rows_of_model = [row for row in rows if row["model"] == model]
            counts = sorted({row["sessions"] for row in rows_of_model})
            for which, style in (("deployed", "-"), ("ungated", ":")):
                gains = [
                    fmean(row[which] - row["base"] for row in rows_of_model if row["sessions"] == n) for n in counts
                ]
                label = name if which == "ungated" else None
                color = f"C{list(results).index(name)}"
                axes.plot(counts, [100 * gain for gain in gains], style, marker="o", color=color, label=label)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xticks(SESSIONS, [f"{count:,}" for count in SESSIONS])
        axes.minorticks_off()
        axes.set_xlabel("sessions")
        axes.set_title(f"clicks: {model}")
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("nDCG@10, points above base\n(dotted: without the gate)")
    figure.axes[1].legend(fontsize=8)
    save_figure(path, figure)


def table(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Format the mean nDCG@10 and the share of accepted updates by data set, click model and number of sessions."""
    lines = ["| set | clicks | base | " + " | ".join(f"{count:,}" for count in SESSIONS) + " |"]
    lines.append("| --- | --- | --: |" + " --: |" * len(SESSIONS))
    for name, rows in results.items():
        for model in MODELS:
            cells = []
            for count in SESSIONS:
                runs = [row for row in rows if (row["model"], row["sessions"]) == (model, count)]
                accepted = sum(row["accepted"] for row in runs)
                mean = fmean(row["deployed"] for row in runs) if runs else float("nan")
                cells.append(f"{100 * mean:.1f} ({accepted}/{len(runs)})")
            base = fmean(row["base"] for row in rows)
            lines.append(f"| {name} | {model} | {100 * base:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Simulate, learn, and write the numbers, the table and the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_datasets(parser)
    parser.add_argument(
        "--cache", type=Path, required=True, help="folder of the scored lists, and the cache of conf/paths"
    )
    parser.add_argument("--sets", nargs="*", default=list(SETS), help="data sets to simulate; all by default")
    add_numbers(
        parser,
        repeats=(1, "repetitions per point of the curves"),
        nothing=(100, "number of repetitions without information, over all data sets"),
    )
    parser.add_argument("--prepare", action="store_true", help="only rank and score the data sets")
    parser.add_argument("--out", type=Path, required=True, help="folder for learning.json and learning.png")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    parts = ComponentFactory(datasets=arguments.datasets, cache=arguments.cache)
    results: dict[str, list[dict[str, Any]]] = {}
    nothing: list[dict[str, Any]] = []
    for number, name in enumerate(arguments.sets):
        material = prepare(parts, arguments.datasets.resolve(), name, arguments.cache)
        if arguments.prepare:
            continue
        results[name] = [
            run(material, count, model, seed)
            for count in SESSIONS
            for model in MODELS
            for seed in range(arguments.repeats)
        ]
        for seed in range(number, arguments.nothing, len(arguments.sets)):
            model, truth = MODELS[seed % 2], NOTHING[seed // 2 % 2]
            nothing.append({"set": name, **run(material, 1000, model, 1000 + seed, truth)})
        write_json(arguments.out / "learning.json", {"results": results, "nothing": nothing})
        plot(results, arguments.out / "learning.png")
        print(name, file=sys.stderr, flush=True)
    print(table(results))
    for truth in NOTHING:
        runs = [row for row in nothing if row["truth"] == truth]
        print(f"nothing to learn, {truth}: {sum(row['accepted'] for row in runs)} of {len(runs)} accepted")
    every = [row for rows in [*results.values(), nothing] for row in rows]
    print(f"significantly below base: {sum(row['p worse'] <= LEVEL for row in every)} of {len(every)} runs")
    taught = [row for rows in results.values() for row in rows if row["stage"]]
    worse = sum(row["ungated"] < row["base"] for row in taught)
    seconds = [row["seconds"] for rows in results.values() for row in rows if row["sessions"] == 1000]
    print(f"learning from 1,000 sessions: {fmean(seconds):.2f} s of CPU, with scored lists")
    print(f"without the acceptance test: {worse} of {len(taught)} learned rankers below base")


if __name__ == "__main__":
    main()
