"""ReTAG's index in memory and on disk, and its settings."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.checks import check_counts, check_not_negative, check_positive, check_positive_share, check_share
from graphrerank.files import atomic_folder, load_tensors, save_tensors, write_text
from graphrerank.graphs import CorpusGraph, EntityIncidence
from graphrerank.untrusted import MAX_LARGE_BYTES, read_json
from graphrerank_papers.retag.communities import Communities, Rows
from graphrerank_papers.retag.report import ReTAGReport
from graphrerank_papers.retag.topics import Topics

FORMAT = 1  # of the files
COLUMNS = ("graph", "level", "parent", "num_tokens", "vectors")  # tensors of the communities
ROWS = ("members", "sentences", "sources", "named")  # lists of the communities
ARRAYS, STRINGS = "index.safetensors", "index.json"


@dataclass(frozen=True)
class ReTAGSettings:
    """Settings of an index."""

    num_topics: int = 8  # maximum number of topics; 0: the general graph only
    # share in (0, 1] of entities that belong to some topic, and of the corpus's sentences that would be routed to
    # some topic as questions; both thresholds follow from it
    coverage: float = 0.95
    num_terms: int = 10  # words per topic
    resolution: float = 1.0  # resolution of modularity; larger values give smaller communities
    max_community: int = 10  # communities of this many entities or more are split on the next level
    min_component: int = 5  # entities of connected components smaller than this are in no community
    context_tokens: int = 4000  # maximum number of tokens that a summary is made from
    summary_tokens: int = 256  # maximum number of tokens of a summary
    # weight in [0, 1] of a sentence's similarity to all others in its score; the remainder weighs its dissimilarity
    # to the sentences selected before it
    centrality: float = 0.7
    description_tokens: int = 100  # maximum number of tokens that describe an entity or a relation
    seed: int = 0  # seed of clustering and communities

    def __post_init__(self) -> None:
        counts = ("num_terms", "max_community", "min_component")
        limits = ("context_tokens", "summary_tokens", "description_tokens")
        check_counts(**{name: getattr(self, name) for name in (*counts, *limits)})
        check_not_negative(num_topics=self.num_topics)
        check_positive_share(coverage=self.coverage)
        check_share(centrality=self.centrality)
        check_positive(resolution=self.resolution)


@dataclass(frozen=True)
class Subgraph:
    """Entities and the relations between them."""

    nodes: Tensor  # `[n]` int64 entities, ascending
    edges: Tensor  # `[m, 2]` int64 entities, unique pairs, the smaller index first, ascending
    weight: Tensor  # `[m]` float32, number of statements that join the two plus number of sentences that name both


@dataclass(frozen=True)
class Sentences:
    """Sentences of the corpus."""

    texts: Sequence[str]  # `S` strings, verbatim
    passage: Tensor  # `[S]` int64, the passage of each
    num_tokens: Tensor  # `[S]` int64


@dataclass(frozen=True)
class ReTAGIndex:
    """Topics, the entities and relations of each, their communities, and a summary of every community."""

    settings: ReTAGSettings
    passage_ids: Sequence[str]  # `P` ids of the passages, which are the chunks of the corpus
    entities: Sequence[str]  # `E` names, as first written
    topics: Topics  # `T` topics
    graphs: Sequence[Subgraph]  # `1 + T`: the general graph, then that of each topic
    communities: Communities  # communities of all graphs
    sentences: Sentences  # sentences that summaries consist of
    report: ReTAGReport  # sizes and costs

    def community_graph(self, communities: Tensor, *, max_share: float = 0.05) -> CorpusGraph:
        """Build a corpus graph whose ``n`` nodes are the summaries of ``[n]`` int64 communities, in their order.

        Edges join parent and child; summaries that name the same entity are neighbours by ``CorpusGraph.entities``,
        unless more than ``max_share`` of the summaries (and more than 10) name it. Ids are
        ``<graph>.<level>.<community>``.
        """
        source = self.communities
        indices = communities.tolist()
        node_of = torch.full((len(source) + 1,), -1, dtype=torch.int64)  # a parent of -1 reads the last element
        node_of[communities] = torch.arange(len(indices))
        parent = node_of[source.parent[communities]]
        child = (parent >= 0).nonzero().flatten()
        ids = [f"{source.graph[index]}.{source.level[index]}.{index}" for index in indices]
        edges = torch.stack([parent[child], child], dim=1)
        graph = CorpusGraph.from_edges(ids, [source.texts[index] for index in indices], edges)
        named = [[str(entity) for entity in source.named[index].tolist()] for index in indices]
        entities = EntityIncidence.from_names(named, max_share=max_share)
        return graph.with_embedding(source.vectors[communities]).with_entities(entities)

    def sources(self, community: int) -> list[str]:
        """Return the ids of the passages that a community's summary was made from, in corpus order."""
        return [self.passage_ids[passage] for passage in self.communities.sources[community].tolist()]

    def save(self, folder: str | Path) -> None:
        """Write the index into a folder, atomically."""
        arrays = {
            **_prefixed("topics", self.topics, "vectors", "centre"),
            **_prefixed("sentences", self.sentences, "passage", "num_tokens"),
            **_prefixed("communities", self.communities, *COLUMNS),
        }
        for name in ROWS:
            arrays |= _prefixed(f"communities.{name}", getattr(self.communities, name), "indptr", "indices")
        for index, graph in enumerate(self.graphs):
            arrays |= _prefixed(f"graphs.{index}", graph, "nodes", "edges", "weight")
        strings = {
            "format": FORMAT,
            "settings": asdict(self.settings),
            "passage_ids": list(self.passage_ids),
            "entities": list(self.entities),
            "topics": {
                "names": list(self.topics.names),
                "terms": [list(terms) for terms in self.topics.terms],
                "entity_threshold": self.topics.entity_threshold,
                "threshold": self.topics.threshold,
            },
            "titles": list(self.communities.titles),
            "summaries": list(self.communities.texts),
            "sentences": list(self.sentences.texts),
            "report": asdict(self.report),
        }
        with atomic_folder(Path(folder)) as temporary:
            save_tensors(temporary / ARRAYS, arrays)
            write_text(temporary / STRINGS, json.dumps(strings) + "\n")

    @classmethod
    def load(cls, folder: str | Path) -> "ReTAGIndex":
        """Read an index written by :meth:`save`."""
        file = Path(folder) / STRINGS
        try:
            strings = read_json(file, max_bytes=MAX_LARGE_BYTES)
        except (OSError, ValueError) as error:
            raise ValueError(f"{file}: missing or damaged index ({error!r}); build it again") from error
        try:
            if strings["format"] != FORMAT:
                raise ValueError(f"{file}: format must be {FORMAT}, got {strings['format']}")
            return _read(strings, file.with_name(ARRAYS))
        except (OSError, LookupError, TypeError) as error:
            raise ValueError(f"{file}: missing or damaged index ({error!r}); build it again") from error


