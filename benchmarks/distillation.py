"""Measure rerankers that learn from a cross-encoder, with 0, 40 and 400 judged questions.

python benchmarks/distillation.py --datasets DIR --teacher DIR [--out DIR] [--sets scifact ...]

Each collection has 400 training questions, 40 validation questions and 200 test questions, evenly spaced over its
splits, and the first 10 candidates of BM25. Nothing is encoded. The teacher scores all candidates of the training and
validation questions. A GATv2 reranker is trained with three seeds in each of these ways:

- on 40 or 400 judged questions with the listwise loss,
- on the teacher's scores of all 400 questions (`kl`), where the judged ones among them have the listwise loss too.

Without judged questions, the teacher also labels the 40 validation questions, which are held out from the 400. The
test questions are only used for the table, and no setting was chosen by them. The table has nDCG@10 as a mean over
the seeds, and p-values of paired randomisation tests over questions, with and without distillation. The script writes
the scores of each question to --out, and continues there after an interruption.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from command_line import add_datasets
from torch import Tensor

from graphrerank import FitSettings, RerankerTrainer
from graphrerank.config.components import ComponentFactory
from graphrerank.data.candidates import PreparedDataset, cross_encoder_scores
from graphrerank.data.dataset import Dataset
from graphrerank.data.teachers import CrossEncoderTeacher
from graphrerank.evaluation.measuring import measure_ranking
from graphrerank.evaluation.reranking import measure_queries, trained_system
from graphrerank.evaluation.significance import compare_pairs
from graphrerank.evaluation.systems import System
from graphrerank.models.checkpoint import load_primary
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.training.training_data import TrainingData, evenly_spaced
from graphrerank.utils.files import write_json

MEASURE = "nDCG@10"
SPELLED = {"knn": 0, "entities": "spelling"}  # edges by shared names, because nothing is encoded
SETS: Mapping[str, Mapping[str, Any]] = {
    "scifact": SPELLED,
    "nfcorpus": SPELLED,
    "hotpotqa": {"splits": {"train": "train", "val": "dev", "test": "test"}},
    "2wikimultihopqa": {},
    "spider": {},
}
TRAINED_ON = {
    "2wikimultihopqa": "2wikimultihopqa_train"
}  # another corpus, because the collection has only a test split
TRAIN, VAL, TEST, DEPTH = 400, 40, 200, 10
JUDGED = (0, 40, 400)
SEEDS = (1, 2, 3)
SETTINGS = FitSettings(max_epochs=20, warmup_steps=10, calibration=None, restart_probs={"gcs": 0.5, "ppr": 0.5})
WEIGHTED = {"listwise": 1.0, "kl": 1.0}


@dataclass(frozen=True)
class Collection:
    """Collection of the experiment.

    Attributes:
        name: Name of the collection.
        training: Data set with the splits ``train`` and ``val``.
        test: Data set with the split ``test``, which may be the same.
    """

    name: str
    training: PreparedDataset
    test: PreparedDataset


def prepare(
    parts: ComponentFactory, name: str, settings: Mapping[str, Any], sizes: Mapping[str, int]
) -> PreparedDataset:
    """Retrieve the candidates of a data set, and limit its splits to evenly spaced questions."""
    data = parts.component("data", name, **settings)
    prepared = parts.prepare(data, retriever=bm25(parts), encoder=None, reads_vectors=False, splits=list(sizes))
    dataset = prepared.dataset
    splits = {
        split: dataset.split(split).select_queries(evenly_spaced(dataset.split(split).queries, count))
        for split, count in sizes.items()
    }
    return replace(prepared, dataset=with_splits(dataset, splits))


def with_splits(dataset: Dataset, splits: Mapping[str, Any]) -> Dataset:
    """Return the data set with other splits. Its candidates remain those in the cache."""
    return replace(dataset, splits=splits, known_fingerprint=dataset.fingerprint)


def load(parts: ComponentFactory, name: str) -> Collection:
    """Prepare the training and test questions of a collection."""
    settings, training_sizes = SETS[name], {"train": TRAIN, "val": VAL}
    if name not in TRAINED_ON:
        both = prepare(parts, name, settings, {**training_sizes, "test": TEST})
        return Collection(name, both, both)
    training = prepare(parts, TRAINED_ON[name], settings, training_sizes)
    return Collection(name, training, prepare(parts, name, settings, {"test": TEST}))


def training_dataset(prepared: PreparedDataset, num_judged: int, *, unjudged: bool) -> Dataset:
    """Return the data set in which ``num_judged`` of the training questions have judgements.

    With ``unjudged``, the other training questions are in no split, so that only the teacher scores them. Without
    judged questions there is no validation split either, and ``reserved`` keeps those questions from the training.
    """
    dataset = prepared.dataset
    train, val = dataset.split("train"), dataset.split("val")
    judged = train.select_queries(evenly_spaced(train.queries, num_judged))
    others = train.select_queries(train.queries[~torch.isin(train.queries, judged.queries)])
    splits = {name: qrels for name, qrels in dataset.splits.items() if name == "test"}
    splits |= {"train": judged, "val": val} if num_judged else {"reserved": val}
    if not unjudged and len(others.queries):
        splits["others"] = others
    everything = torch.cat([train.queries, val.queries, *(qrels.queries for qrels in splits.values())])
    return keep_queries(dataset, torch.unique(everything), splits)


def keep_queries(dataset: Dataset, queries: Tensor, splits: Mapping[str, Any]) -> Dataset:
    """Return the data set with these queries alone."""
    number = torch.full((len(dataset.query_ids),), -1)
    number[queries] = torch.arange(len(queries))
    renumbered = {name: replace(qrels, query=number[qrels.query]) for name, qrels in splits.items()}
    ids = [dataset.query_ids[query] for query in queries.tolist()]
    texts = [dataset.query_texts[query] for query in queries.tolist()]
    return replace(dataset, query_ids=ids, query_texts=texts, splits=renumbered, answers={})


def train(
    parts: ComponentFactory, collection: Collection, num_judged: int, teacher: CrossEncoderTeacher | None
) -> Tensor:
    """Train with every seed, and return the mean measure of each test question."""
    dataset = training_dataset(collection.training, num_judged, unjudged=teacher is not None)
    loss: Any = "listwise" if teacher is None else WEIGHTED if num_judged else "kl"
    data: TrainingData | None = None
    scores = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            trainer = RerankerTrainer(
                "gatv2",
                SETTINGS.with_changes(seed=seed),
                dataset if data is None else data,
                retriever=bm25(parts),
                encoder=None,
                features="scores_match",
                loss=loss,
                teacher=teacher,
                trainer={"enable_progress_bar": False, "accelerator": "cpu"},
                run_dir=folder,
                parts=parts,
            )
            data = trainer.prepare()
            training = trainer.optimize(trainer.build(data))
            reranker = trainer.save(training, {})
            system = trained_system("gatv2", reranker.checkpoint.model, torch.device("cpu"))
            test = collection.test.with_features(data.first.feature_names)
            scores.append(measure_queries(test, "test", system, measures=[MEASURE])[MEASURE])
    return torch.stack(scores).mean(0)


def bm25(parts: ComponentFactory) -> Any:
    """Return the settings of the retriever."""
    return parts.component("retriever", "bm25", top_k=DEPTH)


def untrained(collection: Collection, teacher: CrossEncoderTeacher) -> dict[str, Tensor]:
    """Return the measures of the retriever, the shipped checkpoint ``base`` and the teacher."""
    test = collection.test
    qrels = test.dataset.split("test")
    base = load_primary("base")
    features = test.with_features(base.graph_reranker.retriever.feature_names)
    logits = cross_encoder_scores(test, teacher.pair_encoder, qrels.queries).nan_to_num(nan=-torch.inf)
    order = logits.argsort(dim=1, descending=True, stable=True)
    ranked = replace(test.ranking.select(qrels.queries), features=None, base_nodes=None)
    ranked = replace(ranked, nodes=ranked.nodes.gather(1, order), scores=logits.gather(1, order))
    retriever = System("retriever", lambda graphs: graphs.x[:, 0])
    shipped = trained_system("base", base.model, torch.device("cpu"))
    return {
        "retriever": measure_queries(test, "test", retriever, measures=[MEASURE])[MEASURE],
        "base": measure_queries(features, "test", shipped, measures=[MEASURE])[MEASURE],
        "teacher": measure_ranking(test.dataset, qrels, qrels.queries, ranked, [MEASURE])[MEASURE],
    }


def measure(parts: ComponentFactory, collection: Collection, teacher: CrossEncoderTeacher) -> dict[str, Tensor]:
    """Return the measure of each test question by system."""
    scores = untrained(collection, teacher)
    for num_judged in JUDGED:
        if num_judged:
            scores[f"{num_judged} judged"] = train(parts, collection, num_judged, None)
        scores[f"{num_judged} judged, distilled"] = train(parts, collection, num_judged, teacher)
        means = {name: round(100 * float(row.mean()), 2) for name, row in scores.items()}
        print(collection.name, means, flush=True)
    return scores


COMPARED = (
    ("0 judged, distilled", "retriever"),
    ("0 judged, distilled", "base"),
    ("40 judged, distilled", "40 judged"),
    ("400 judged, distilled", "400 judged"),
    ("0 judged, distilled", "40 judged"),
)


def table(results: Mapping[str, Mapping[str, Tensor]]) -> str:
    """Return the tables of means and of differences, in Markdown."""
    names, systems = list(results), list(next(iter(results.values())))
    lines = [f"| {MEASURE} | {' | '.join(names)} | mean |", f"| --- |{' --: |' * (len(names) + 1)}"]
    for system in systems:
        means = [100 * float(results[name][system].mean()) for name in names]
        lines.append(f"| {system} | {' | '.join(f'{mean:.1f}' for mean in [*means, sum(means) / len(means)])} |")
    lines += ["", f"| difference (p) | {' | '.join(names)} |", f"| --- |{' --: |' * len(names)}"]
    for first, second in COMPARED:
        cells = []
        for name in names:
            rows = torch.stack([results[name][first], results[name][second]]).unsqueeze(1)
            compared = compare_pairs(rows, [(0, 1)])
            difference, p = 100 * float(compared["difference"]), float(compared["p_randomization"])
            low, high = (100 * compared["interval"].flatten()).tolist()
            cells.append(f"{difference:+.1f} [{low:+.1f}, {high:+.1f}] ({p:.4f})")
        lines.append(f"| {first}, against {second} | {' | '.join(cells)} |")
    return "\n".join(lines)


def read_scores(file: Path) -> dict[str, dict[str, Tensor]]:
    """Return the scores of an earlier run in the same folder."""
    content = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return {
        name: {key: torch.tensor(row, dtype=torch.float64) for key, row in rows.items()}
        for name, rows in content.items()
    }


def main() -> None:
    """Run the experiment."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_datasets(parser)
    parser.add_argument("--teacher", required=True, help="folder or hub id of the cross-encoder")
    parser.add_argument("--out", type=Path, default=Path("runs", "distillation"), help="folder of the results")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    arguments = parser.parse_args()

    parts = ComponentFactory(datasets=arguments.datasets, device="cpu")
    encoder = CrossEncoder(arguments.teacher, max_length=128, dtype="bfloat16", device="cpu")
    teacher = CrossEncoderTeacher(pair_encoder=parts.pair_encoder(encoder), top_k=None)
    file = arguments.out / "scores.json"
    results: dict[str, dict[str, Tensor]] = read_scores(file)
    for name in arguments.sets:
        if name not in results:
            results[name] = measure(parts, load(parts, name), teacher)
        scores = {set_name: {key: row.tolist() for key, row in rows.items()} for set_name, rows in results.items()}
        write_json(file, scores)
    print(table(results))


if __name__ == "__main__":
    main()
