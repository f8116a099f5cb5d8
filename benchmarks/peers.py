"""Rerank with the libraries that compare_peers.py compares, each with the code that its documentation shows.

``python benchmarks/peers.py NAME --folder DIR --model MODEL --out FILE`` runs in the environment of the libraries and
ranks the questions that ``compare_peers.py`` wrote to ``DIR``. Only some of the functions need graphrerank.
"""

import argparse
import inspect
import json
import pickle
import re
import statistics
import textwrap
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

QUESTIONS, STUDY = (
    "questions.pickle",
    "study.pickle",
)  # questions of all corpora, and the training data of logistic regression
ONNX = "ms-marco-MiniLM-L-12-v2"  # FlashRank's name of the cross-encoder, and its folder
WARM_UP = 1  # questions


class Question(NamedTuple):
    """A question with its ``n`` candidates, in the retriever's order."""

    corpus: str
    text: str
    passages: list[str]
    scores: list[float]  # of the retriever
    bm25: list[float]
    dense: list[float]  # cosines
    edges: list[tuple[int, int, float, str]]  # between two places: weight and type
    nodes: list[int]  # numbers of the candidates in the corpus
    vector: Any  # `[d]`
    vectors: Any  # `[n, d]`
    relevant: list[bool]
    logits: list[float]  # of the cross-encoder, as the project's cache has them; empty where it was not read
    features: dict[str, list[float]]  # of the retriever, by name


class Setting(NamedTuple):
    """Model and folder for building a reranker."""

    model: str  # folder of the cross-encoder
    folder: Path  # of the questions


Rank = Callable[[Question], Sequence[int]]  # indices of the candidates, best first


def graphrerank(setting: Setting) -> Rank:
    """`base`."""
    from graphrerank import GraphReranker

    reranker = GraphReranker.from_pretrained("base")
    return lambda q: reranker.rerank(q.text, q.passages, scores=q.scores, edges=q.edges).ids


def graphrerank_features(setting: Setting) -> Rank:
    """`base`, with the retriever's features."""
    from graphrerank import GraphReranker

    ranker = GraphReranker.from_pretrained("base")
    return lambda q: ranker.rerank(q.text, q.passages, scores=q.scores, features=q.features, edges=q.edges).ids


def sentence_transformers(setting: Setting) -> Rank:
    """sentence-transformers."""
    from sentence_transformers import CrossEncoder

    encoder = CrossEncoder(setting.model)
    return lambda q: [hit["corpus_id"] for hit in encoder.rank(q.text, q.passages)]


def sentence_transformers_bfloat16(setting: Setting) -> Rank:
    """sentence-transformers, bfloat16, 256 tokens."""
    from sentence_transformers import CrossEncoder

    encoder = CrossEncoder(setting.model, max_length=256, model_kwargs={"dtype": "bfloat16"})
    return lambda q: [hit["corpus_id"] for hit in encoder.rank(q.text, q.passages)]


def lightning_ir(setting: Setting) -> Rank:
    """lightning-ir."""
    from lightning_ir import CrossEncoderModule
    from lightning_ir.base.external_model_hub import CHECKPOINT_MAPPING, STATE_DICT_KEY_MAPPING
    from lightning_ir.models import MonoConfig

    CHECKPOINT_MAPPING[setting.model] = MonoConfig(linear_bias=True, pooling_strategy="bert_pool")
    STATE_DICT_KEY_MAPPING[setting.model] = STATE_DICT_KEY_MAPPING["castorini/monobert-large-msmarco"]
    module = CrossEncoderModule(setting.model).eval()
    return lambda q: module.score(q.text, q.passages).scores.argsort(descending=True).tolist()


def rerankers(setting: Setting) -> Rank:
    """Rerankers."""
    from rerankers import Reranker

    ranker = Reranker(setting.model, model_type="cross-encoder")
    return lambda q: [hit.document.doc_id for hit in ranker.rank(q.text, q.passages)]


def flashrank(setting: Setting) -> Rank:
    """FlashRank, int8."""
    from flashrank import Ranker, RerankRequest

    ranker = Ranker(ONNX, cache_dir=setting.folder)

    def rank(q: Question) -> list[int]:
        passages = [{"id": place, "text": text} for place, text in enumerate(q.passages)]
        return [hit["id"] for hit in ranker.rerank(RerankRequest(q.text, passages))]

    return rank


def llama_index(setting: Setting) -> Rank:
    """LlamaIndex."""
    from llama_index.core.postprocessor import SentenceTransformerRerank
    from llama_index.core.schema import NodeWithScore, TextNode

    ranker = SentenceTransformerRerank(model=setting.model, top_n=10)

    def rank(q: Question) -> list[int]:
        nodes = [NodeWithScore(node=TextNode(id_=str(place), text=text)) for place, text in enumerate(q.passages)]
        return [int(hit.node.node_id) for hit in ranker.postprocess_nodes(nodes, query_str=q.text)]

    return rank


