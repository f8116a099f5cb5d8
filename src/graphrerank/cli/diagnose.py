"""``graphrerank doctor DATA``: does the graph of a corpus help?"""

from functools import partial
from pathlib import Path

import torch

from graphrerank.api import chosen_part, with_trained_splits
from graphrerank.cli.evaluate import build_parts, chosen, chosen_encoder
from graphrerank.cli.session import Session
from graphrerank.data.candidates import prepare
from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.folder import AUTO
from graphrerank.evaluation.diagnose import MEASURES
from graphrerank.evaluation.diagnose import diagnose as diagnose_graph
from graphrerank.evaluation.diagnosis import graph_shape, shape_lines
from graphrerank.models.checkpoint import load_primary
from graphrerank.models.manifest import RerankerManifest
from graphrerank.parts import Parts


def diagnose(session: Session) -> Path:
    """Measure whether the edges of a corpus help a reranker, by its judged questions; without any, write some to judge.

    Raises:
        ValueError: If the data set cannot be read, or the checkpoint is no graph reranker or reads a cross-encoder.
    """
    cfg = session.cfg
    source = str(cfg.checkpoint)
    checkpoint = load_primary(source)
    session.tracking.reads_checkpoint(source)
    manifest = checkpoint.graph_reranker
    parts = build_parts(session)
    retriever, _ = chosen_part(parts, "retriever", chosen(session, "retriever"), {source: manifest}, None)
    encoder, _ = chosen_part(parts, "encoder", chosen_encoder(session), {source: manifest}, None)
    dataset = _read(session, parts, manifest)
    print(f"{dataset.name}: {len(dataset.query_ids):,} questions")
    print("\n".join(shape_lines(graph_shape(dataset.graph))), flush=True)
    if not len(dataset.query_ids):
        print("No questions: write queries.jsonl, and run this again for a set to judge.")
        print("Or judge by drafted questions, which were made along the edges: data.drafted=200.")
        return session.run_dir
    torch.set_num_threads(parts.num_threads)
    dataset, encodes, build_retriever = parts.load(
        dataset, encoder=encoder, retriever=retriever, reads_vectors=manifest.inputs.reads_vectors
    )
    cache = parts.cache / "candidates"
    search = partial(prepare, encoder=encodes, build_retriever=build_retriever, cache=cache)
    diagnose_graph(
        search(dataset),
        checkpoint,
        search,
        split=cfg.split,
        num_queries=cfg.num_queries,
        measures=list(cfg.measures) or MEASURES,
        tested=list(cfg.tested),
        resamples=cfg.resamples,
        seed=cfg.seed,
        device=parts.device,
        run_dir=session.run_dir,
        command=session.command,
    )
    return session.run_dir


def _read(session: Session, parts: Parts, manifest: RerankerManifest) -> Dataset:
    """Read the data set; of a folder in which no edges lie, with those that its texts give."""
    named = str(session.cfg.dataset)
    folder = f"{named.rstrip('/')}/" if Path(named).is_dir() else named
    given = chosen(session, "data")
    data = parts.settings("data", folder) if given is None or given.settings is None else given.settings
    data = with_trained_splits(data, [manifest])
    dataset = parts.dataset(data)
    has_edges = dataset.graph.edge_types() or dataset.knn
    if not has_edges and "edges" in data and data.edges is None:
        print("no edges are given: those that the texts give are judged (data.edges=auto)")
        data.edges = AUTO
        dataset = parts.dataset(data)
    return dataset
