"""``python evaluate.py prepare=CORPUS add=FOLDER``, ``remove=FILE``, ``compact=true``: change a corpus folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from graphrerank.cli.session import Session
from graphrerank.data.corpus_folder.compaction import compact_corpus
from graphrerank.data.corpus_folder.derived_growth import EXTRACTORS
from graphrerank.data.corpus_folder.growth import NewEdge, grow_corpus
from graphrerank.data.corpus_folder.opening import read_manifest
from graphrerank.data.readers.documents import Document, read_documents
from graphrerank.data.readers.edge_list import read_edges
from graphrerank.data.readers.entities import ENTITIES, read_entities
from graphrerank.data.readers.folder import EDGES
from graphrerank.data.readers.records import existing_folder, read_lines


def grow_folder(session: Session) -> Path:
    """Remove and add the passages that the command names, in one step; then compact the folder if it says so.

    Raises:
        ValueError: If there is no corpus folder, or a passage or an edge does not fit.
    """
    cfg = session.cfg
    if cfg.prepare is None:
        raise ValueError("`add`, `remove` and `compact` need prepare=DIR, a corpus folder")
    folder = Path(cfg.prepare)
    manifest = read_manifest(folder)
    known, rule = manifest["encoder"], manifest.get("derived") or {}
    if cfg.add or cfg.remove:
        remove = [] if cfg.remove is None else [line.strip() for _, line in read_lines(Path(cfg.remove))]
        source = None if cfg.add is None else existing_folder(cfg.add, needed="corpus.jsonl")
        documents = [] if source is None else list(read_documents(source))
        encoder = None
        if documents and known is not None:
            encoder = session.text_encoder(cfg.encoder or session.group("encoder", "minilm"))
        growth = grow_corpus(
            folder,
            [document.doc_id for document in documents],
            [document.passage for document in documents],
            edges=[] if source is None else _read_edges(source / EDGES, _edge_meanings(session)),
            entities=None if rule.get("entity_source") in EXTRACTORS else _read_entities(source, documents),
            remove=remove,
            replace=cfg.replace,
            encoder=encoder,
            title_lengths=[len(document.title) for document in documents],
        )
        print(f"{growth.num_added:,} added, {growth.num_removed:,} removed: {growth.num_nodes:,} passages")
    if cfg.compact:
        compact_corpus(folder)
    return folder


def _edge_meanings(session: Session) -> Mapping[str, str] | None:
    """Return ``data.edge_meanings`` of a data set that the command names."""
    data = session.cfg.data
    return None if data is None or not data.get("edge_meanings") else dict(data.edge_meanings)


def _read_edges(path: Path, meanings: Mapping[str, str] | None) -> list[NewEdge]:
    """Read edges of any ids; none if there is no such file."""
    if not path.is_file():
        return []
    ids = _Numbering()
    pairs, weight, types = read_edges([path], ids, edge_meanings=meanings)
    names = list(ids)
    rows = zip(pairs.tolist(), weight.tolist(), types.tolist(), strict=True)
    return [NewEdge(names[source], names[target], w, edge_type) for (source, target), w, edge_type in rows]


def _read_entities(folder: Path | None, documents: Sequence[Document]) -> list[Sequence[str]] | None:
    """Read the names of each document's entities; None if there is no such file."""
    path = None if folder is None else folder / ENTITIES
    if path is None or not path.is_file():
        return None
    number = {document.doc_id: place for place, document in enumerate(documents)}
    names = {line.doc_id: line.names for line in read_entities(path, number, need_names=True)}
    return [names.get(document.doc_id, ()) for document in documents]


class _Numbering(dict[str, int]):
    """Numbers ids as they are looked up."""

    def get(self, key: str, default: object = None) -> int:
        """Return the number of an id."""
        return self.setdefault(key, len(self))
