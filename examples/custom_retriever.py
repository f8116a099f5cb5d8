"""Rerank the candidates of a retriever of your own.

Usage: python examples/custom_retriever.py

A retriever is a subclass of `graphrerank.core.Retriever` that is built for a corpus graph. The same object trains
(`fit(retriever=...)`) and evaluates. docs/extending.md shows how to give it a name for the commands.
"""

import argparse

import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from graphrerank import evaluate
from graphrerank.core import Queries, Ranking, Retriever, top_k_by_node_order
from graphrerank.corpus import CorpusGraph


class TfidfRetriever(Retriever):
    """Rank passages by the cosine of TF-IDF vectors."""

    feature_names = ("base_score",)
    fingerprint = "tfidf-bigrams"

    def __init__(self, graph: CorpusGraph, *, top_k: int = 100) -> None:
        """Index the corpus.

        Args:
            graph: Corpus graph, whose `texts` are the passages.
            top_k: Number of candidates per query.
        """
        self.top_k = top_k
        self._vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
        self._passages = self._vectorizer.fit_transform(graph.texts)

    @staticmethod
    def needs_vectors(**settings: object) -> bool:
        """Return False, because no text encoder is needed.

        Args:
            **settings: Settings of the retriever.
        """
        return False

    def retrieve(self, queries: Queries) -> Ranking:
        """Return the best passages `[num_queries, top_k]`, with their scores as features.

        Args:
            queries: Queries to search for.
        """
        scores = torch.from_numpy((self._vectorizer.transform(queries.texts) @ self._passages.T).toarray()).float()
        nodes, scores = top_k_by_node_order(scores, self.top_k)
        return Ranking(nodes, scores, scores.masked_fill(nodes < 0, 0).unsqueeze(-1))


def main() -> None:
    """Evaluate the shipped checkpoint on the retriever's candidates."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default="attack_paths", help="name of a data set, or path of its folder")
    parser.add_argument("--num-queries", type=int, default=300)
    arguments = parser.parse_args()

    retriever = {"_target_": f"{__name__}.TfidfRetriever", "_partial_": True, "top_k": 100}
    result = evaluate({"base": "base"}, arguments.data, retriever=retriever, num_queries=arguments.num_queries)
    result.show()


if __name__ == "__main__":
    main()
