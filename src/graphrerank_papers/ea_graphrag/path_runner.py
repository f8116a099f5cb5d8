"""Both paths over data sets: run once, kept on disk, and read by the jobs that train the router and judge it."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from graphrerank.checks import check_positive_share
from graphrerank.cli.job_session import Group, JobSession, PipelineFactory
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Qrels
from graphrerank.data.readers.merged import SEPARATOR
from graphrerank.files import check_writable, hash_json, load_tensors, save_tensors
from graphrerank.graphs import Queries, Ranking
from graphrerank_papers.ea_graphrag.two_paths import TwoPaths
from graphrerank_papers.hashed_order import hashed_order

MERGED = "merged"  # of conf/data
WARM_UP = 8  # questions that each path retrieves before the clock starts
KEPT = ("dense_nodes", "dense_scores", "graph_nodes", "graph_scores", "seconds")


class PathRunner:
    """Runs a dense and a graph pipeline, groups of ``conf/pipeline`` with one budget, over parts of data sets.

    With ``merged``, entries by name as of :meth:`read`, the corpora of all are one, and every question is searched for
    in it. The rankings lie in ``<cache>/two_paths``, under a hash of data set, encoder, questions and settings: a run
    that was stopped resumes at the next data set.
    """

    def __init__(
        self, session: JobSession, dense: Group, graph: Group, *, merged: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        if dense["budget"] != graph["budget"]:
            raise ValueError(f"both paths must have one `budget`, got {dense['budget']} and {graph['budget']}")
        self.session = session
        self.groups = {"dense": dense, "graph": graph}
        self._merged = merged
        self._prepared: dict[str, tuple[PreparedDataset, PipelineFactory]] = {}  # of the merged corpus, for all sets

    def read(self, name: str, entry: Mapping[str, Any], *, seed: int) -> TwoPaths:
        """Return both paths' rankings of some questions of a data set.

        Args:
            name: Of ``conf/data``, or the path of a folder; ``entry.data`` where that is given.
            entry: ``splits``; ``share`` of their questions, in (0, 1], all by default; ``max_relevant``, the most
                relevant passages that a question may have.
            seed: Decides which questions the share is.
        """
        prepared, build = self.prepare(data_of(name, entry))
        if self._merged is not None:
            entry = {**entry, "splits": [f"{name}{SEPARATOR}{split}" for split in entry["splits"]]}
        queries = pick_queries(prepared, entry, seed=seed)
        dataset = prepared.dataset
        ids, texts = ([strings[n] for n in queries.tolist()] for strings in (dataset.query_ids, dataset.query_texts))
        vectors = None if prepared.query_vectors is None else prepared.query_vectors[queries]
        settings = {path: path_settings(group) for path, group in self.groups.items()}
        key = hash_json([dataset.fingerprint, prepared.encoder_fingerprint, ids, settings])
        file = self.session.cache / "two_paths" / f"{dataset.name}-{key}.safetensors"
        if not file.is_file():
            check_writable(file.parent)
            save_tensors(file, self._retrieve(prepared, build, Queries(ids, texts, vectors)))
        kept = load_tensors(file, KEPT)
        dense_seconds, graph_seconds = kept["seconds"].tolist()
        return TwoPaths(
            dataset=dataset.name,
            query_ids=ids,
            texts=texts,
            queries=queries,
            qrels=_judgements(prepared, entry),
            passages=dataset.graph.texts,
            answers=dataset.answers,
            dense=Ranking(kept["dense_nodes"], kept["dense_scores"]),
            graph=Ranking(kept["graph_nodes"], kept["graph_scores"]),
            seconds=(dense_seconds, graph_seconds),
        )

    def prepare(self, name: str) -> tuple[PreparedDataset, PipelineFactory]:
        """Load and encode a data set, or all of them as one, and return a factory of pipelines over its corpus."""
        if self._merged is None:
            return self.session.prepare_for_pipelines(self.session.group("data", name))
        if MERGED not in self._prepared:
            parts = {key: self.session.group("data", data_of(key, entry)) for key, entry in self._merged.items()}
            group = self.session.group("data", MERGED, datasets=parts)
            self._prepared[MERGED] = self.session.prepare_for_pipelines(group)
        return self._prepared[MERGED]

    def _retrieve(self, prepared: PreparedDataset, build: PipelineFactory, queries: Queries) -> dict[str, torch.Tensor]:
        tensors: dict[str, torch.Tensor] = {}
        seconds = []
        for path, group in self.groups.items():
            pipeline = build(group)
            pipeline.retrieve(queries.block(0, WARM_UP))
            begin = time.perf_counter()
            ranking = pipeline.retrieve(queries).ranking
            seconds.append((time.perf_counter() - begin) / len(queries))
            tensors |= {f"{path}_nodes": ranking.nodes, f"{path}_scores": ranking.scores}
            print(f"{prepared.dataset.name}: {path} path, {1000 * seconds[-1]:.1f} ms per question", flush=True)
        return tensors | {"seconds": torch.tensor(seconds, dtype=torch.float64)}


def data_of(name: str, entry: Mapping[str, Any]) -> str:
    """Return the data set of an entry: a name of ``conf/data``, or a folder's path."""
    return str(entry.get("data") or name)


def pick_queries(prepared: PreparedDataset, entry: Mapping[str, Any], *, seed: int) -> torch.Tensor:
    """Choose the questions of an entry (:meth:`PathRunner.read`): ``[Q]`` int64, ascending.

    A share is the first of the questions in the order of a hash of seed and id, so that a larger one holds a smaller.
    """
    share, most = entry.get("share"), entry.get("max_relevant")
    share = 1.0 if share is None else float(share)
    check_positive_share(share=share)
    qrels = _judgements(prepared, entry)
    queries = qrels.queries
    if most is not None:
        queries = queries[(qrels.gains(queries) > 0).sum(1) <= int(most)]
    order = hashed_order([prepared.dataset.query_ids[query] for query in queries.tolist()], seed)
    chosen = queries[torch.tensor(order[: round(share * len(order))], dtype=torch.int64)].sort().values
    if not len(chosen):
        raise ValueError(f"data set {prepared.dataset.name!r} must have questions for {dict(entry)}, found none")
    return chosen


def _judgements(prepared: PreparedDataset, entry: Mapping[str, Any]) -> Qrels:
    """Put the judgements of an entry's splits together."""
    parts = [prepared.dataset.split(str(name)) for name in entry["splits"]]
    return Qrels(
        torch.cat([part.query for part in parts]),
        torch.cat([part.node for part in parts]),
        torch.cat([part.gain for part in parts]),
    )


def question_key(text: str) -> str:
    """Hash a question regardless of case and spaces, to recognise it in another data set.

    Example:
        >>> question_key("Who  died?") == question_key("who died? ")
        True
    """
    return hashlib.sha256(" ".join(text.casefold().split()).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def path_settings(group: Any) -> Any:
    """Return all that decides a path's rankings: its settings and classes, without the folders of this machine."""
    if isinstance(group, Mapping):
        return {str(key): path_settings(part) for key, part in group.items() if key not in ("folder", "cache")}
    if isinstance(group, Sequence) and not isinstance(group, str):
        return [path_settings(part) for part in group]
    return group