def haystack(setting: Setting) -> Rank:
    """Haystack."""
    from haystack import Document
    from haystack_integrations.components.rankers.sentence_transformers import SentenceTransformersSimilarityRanker

    ranker = SentenceTransformersSimilarityRanker(model=setting.model, top_k=10)
    ranker.warm_up()

    def rank(q: Question) -> list[int]:
        documents = [Document(id=str(place), content=text) for place, text in enumerate(q.passages)]
        return [int(hit.id) for hit in ranker.run(query=q.text, documents=documents)["documents"]]

    return rank


def gar(setting: Setting) -> Rank:
    """PyTerrier GAR, 50 read."""
    import pandas as pd
    import pyterrier as pt
    from pyterrier_adaptive import GAR, CorpusGraph
    from sentence_transformers import CrossEncoder

    class Edges(CorpusGraph):
        def __init__(self, q: Question) -> None:
            self.rows: dict[str, dict[str, float]] = {str(place): {} for place in range(len(q.passages))}
            for i, j, weight, _ in q.edges:
                self.rows[str(i)][str(j)] = self.rows[str(j)][str(i)] = weight

        def neighbours(self, docid: str, weights: bool = False) -> list[str]:
            return sorted(self.rows[docid], key=lambda other: -self.rows[docid][other])

    encoder = CrossEncoder(setting.model)

    def rank(q: Question) -> list[int]:
        def read(rows: pd.DataFrame) -> Sequence[float]:
            return encoder.predict([(q.text, q.passages[int(docno)]) for docno in rows["docno"]])

        pipeline = GAR(pt.apply.doc_score(read, batch_size=16), Edges(q), num_results=50)
        places = [str(place) for place in range(len(q.passages))]
        frame = pd.DataFrame({"qid": "1", "query": q.text, "docno": places, "score": q.scores})
        found = pipeline(pt.model.add_ranks(frame)).sort_values("score", ascending=False)
        return [int(docno) for docno in found["docno"]]

    return rank


def mmr(setting: Setting) -> Rank:
    """MMR (LangChain)."""
    from langchain_core.vectorstores.utils import maximal_marginal_relevance

    return lambda q: maximal_marginal_relevance(q.vector, q.vectors, k=10)


def rrf(setting: Setting) -> Rank:
    """RRF of BM25, dense, PPR."""
    import networkx

    def rank(q: Question) -> list[int]:
        graph = networkx.MultiGraph()
        graph.add_nodes_from(range(len(q.passages)))
        graph.add_weighted_edges_from(edge[:3] for edge in q.edges)
        walk = networkx.pagerank(graph, personalization={place: max(score, 0) for place, score in enumerate(q.scores)})
        fused = np.zeros(len(q.passages))
        for scores in (q.bm25, q.dense, [walk[place] for place in range(len(q.passages))]):
            fused[np.argsort(-np.array(scores), kind="stable")] += 1 / (61 + np.arange(len(scores)))
        return np.argsort(-fused, kind="stable").tolist()

    return rank


def rrf_degree(setting: Setting) -> Rank:
    """RRF of BM25, dense, number of edges."""

    def rank(q: Question) -> list[int]:
        degree, fused = np.zeros(len(q.passages)), np.zeros(len(q.passages))
        for i, j, weight, _ in q.edges:
            degree[[i, j]] += weight
        for scores in (q.bm25, q.dense, degree):
            fused[np.argsort(-np.array(scores), kind="stable")] += 1 / (61 + np.arange(len(scores)))
        return np.argsort(-fused, kind="stable").tolist()

    return rank


def logistic_regression(setting: Setting) -> Rank:
    """Logistic regression."""
    from sklearn.linear_model import LogisticRegression
    from torch import tensor

    from graphrerank.operators.ppr import EntityPPR

    train, entities = pickle.loads((setting.folder / STUDY).read_bytes())
    walks = {corpus: EntityPPR(found, num_seeds=5) for corpus, found in entities.items()}

    def features(q: Question) -> Any:  # the walk starts at the least mentioned entities of 5 seeds, and returns there
        walk = walks[q.corpus].score(tensor([q.nodes]))[0, q.nodes].numpy()
        columns = np.array([q.scores, q.bm25, q.dense, 1 / (1 + np.arange(len(q.scores))), walk])
        return (columns / columns.max(1, keepdims=True).clip(1e-9)).T

    fitted = LogisticRegression(class_weight="balanced")
    fitted.fit(np.concatenate([features(q) for q in train]), np.concatenate([q.relevant for q in train]))
    return lambda q: np.argsort(-fitted.decision_function(features(q)), kind="stable").tolist()