def _read(strings: dict[str, Any], file: Path) -> ReTAGIndex:
    topics = strings["topics"]
    graphs = range(1 + len(topics["names"]))
    names = (
        *("topics.vectors", "topics.centre", "sentences.passage", "sentences.num_tokens"),
        *(f"communities.{name}" for name in COLUMNS),
        *(f"communities.{name}.{field}" for name in ROWS for field in ("indptr", "indices")),
        *(f"graphs.{index}.{field}" for index in graphs for field in ("nodes", "edges", "weight")),
    )
    tensors = load_tensors(file, names)

    def arrays(prefix: str) -> dict[str, Any]:
        """Return the tensors named ``<prefix>.<field>``, by field."""
        split = ((*name.rpartition("."), tensor) for name, tensor in tensors.items())
        return {field: tensor for owner, _, field, tensor in split if owner == prefix}

    rows: dict[str, Any] = {name: Rows(**arrays(f"communities.{name}")) for name in ROWS}
    return ReTAGIndex(
        settings=ReTAGSettings(**strings["settings"]),
        passage_ids=strings["passage_ids"],
        entities=strings["entities"],
        topics=Topics(**topics, **arrays("topics")),
        graphs=[Subgraph(**arrays(f"graphs.{index}")) for index in graphs],
        communities=Communities(**arrays("communities"), **rows, titles=strings["titles"], texts=strings["summaries"]),
        sentences=Sentences(strings["sentences"], **arrays("sentences")),
        report=ReTAGReport(**strings["report"]),
    )


def _prefixed(prefix: str, owner: object, *names: str) -> dict[str, Tensor]:
    # Copies, as safetensors refuses tensors that share memory.
    return {f"{prefix}.{name}": getattr(owner, name).clone() for name in names}
