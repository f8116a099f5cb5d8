"""ReTAG's index in memory and on disk, and the settings that make it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.files import atomic_folder, load_tensors, save_tensors
from graphrerank.graphs import CorpusGraph, EntityIncidence
from graphrerank.indexes.retag.communities import Communities, Rows
from graphrerank.indexes.retag.report import ReTAGReport
from graphrerank.indexes.retag.topics import Topics

FORMAT = 1  # of the files
ROWS = ("members", "sentences", "sources", "named")  # of the communities
ARRAYS, STRINGS = "index.safetensors", "index.json"


@dataclass(frozen=True)
class ReTAGSettings:
    """What an index is made of.

    Attributes:
        num_topics: Topics to find at most; 0: the general graph alone.
        coverage: Share in (0, 1] of the entities that some topic must take up, and of the corpus's sentences that would
            be let into some topic if they were questions; both thresholds follow from it.
        num_terms: Words of a topic.
        resolution: Of modularity; larger: smaller communities.
        max_community: Communities of so many entities or more are split on the next level.
        min_component: Entities that are joined with fewer than so many, themselves among them, are in no community.
        context_tokens: Most tokens that a summary is made from.
        summary_tokens: Most tokens of a summary.
        centrality: Share in [0, 1] of a sentence's likeness to the whole in its score; the rest is its unlikeness to
            the sentences that were picked before it.
        description_tokens: Most tokens that describe an entity or a relation.
        seed: Of clustering and of communities.

    Raises:
        ValueError: If a setting is out of range.
    """

    num_topics: int = 8
    coverage: float = 0.95
    num_terms: int = 10
    resolution: float = 1.0
    max_community: int = 10
    min_component: int = 5
    context_tokens: int = 4000
    summary_tokens: int = 256
    centrality: float = 0.7
    description_tokens: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name in (
            "num_terms",
            "max_community",
            "min_component",
            "context_tokens",
            "summary_tokens",
            "description_tokens",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be a positive integer, got {getattr(self, name)}")
        if self.num_topics < 0:
            raise ValueError(f"`num_topics` must not be negative, got {self.num_topics}")
        if not 0 < self.coverage <= 1:
            raise ValueError(f"`coverage` must lie in (0, 1], got {self.coverage}")
        if not self.resolution > 0:
            raise ValueError(f"`resolution` must be positive, got {self.resolution}")
        if not 0 <= self.centrality <= 1:
            raise ValueError(f"`centrality` must lie in [0, 1], got {self.centrality}")


@dataclass(frozen=True)
class Subgraph:
    """Entities and which of them are related.

    Attributes:
        nodes: ``[n]`` int64 entity numbers, ascending.
        edges: ``[m, 2]`` int64 entity numbers, each pair once, the smaller number first, ascending.
        weight: ``[m]`` float32, how often the corpus states a relation between the two.
    """

    nodes: Tensor
    edges: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Sentences:
    """Sentences of the corpus.

    Attributes:
        texts: ``S`` strings, each as its passage has it.
        passage: ``[S]`` int64, the passage that each comes from.
        num_tokens: ``[S]`` int64.
    """

    texts: Sequence[str]
    passage: Tensor
    num_tokens: Tensor


@dataclass(frozen=True)
class ReTAGIndex:
    """Topics, the entities and relations of each, their communities, and a summary of every community.

    Attributes:
        settings: What it was made with.
        passage_ids: ``P`` ids of the passages, the chunks of the corpus.
        entities: ``E`` names, as they were written first.
        topics: ``T`` topics.
        graphs: ``1 + T``: the general graph, then that of each topic.
        communities: Of all graphs.
        sentences: Those that summaries consist of.
        report: What it holds and what it cost.
    """

    settings: ReTAGSettings
    passage_ids: Sequence[str]
    entities: Sequence[str]
    topics: Topics
    graphs: Sequence[Subgraph]
    communities: Communities
    sentences: Sentences
    report: ReTAGReport

    def community_graph(self, communities: Tensor, *, max_share: float = 0.05) -> CorpusGraph:
        """Make a corpus graph whose passages are the summaries of some communities, and whose vectors are theirs.

        Edges join parent and child; summaries that name the same entity are neighbours by ``CorpusGraph.entities``.

        Args:
            communities: ``[n]`` int64 community numbers, each once; node ``i`` is the ``i``-th of them.
            max_share: An entity that more than this share of the summaries names (and more than 10) joins none.

        Returns:
            ``n`` nodes; their ids are ``<graph>.<level>.<community>``.
        """
        own = self.communities
        numbers = communities.tolist()
        place = torch.full((len(own) + 1,), -1, dtype=torch.int64)  # the last place is that of no parent
        place[communities] = torch.arange(len(numbers))
        parent = place[own.parent[communities]]
        child = (parent >= 0).nonzero().flatten()
        ids = [f"{own.graph[number]}.{own.level[number]}.{number}" for number in numbers]
        edges = torch.stack([parent[child], child], dim=1)
        graph = CorpusGraph.from_edges(ids, [own.texts[number] for number in numbers], edges)
        named = [[str(entity) for entity in own.named[number].tolist()] for number in numbers]
        entities = EntityIncidence.from_names(named, max_share=max_share)
        return graph.with_embedding(own.vectors[communities]).with_entities(entities)

    def sources(self, community: int) -> list[str]:
        """Ids of the passages that a community's summary was made from, in the order of the corpus."""
        return [self.passage_ids[passage] for passage in self.communities.sources[community].tolist()]

    def save(self, folder: str | Path) -> None:
        """Write the index into a folder, which is either whole or not there."""
        own = self.communities
        arrays = {
            **_prefixed("topics", self.topics, "vectors", "centre"),
            **_prefixed("sentences", self.sentences, "passage", "num_tokens"),
            **_prefixed("communities", own, "graph", "level", "parent", "num_tokens", "vectors"),
        }
        for name in ROWS:
            arrays |= _prefixed(f"communities.{name}", getattr(own, name), "indptr", "indices")
        for number, graph in enumerate(self.graphs):
            arrays |= _prefixed(f"graphs.{number}", graph, "nodes", "edges", "weight")
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
            "titles": list(own.titles),
            "summaries": list(own.texts),
            "sentences": list(self.sentences.texts),
            "report": asdict(self.report),
        }
        with atomic_folder(Path(folder)) as temporary:
            save_tensors(temporary / ARRAYS, arrays)
            (temporary / STRINGS).write_text(json.dumps(strings) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: str | Path) -> "ReTAGIndex":
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: If there is no index, it is damaged, or it is of another format.
        """
        file = Path(folder) / STRINGS
        try:
            strings = json.loads(file.read_text(encoding="utf-8"))
            if strings["format"] != FORMAT:
                raise ValueError(f"{file}: needed an index of format {FORMAT}, found {strings['format']}")
            return _read(strings, file.with_name(ARRAYS))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError, LookupError, TypeError) as error:
            raise ValueError(f"{file}: no index, or a damaged one ({error!r}); build it again") from error


def _read(strings: dict[str, Any], file: Path) -> ReTAGIndex:
    topics = strings["topics"]
    rows = [f"communities.{name}.{part}" for name in ROWS for part in ("indptr", "indices")]
    graphs = range(1 + len(topics["names"]))
    names = (
        *("topics.vectors", "topics.centre", "sentences.passage", "sentences.num_tokens"),
        *(f"communities.{name}" for name in ("graph", "level", "parent", "num_tokens", "vectors")),
        *rows,
        *(f"graphs.{number}.{part}" for number in graphs for part in ("nodes", "edges", "weight")),
    )
    found = load_tensors(file, names)

    def arrays(prefix: str) -> dict[str, Any]:
        begin = len(prefix) + 1
        named = {name[begin:]: array for name, array in found.items() if name.startswith(f"{prefix}.")}
        return {name: array for name, array in named.items() if "." not in name}

    listed: dict[str, Any] = {name: Rows(**arrays(f"communities.{name}")) for name in ROWS}
    return ReTAGIndex(
        settings=ReTAGSettings(**strings["settings"]),
        passage_ids=strings["passage_ids"],
        entities=strings["entities"],
        topics=Topics(**topics, **arrays("topics")),
        graphs=[Subgraph(**arrays(f"graphs.{number}")) for number in graphs],
        communities=Communities(
            **arrays("communities"), **listed, titles=strings["titles"], texts=strings["summaries"]
        ),
        sentences=Sentences(strings["sentences"], **arrays("sentences")),
        report=ReTAGReport(**strings["report"]),
    )


def _prefixed(prefix: str, part: object, *names: str) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": getattr(part, name).clone() for name in names}  # two may be one
