"""Hints about files of a data set that are left unread."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.entities import ENTITIES
from graphrerank.graphs import RetrieverFactory


def expansion_hints(dataset: Dataset, data: Mapping[str, Any], build_retriever: RetrieverFactory) -> Iterator[str]:
    """Yield a hint where a retriever expands along edges and the corpus has none.

    Args:
        dataset: The data set.
        data: The settings that it was read with.
        build_retriever: Builds the retriever.
    """
    expands = "Expand" in getattr(getattr(build_retriever, "func", build_retriever), "__name__", "")
    if not expands or dataset.graph.num_edges or dataset.graph.entities is not None or dataset.knn:
        return
    found = list(unread_files(Path(str(data.get("path") or "")), data))
    beside = f" {', '.join(found)}, unread;" if found else ""
    yield f"hint: {dataset.name} has no edges to expand along:{beside} data.edges=auto finds edges in any texts"


def unread_files(folder: Path, data: Mapping[str, Any]) -> Iterator[str]:
    """Name the files of a data set folder that hold edges or entities, with the setting that reads each."""
    named = data.get("edges") or []
    for path in sorted(folder.glob("edges*.tsv")):
        if path.name not in named:
            yield f"{path.name} lies beside it (data.edges=[{path.name}])"
    if (folder / ENTITIES).is_file() and data.get("entities") is None:
        yield f"{ENTITIES} lies beside it (data.entities=file)"