class Peer(NamedTuple):
    """Reranker with the packages to install for it."""

    build: Callable[[Setting], Rank]
    packages: tuple[str, ...]  # to install
    reads: bool = False  # whether a cross-encoder reads the texts

    @property
    def title(self) -> str:
        """The name in tables."""
        return (inspect.getdoc(self.build) or "").rstrip(".")


PEERS = {
    peer.build.__name__: peer
    for peer in (
        Peer(mmr, ("langchain-core", "numpy")),
        Peer(rrf, ("networkx", "numpy", "scipy")),
        Peer(rrf_degree, ("numpy",)),
        Peer(logistic_regression, ("scikit-learn", "graphrerank")),
        Peer(sentence_transformers, ("sentence-transformers",), reads=True),
        Peer(sentence_transformers_bfloat16, ("sentence-transformers",), reads=True),
        Peer(lightning_ir, ("lightning-ir",), reads=True),
        Peer(rerankers, ("rerankers[transformers]",), reads=True),
        Peer(llama_index, ("llama-index-core", "sentence-transformers"), reads=True),
        Peer(haystack, ("haystack-ai", "sentence-transformers-haystack"), reads=True),
        Peer(flashrank, ("flashrank",), reads=True),
        Peer(gar, ("pyterrier-adaptive", "sentence-transformers"), reads=True),
        Peer(graphrerank, ("graphrerank",)),
        Peer(graphrerank_features, ("graphrerank",)),
    )
}


def snippet(peer: Peer) -> str:
    """Return the body of a reranker's function without its docstring."""
    lines = textwrap.dedent("\n".join(inspect.getsource(peer.build).splitlines()[2:])).strip()
    return re.sub(r"\n\n(?=def |class )|(?<=    )(.+)\n\n(?=\S)", r"\1\n\n\n", lines)  # blank lines as outside of it


def installed(packages: Sequence[str]) -> dict[str, float]:
    """Return the size of packages and their requirements in megabytes, without bytecode."""
    from packaging.requirements import Requirement

    sizes: dict[str, float] = {}
    queue = [Requirement(package) for package in packages]
    while queue:
        needed = queue.pop()
        name = re.sub(r"[-_.]+", "-", needed.name).lower()
        if name in sizes:
            continue
        found = metadata.distribution(name)
        files = [Path(str(path.locate())) for path in found.files or ()]
        sizes[name] = sum(path.stat().st_size for path in files if path.is_file() and path.suffix != ".pyc") / 1e6
        for requirement in map(Requirement, found.requires or ()):
            if requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ("", *needed.extras)
            ):
                queue.append(requirement)
    return sizes


class Lookup:
    """Replacement for a cross-encoder of sentence-transformers that returns cached logits."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self.logits = {(q.text, passage): x for q in questions for passage, x in zip(q.passages, q.logits, strict=True)}

    def predict(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return the logits of pairs."""
        return [self.logits[pair] for pair in pairs]

    def rank(self, query: str, passages: Sequence[str]) -> list[dict[str, int]]:
        """Return the indices of the passages, best first."""
        logits = np.array(self.predict([(query, passage) for passage in passages]))
        return [{"corpus_id": place} for place in np.argsort(-logits, kind="stable").tolist()]


def memory(field: str) -> float:
    """Return memory of this process in MiB: ``VmRSS`` is the current resident memory, ``VmHWM`` the peak."""
    return int(re.findall(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[0]) / 1024


def main() -> None:
    """Rank and time the questions one at a time, and write the rankings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=PEERS, help="reranker to run")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the questions")
    parser.add_argument("--model", required=True, help="folder or hub name of the cross-encoder")
    parser.add_argument("--limit", type=int, help="maximum number of questions per corpus")
    parser.add_argument("--lookup", action="store_true", help="use cached logits instead of running the cross-encoder")
    parser.add_argument("--out", type=Path, required=True, help="file for the rankings")
    arguments = parser.parse_args()
    peer = PEERS[arguments.name]
    corpora: dict[str, list[Question]] = pickle.loads((arguments.folder / QUESTIONS).read_bytes())
    if arguments.lookup:
        import sentence_transformers as library

        lookup = Lookup([q for questions in corpora.values() for q in questions])
        library.CrossEncoder = lambda *_, **__: lookup
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    rank = peer.build(Setting(arguments.model, arguments.folder))
    for q in next(iter(corpora.values()))[-WARM_UP:]:
        rank(q)
    orders: dict[str, list[list[int]]] = {}
    times = []
    for corpus, questions in corpora.items():
        orders[corpus] = []
        for q in questions[: arguments.limit]:
            begin = time.process_time()
            orders[corpus].append([int(place) for place in rank(q)])
            times.append(1000 * (time.process_time() - begin))
    peak = memory("VmHWM") - before
    found = {"orders": orders, "ms": statistics.median(times), "peak_mib": peak, "mb": installed(peer.packages)}
    arguments.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
