"""Measure which relevant passages graph expansion finds and evicts, with and without competition (``tail_bonus``).

``python benchmarks/tail_bonus.py DATA/choose_sphinx_docs:test DATA/spider:train --edges 1 0.3`` prints, for each data
set folder and split, the percentage of questions whose relevant passages are all among 100 candidates, and the recall:
of the hybrid ranking alone, of ``hybrid_expand``, and of ``hybrid_expand`` with ``tail_bonus``. ``--edges`` are shares
of the links that are sampled at random, for sparse graphs. Questions are evenly spaced over the split.
"""

import argparse
import random
from pathlib import Path

import torch

from graphrerank.config.components import ComponentFactory
from graphrerank.core import Queries
from graphrerank.core.adapters import query_encoder
from graphrerank.data.candidates import with_vectors
from graphrerank.data.dataset import Dataset
from graphrerank.operators.expand import HybridExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.training.training_data import evenly_spaced
from graphrerank.utils.files import temporary_folder

TOP_K = 100
LINKS = ("edges.tsv", "edges_computed.tsv")  # the first one that a folder has is read


def load_sparse(folder: Path, share: float) -> Dataset:
    """Load a data set folder with a random share of its links."""
    links = next(name for name in LINKS if (folder / name).is_file())
    header, *rows = (folder / links).read_text(encoding="utf-8").splitlines()
    generator = random.Random(0)
    with temporary_folder() as parent:
        work = parent / folder.name
        work.mkdir()
        for path in folder.iterdir():
            (work / path.name).symlink_to(path.resolve())
        (work / links).unlink()
        sampled = [row for row in rows if generator.random() < share]
        (work / links).write_text("\n".join([header, *sampled]) + "\n", encoding="utf-8")
        return Dataset.from_folder(work, edges=[links])


def main() -> None:
    """Print a table with one row per data set and share of its links."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", nargs="+", help="FOLDER:SPLIT")
    parser.add_argument("--edges", type=float, nargs="+", default=[1.0], help="shares of the links")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--tail-bonus", type=float, nargs="+", default=[0.8])
    arguments = parser.parse_args()
    parts = ComponentFactory()
    encoder = parts.text_encoder("minilm")
    bonuses = arguments.tail_bonus
    print(f"| data | links | hybrid | hybrid_expand | {' | '.join(f'tail_bonus={bonus}' for bonus in bonuses)} |")
    print("| --- | --: |" + " --: |" * (2 + len(bonuses)))
    for name in arguments.data:
        folder, _, split = name.rpartition(":")
        for share in arguments.edges:
            dataset = load_sparse(Path(folder), share)
            dataset = dataset.with_queries(evenly_spaced(dataset.split(split).queries, arguments.queries))
            dataset = with_vectors(dataset, encoder, parts.cache / "candidates")
            graph, qrels = dataset.graph, dataset.split(split)
            vectors = query_encoder(encoder).encode(dataset.query_texts)
            queries = Queries(dataset.query_ids, dataset.query_texts, vectors)
            quotas = parts.settings("retriever", "hybrid_expand").quotas
            expand = {"top_k": TOP_K, "quotas": dict(quotas)}
            retrievers = [HybridRetriever(graph, top_k=TOP_K), HybridExpandRetriever(graph, **expand)]
            retrievers += [HybridExpandRetriever(graph, **expand, tail_bonus=bonus) for bonus in bonuses]
            cells = []
            for retriever in retrievers:
                nodes = retriever.retrieve(queries).nodes[qrels.queries]
                found = qrels.relevance(qrels.queries, nodes, num_nodes=graph.num_nodes) > 0
                recall = (found.sum(1) / (qrels.gains(qrels.queries) > 0).sum(1)).mean()
                complete = qrels.share_complete(qrels.queries, nodes, num_nodes=graph.num_nodes)
                cells.append(f"{100 * complete:.1f} ({100 * float(recall):.1f})")
            print(f"| {dataset.name} {split} | {share:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
