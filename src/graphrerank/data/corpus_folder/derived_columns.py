"""What a corpus folder holds to derive the mentions and shared entities of passages that are added."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.data.corpus_folder.columns import Column, Columns, write_column
from graphrerank.data.corpus_folder.edge_rows import CHOSE, MENTIONS, NO_MARKS, Marks, origins_of
from graphrerank.data.corpus_folder.entity_growth import ENTITIES
from graphrerank.data.corpus_folder.name_index import names_and_codes, write_names
from graphrerank.data.corpus_folder.opening import map_graph
from graphrerank.data.corpus_folder.term_index import TermIndex, write_terms
from graphrerank.data.derived_edges import DerivedEdges
from graphrerank.data.enrichment.mentions import split_words
from graphrerank.data.readers.documents import split_passage
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.graphs.sparse_rows import row_slots

WORDS = "words"  # the name of the index of words of texts
ORIGINS = (("edges.stated", "<f4", (len(EDGE_TYPES),)), ("edges.marks", "|u1", ()), ("edges.shared", "<f4", ()))


def write_derived(folder: Path, graph: CorpusGraph, derived: DerivedEdges) -> tuple[dict[str, Column], dict[str, Any]]:
    """Write names, words and entities of passages, and where edges come from.

    Returns:
        The manifest's entries of the columns, and its rule by which :mod:`~.derived_growth` goes on.
    """
    columns: dict[str, Column] = {}
    marks = NO_MARKS
    if derived.mentions is not None:
        assert graph.passages.title_lengths is not None
        lengths = graph.passages.title_lengths.tolist()
        split = [split_passage(passage, length) for passage, length in zip(graph.texts, lengths, strict=True)]
        columns |= write_terms(folder, WORDS, (words_of(text) for _, text in split))
        rows = [names_and_codes(title, text) for title, text in split]
        columns |= write_names(folder, rows, derived.mentions.counts)
        marks = Marks.of(derived.mentions.pairs, MENTIONS, is_set=True)
    if derived.entity_names is not None:
        rows_of_entities = [sorted(names) for names in derived.entity_names]
        counts: dict[str, int] = {}
        for row in rows_of_entities:
            for name in row:
                counts[name] = counts.get(name, 0) + 1
        columns |= write_terms(folder, ENTITIES, rows_of_entities, counts=counts, both_ways=True)
    if derived.chosen is not None:
        pairs, weight = derived.chosen
        marks = Marks.joined(marks, Marks.of(pairs, CHOSE, is_set=True, weight=weight))
    if derived.makes_edges:
        origins = origins_of(graph, derived.stated, marks, derived.mention_type)
        for (name, dtype, shape), tensor in zip(ORIGINS, (origins.stated, origins.marks, origins.shared), strict=True):
            columns[name] = write_column(folder, name, dtype, shape, [tensor.numpy()])
    return columns, rule_of(derived, graph.num_nodes)


def derived_of(columns: Columns, manifest: Mapping[str, Any], kept: Tensor) -> DerivedEdges:
    """Read what some passages of a corpus folder, ascending, need to derive their edges anew; numbered anew.

    Args:
        columns: The folder's columns.
        manifest: Its manifest.
        kept: ``[n]`` int64.
    """
    rule, num_nodes = manifest["derived"], int(manifest["num_nodes"])
    number = torch.full((num_nodes,), -1)
    number[kept] = torch.arange(len(kept))
    stated = (torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    if has_origins(manifest):
        graph = map_graph(columns, manifest)
        row, slot = row_slots(graph.indptr, kept, graph.row_stop)
        name, dtype, shape = ORIGINS[0]
        table = columns.tensor(name, dtype, shape)[slot]
        place, types = table.nonzero(as_tuple=True)
        pairs = torch.stack([row, number[graph.indices[slot]]], dim=1)[place]
        stated = (pairs, table[place, types], types)
    entity_names = None
    if rule["entity_source"] is not None:
        index = TermIndex(columns, ENTITIES, num_nodes)
        entity_names = [set[str]() for _ in range(len(kept))]
        for passage, term in zip(*(part.tolist() for part in index.terms_of(kept.numpy())), strict=True):
            entity_names[passage].add(index.words[term])
    return DerivedEdges(
        stated,
        rule["mention_type"],
        entity_source=rule["entity_source"],
        entity_names=entity_names,
        max_entity_share=rule["max_entity_share"],
        makes_choices=rule["chooses"],
    )


def rule_of(derived: DerivedEdges, num_nodes: int) -> dict[str, Any]:
    """Return how edges are derived, for the manifest."""
    return {
        "mention_type": derived.mention_type,
        "entity_source": derived.entity_source,
        "max_entity_share": derived.max_entity_share,
        "chooses": derived.makes_choices,
        "measured_against": num_nodes,
    }


def words_of(text: str) -> list[str]:
    """List the different words of a text, in lower case."""
    return sorted({word.lower() for word in split_words(text)})


def has_origins(manifest: Mapping[str, Any]) -> bool:
    """Return whether a folder says where its edges come from."""
    return ORIGINS[0][0] in manifest["columns"]
