"""``graphrerank prepare``: write a data set as a memory-mapped corpus folder, or change such a folder."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path

from hydra.utils import get_object, instantiate
from omegaconf import DictConfig

from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.corpus.relations import with_relations
from graphrerank.corpus_store.growth import NewEdge, compact_corpus, grow_corpus
from graphrerank.corpus_store.opening import read_corpus_manifest
from graphrerank.corpus_store.preparation import check_own_folder, prepare_corpus
from graphrerank.data.dataset import Dataset
from graphrerank.data.derived_edges import EXTRACTORS
from graphrerank.data.folder import EDGES_FILE
from graphrerank.data.readers.documents import CorpusRecord, read_documents
from graphrerank.data.readers.edges import FileRelation, read_edges
from graphrerank.data.readers.entities import ENTITIES_FILE, read_entities
from graphrerank.data.readers.records import existing_folder, read_lines
from graphrerank.data.vector_cache import VectorCache
from graphrerank.task_engines.base import LOCAL
from graphrerank.utils.checks import UserError


def run(cfg: DictConfig) -> Path:
    """Write or change a corpus folder, and print it as the last line.

    Args:
        cfg: Settings of ``conf/prepare.yaml``.

    Returns:
        The corpus folder.

    Raises:
        ValueError: If the settings describe neither a data set nor a change, or both, or an engine for a change.
    """
    changes = [f"{key}=" for key in ("add", "remove", "compact") if cfg[key]]
    requests = [*changes, *(["data="] if cfg.data is not None else [])]
    if len(requests) == 0 or (changes and cfg.data is not None):
        raise UserError(
            "graphrerank prepare needs either a data set to write (data=folder data.path=DIR) or a change of a corpus "
            f"folder (add=DIR, remove=FILE, compact=true), got {' and '.join(requests) or 'neither'}"
        )
    if changes and cfg.engine is not None:
        raise UserError(
            f"`engine` must be null for a change of a corpus folder ({changes[0]}...), which one process makes"
        )
    parts = ComponentFactory(paths=dict(cfg.paths), device=cfg.device, num_threads=cfg.num_threads, seed=cfg.seed)
    folder = Path(cfg.folder)
    if changes:
        change_corpus(cfg, parts, folder)
    else:
        write_corpus(cfg, parts, folder)
    print(folder, flush=True)
    return folder


def write_corpus(cfg: DictConfig, parts: ComponentFactory, folder: Path) -> None:
    """Encode and index a data set, and write it as a corpus folder.

    Args:
        cfg: Settings of ``conf/prepare.yaml``.
        parts: Factory that builds the encoder.
        folder: Folder to write.
    """
    check_own_folder(folder)
    accepted = inspect.signature(get_object(cfg.data["_target_"])).parameters
    keeps = {"keep_derived": True} if {"keep_derived", "options"} & accepted.keys() else {}
    dataset: Dataset = instantiate(cfg.data, **keeps)
    print(dataset.summary(encoded=cfg.encoder is not None), flush=True)
    with LOCAL if cfg.engine is None else instantiate(cfg.engine) as engine:
        prepare_corpus(
            dataset,
            folder,
            encoder=_encoder(cfg, parts),
            vectors=cfg.vectors,
            index=cfg.index,
            part_size=cfg.part_size,
            cache=parts.cache / "candidates",
            engine=engine,
        )
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{dataset.graph.num_nodes:,} passages, {size / 1e6:,.1f} MB")


def _encoder(cfg: DictConfig, parts: ComponentFactory) -> VectorCache | None:
    return None if cfg.encoder is None else parts.text_encoder(ConfiguredComponent(cfg.encoder))


def change_corpus(cfg: DictConfig, parts: ComponentFactory, folder: Path) -> None:
    """Remove and add passages in one transaction, and compact the folder if ``compact`` is true.

    Args:
        cfg: Settings of ``conf/prepare.yaml``.
        parts: Factory that builds the encoder.
        folder: Corpus folder to change.
    """
    manifest = read_corpus_manifest(folder)
    source_of_entities = None if manifest.derived is None else manifest.derived.entity_source
    if cfg.add or cfg.remove:
        remove = [] if cfg.remove is None else [line.strip() for _, line in read_lines(Path(cfg.remove))]
        source = None if cfg.add is None else existing_folder(cfg.add, needed="corpus.jsonl")
        documents = [] if source is None else list(read_documents(source))
        edges, relations = ([], []) if source is None else _read_edges(source / EDGES_FILE, cfg.edge_meanings)
        growth = grow_corpus(
            folder,
            [document.doc_id for document in documents],
            [document.passage for document in documents],
            edges=edges,
            entities=None if source_of_entities in EXTRACTORS else _read_entities(source, documents),
            remove=remove,
            replace=cfg.replace,
            encoder=_encoder(cfg, parts) if documents and manifest.encoder is not None else None,
            title_lengths=[len(document.title) for document in documents],
            metadata=with_relations({document.doc_id: document.metadata for document in documents}, relations),
        )
        print(f"{growth.num_added:,} added, {growth.num_removed:,} removed: {growth.num_nodes:,} passages")
    if cfg.compact:
        compact_corpus(folder)


def _read_edges(path: Path, meanings: Mapping[str, str] | None) -> tuple[list[NewEdge], Sequence[FileRelation]]:
    """Read edges between any ids, and the relations for the metadata. Both are empty if the file does not exist."""
    if not path.is_file():
        return [], []
    ids = _Numbering()
    pairs, weight, types, guarded, relations = read_edges([path], ids, edge_meanings=meanings)
    if guarded is not None:
        raise UserError(f"{path}: edges with principals cannot be added to a corpus folder. Prepare the folder again")
    names = list(ids)
    rows = zip(pairs.tolist(), weight.tolist(), types.tolist(), strict=True)
    edges = [
        NewEdge(names[source], names[target], edge_weight, edge_type)
        for (source, target), edge_weight, edge_type in rows
    ]
    return edges, relations


def _read_entities(folder: Path | None, documents: Sequence[CorpusRecord]) -> list[Sequence[str]] | None:
    """Read the names of each document's entities. None if the file does not exist."""
    path = None if folder is None else folder / ENTITIES_FILE
    if path is None or not path.is_file():
        return None
    number_of = {document.doc_id: number for number, document in enumerate(documents)}
    names = {line.doc_id: line.names for line in read_entities(path, number_of, need_names=True)}
    return [names.get(document.doc_id, ()) for document in documents]


class _Numbering(dict[str, int]):
    """Mapping that assigns the next number to an id on its first look-up."""

    def get(self, key: str, default: object = None) -> int:
        """Return the number of an id, which is assigned on the first look-up."""
        return self.setdefault(key, len(self))
