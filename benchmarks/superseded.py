"""Measure whether the passage that is valid now ranks above those that it supersedes.

``python benchmarks/superseded.py DATASETS/peps`` drafts the questions from Python enhancement proposals (PEPs) whose
sections are replaced by those of a later proposal.
"""

import json
import random
import re
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch

from graphrerank.core import Queries
from graphrerank.corpus_store.word_columns import with_words
from graphrerank.data.dataset import Dataset
from graphrerank.metrics.ranking import ndcg
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.expand import ExpandRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer

REPLACED = {  # proposals, with those that replace their sections of the same heading
    "241": ["314"], "314": ["345"], "345": ["566"], "344": ["3134"], "386": ["440"], "411": ["729"], "554": ["734"],
    "563": ["649", "749"], "622": ["634"], "649": ["749"], "262": ["376"],
}  # fmt: skip
NUM_OTHERS = 300


def heading(document):
    """Return the last heading of a passage without markup."""
    return re.sub(r"\W+", " ", document["title"].rsplit(" > ", 1)[-1]).strip().lower()


def question(document):
    """Draft a question from the title of a passage, without number and version."""
    return re.sub(r"\b1\.\d\b", "", re.sub(r"^PEP \d+ ", "", document["title"])).replace(" > ", " ")


def draft(documents):
    """Return pairs (newer, older) of passages, and questions with the only passage that is valid now."""
    sections, by_id = {}, {document["_id"]: document for document in documents}
    for document in documents:
        sections.setdefault(document["metadata"]["doc_id"], []).append(document)
    newer = {}
    for old, replacing in REPLACED.items():
        for new in replacing:
            of_heading = {heading(document): document["_id"] for document in sections.get(new, ())}
            for document in sections.get(old, ()):
                if heading(document) in of_heading:
                    newer[document["_id"]] = of_heading[heading(document)]
    changed = []
    for node in newer:
        now = node
        while now in newer:
            now = newer[now]
        changed.append((question(by_id[node]), now))
    others = [
        document
        for document in documents
        if document["_id"] not in {*newer, *newer.values()} and document["metadata"]["status"] in ("Final", "Active")
    ]
    drawn = random.Random(0).sample(others, NUM_OTHERS)
    return newer, {"changed": changed, "others": [(question(document), document["_id"]) for document in drawn]}


def main(source):
    """Evaluate with the edges as relations and as plain references."""
    torch.set_num_threads(1)
    newer, sets = draft([json.loads(line) for line in (source / "corpus.jsonl").open()])
    for kind in ("reference", "supersedes"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shutil.copyfile(source / "corpus.jsonl", folder / "corpus.jsonl")
            (folder / "queries.jsonl").touch()
            rows = "".join(f"{new}\t{old}\t{kind}\n" for old, new in newer.items())
            (folder / "edges.tsv").write_text((source / "edges.tsv").read_text().rstrip("\n") + "\n" + rows)
            graph = with_words(Dataset.from_folder(folder, splits={}).graph)
        search = partial(ExpandRetriever, base=partial(BM25Retriever), similarity_weight=0.0)
        scorer = partial(CheckpointScorer, checkpoint="base", device="cpu")
        steps = [partial(VectorSearch, retriever=search), partial(GraphRerank, scorer=scorer)]
        pipeline = Pipeline(graph, steps=steps)
        for name, questions in sets.items():
            texts = [text for text, _ in questions]
            found = pipeline.retrieve(Queries(texts, texts, None)).ranking.nodes[:, :10].tolist()
            gains = torch.tensor(
                [
                    [float(node >= 0 and graph.node_ids[node] == right) for node in row]
                    for row, (_, right) in zip(found, questions, strict=True)
                ]
            )
            score = float(ndcg(gains, torch.ones(len(gains), 1), top_k=10).mean())
            print(f"{kind}, {name}: {len(questions)} questions, nDCG@10 {100 * score:.1f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
