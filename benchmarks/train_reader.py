"""Train the extractive reader on the answers of train splits, and evaluate it on data sets that it was not trained on.

``python benchmarks/train_reader.py --datasets DIR`` uses contexts of ten passages in BM25's order: once the relevant
passages and the best others, and once the ten best passages by BM25.
"""

import argparse
import json
import tempfile
from pathlib import Path

import torch

from graphrerank.core import Queries
from graphrerank.data.dataset import Dataset
from graphrerank.metrics.coverage import normalize_answer
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.utils.tensor_files import save_tensors
from graphrerank_papers.answers.extractive_reader import (
    NUM_WEIGHTS,
    READER_WEIGHTS,
    ExtractiveReader,
    answer_spans,
    feature_rows,
)
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.scoring import score_answers

TOP_K, EPOCHS, LEARNING_RATE = 10, 4, 0.05
TRAIN = (("2wikimultihopqa_train", "train"), ("hotpotqa", "train"))
JUDGED = (("hotpotqa", "dev"), ("hotpotqa", "test"), ("2wikimultihopqa", "test"))


def contexts_of(folder: Path, name: str, split: str, *, complete: bool) -> list[tuple[str, list[str], list[str]]]:
    """Return the question, the right answers and the passages of each query."""
    data = Dataset.from_folder(folder / name)
    qrels = data.split(split)
    retriever = BM25Retriever(data.graph, top_k=TOP_K)
    numbers = qrels.queries.tolist()
    texts = [data.query_texts[n] for n in numbers]
    nodes = retriever.retrieve(Queries([data.query_ids[n] for n in numbers], texts, None)).nodes.tolist()
    rows = []
    for number, text, found in zip(numbers, texts, nodes, strict=True):
        listed = [node for node in found if node >= 0]
        if complete:
            relevant = qrels.node[qrels.query == number].tolist()
            others = [node for node in listed if node not in relevant]
            place = {node: rank for rank, node in enumerate(listed)}
            listed = sorted([*relevant, *others[: TOP_K - len(relevant)]], key=lambda node: place.get(node, TOP_K))
        rows.append((text, list(data.answers.get(data.query_ids[number], ())), [data.graph.texts[n] for n in listed]))
    return rows


def train(rows: list[tuple[str, list[str], list[str]]], *, decay: float, seed: int = 0) -> torch.Tensor:
    """Train the weights to maximise the total probability of right spans."""
    torch.manual_seed(seed)
    examples = []
    for question, right, passages in rows:
        spans = answer_spans(question, passages)
        forms = {normalize_answer(answer) for answer in right}
        positive = torch.tensor([normalize_answer(span.text) in forms for span in spans])
        if positive.any() and not positive.all():
            examples.append((*feature_rows(spans), positive))
    print(f"{len(examples)} of {len(rows)} contexts contain the answer as a span", flush=True)
    weights = torch.nn.Parameter(torch.zeros(NUM_WEIGHTS, 1))
    optimizer = torch.optim.Adagrad([weights], lr=LEARNING_RATE)
    for _ in range(EPOCHS):
        for index in torch.randperm(len(examples)).tolist():
            features, starts, positive = examples[index]
            scores = torch.nn.functional.embedding_bag(features, weights, starts, mode="sum").flatten()
            loss = scores.logsumexp(0) - scores[positive].logsumexp(0) + decay * weights[features].square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return weights.detach().flatten()


def main() -> None:
    """Train the reader, evaluate it, and optionally write the weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--decay", type=float, default=0.0, help="weight decay (default: %(default)s)")
    parser.add_argument(
        "--write", action="store_true", help="write the weights to the file that graphrerank_papers.answers loads"
    )
    given = parser.parse_args()
    rows = []
    for name, split in TRAIN:
        for complete in (True, False):
            rows += contexts_of(given.datasets, name, split, complete=complete)
    weights = train(rows, decay=given.decay)
    with tempfile.TemporaryDirectory() as folder:
        path = READER_WEIGHTS if given.write else Path(folder) / "weights.safetensors"
        save_tensors(path, {"weights": weights.half()})
        reader = ExtractiveReader(path)
        for name, split in JUDGED:
            for complete in (True, False):
                asked = contexts_of(given.datasets, name, split, complete=complete)
                packed = [Context(tuple(passages), 0) for _, _, passages in asked]
                said = [reply.text for reply in reader.write([question for question, _, _ in asked], packed)]
                scores = score_answers(said, [context.text for context in packed], [right for _, right, _ in asked])
                means = {measure: round(100 * float(row.nanmean()), 1) for measure, row in scores.items()}
                about = {"data": name, "split": split, "with all relevant": complete, "questions": len(asked)}
                print(json.dumps({**about, **means}), flush=True)


if __name__ == "__main__":
    main()
