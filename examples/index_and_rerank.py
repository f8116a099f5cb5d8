"""Turn a folder of documents into a corpus graph, search it with BM25, and rerank the hits along their links.

Usage: python examples/index_and_rerank.py DOCUMENTS "QUESTION" [--out my_data]

Needs `pip install "graphrerank[train,documents]"`.
"""

import argparse
from pathlib import Path

from graphrerank import Dataset, GraphReranker
from graphrerank.core import Queries
from graphrerank.corpus import candidate_edges
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank_documents.index_folder import index_folder


def main() -> None:
    """Index the documents, search, and print both rankings."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("documents", type=Path, help="folder of documents, such as Markdown, HTML, PDF or code")
    parser.add_argument("question")
    parser.add_argument("--out", type=Path, default=Path("my_data"), help="data set folder; an existing one is updated")
    parser.add_argument("--top-n", type=int, default=5)
    arguments = parser.parse_args()

    print(index_folder(arguments.documents, arguments.out))  # passages, links, and what was not read
    graph = Dataset.from_folder(arguments.out, edges="auto").graph

    hits = BM25Retriever(graph, top_k=50).retrieve(Queries(["q1"], [arguments.question]))
    nodes = hits.nodes[0][hits.nodes[0] >= 0]
    (source, target), _, _, _ = candidate_edges(graph, nodes.unsqueeze(0))
    edges = [(i, j) for i, j in zip(source.tolist(), target.tolist(), strict=True) if i < j]
    names = [graph.node_ids[node] for node in nodes.tolist()]
    ranking = GraphReranker.from_pretrained("base").rerank(
        arguments.question,
        [graph.texts[node] for node in nodes.tolist()],
        scores=hits.scores[0][: len(nodes)],
        edges=edges,
        top_n=arguments.top_n,
    )
    for title, positions in (("BM25", range(min(arguments.top_n, len(nodes)))), ("base", ranking.ids)):
        print(f"\n{title}")
        for position in positions:
            print(f"  {names[position]}")


if __name__ == "__main__":
    main()
