"""Constituency trees by Stanza, on spaCy's tokens and tags."""

import importlib.metadata
import pickle
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from graphrerank.files import hash_files
from graphrerank_papers.ea_graphrag.syntax.tree import Tree
from graphrerank_papers.ea_graphrag.syntax.units import Units, count_units

BATCH_SENTENCES = 50
RESOURCES = '{"en": {"lang_name": "English", "packages": {}}}'


class StanzaParser:
    """Stanza's constituency parser for English, loaded at its first use; on the CPU.

    Sentences, tokens and Penn tags are spaCy's (Stanza's ``constituency_pretagged``), so that units and all other
    features refer to the same tokens. Parsing is linear in a sentence's length, which is not limited.

    Args:
        folder: Folder of the model: as written by ``stanza.download``, or with ``*constituency*.pt``, one other ``.pt``
            of word vectors, and Stanza's ``resources.json``. None for Stanza's default folder
            (``STANZA_RESOURCES_DIR`` or ``~/stanza_resources``).
        download: Whether Stanza may download a missing English model.

    Raises:
        ValueError: If ``folder`` is neither kind of folder, or ``download`` is set for one with its own model.
    """

    name = "stanza"

    def __init__(self, folder: str | Path | None = None, *, download: bool = False) -> None:
        self.folder = None if folder is None else Path(folder)
        self.download = download
        self._files = {} if self.folder is None or (self.folder / "en").is_dir() else _loose_files(self.folder)
        if self._files and download:
            raise ValueError(f"`download` must be false for a `folder` with a model of its own, got {folder}")

    @cached_property
    def fingerprint(self) -> str:
        """Stanza's version and a hash of the model's files."""
        try:
            version = importlib.metadata.version("stanza")
        except importlib.metadata.PackageNotFoundError as error:
            raise ValueError(_not_installed()) from error
        named = self._files or {
            key: path
            for key, path in self._pipeline.config.items()
            if key.startswith("constituency_") and key.endswith("_path")
        }
        return repr((self.name, version, hash_files([Path(named[key]) for key in sorted(named)])))

    def parse(self, documents: Sequence[Any]) -> list[list[Tree]]:
        """Parse texts, with the sentences of all of them in common batches.

        Args:
            documents: spaCy's documents, with tags and sentence ends.

        Returns:
            A tree per sentence of each text; none for a text without tokens.

        Raises:
            ValueError: If Stanza or its model is not installed.
        """
        sentences = [
            (index, words)
            for index, document in enumerate(documents)
            for sentence in document.sents
            if (words := [(token.text, token.tag_) for token in sentence if not token.is_space])
        ]
        trees: list[list[Tree]] = [[] for _ in documents]
        if sentences:
            pipeline = self._pipeline
            from stanza.models.common.doc import Document

            parsed = pipeline(Document([[_word(i, word) for i, word in enumerate(words)] for _, words in sentences]))
            for (index, _), sentence in zip(sentences, parsed.sentences, strict=True):
                trees[index].append(_convert(sentence.constituency))
        return trees

    def count(self, documents: Sequence[Any]) -> list[Units]:
        """Count the units in the trees of each text."""
        return [count_units(trees) for trees in self.parse(documents)]

    @cached_property
    def _pipeline(self) -> Any:
        try:
            import stanza
            from stanza.pipeline.core import DownloadMethod
        except ImportError as error:
            raise ValueError(_not_installed()) from error
        folder = {} if self.folder is None else {"dir": str(self.folder)}
        try:
            return stanza.Pipeline(
                "en",
                processors="tokenize,constituency",
                tokenize_pretokenized=True,
                constituency_pretagged=True,
                constituency_batch_size=BATCH_SENTENCES,
                download_method=DownloadMethod.REUSE_RESOURCES if self.download else None,
                use_gpu=False,
                verbose=False,
                **folder,
                **self._files,
            )
        except (OSError, ValueError, KeyError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            where = "Stanza's default folder" if self.folder is None else str(self.folder)
            raise ValueError(
                f"`syntax=stanza` needs Stanza's English constituency model in {where}: allow its download, give the "
                f"folder of a model, or choose syntax=dependency; {type(error).__name__}: {error}"
            ) from error


def _loose_files(folder: Path) -> dict[str, str]:
    models = sorted(folder.glob("*constituency*.pt"))
    vectors = sorted(set(folder.glob("*.pt")) - set(models))
    if len(models) != 1 or len(vectors) != 1 or not (folder / "resources.json").is_file():
        raise ValueError(
            f"`folder` must contain en/ as Stanza writes it, or one *constituency*.pt, one other .pt of word vectors "
            f"and resources.json ({RESOURCES}), got {folder} with {sorted(p.name for p in folder.glob('*'))[:9]}"
        )
    return {"constituency_model_path": str(models[0]), "constituency_pretrain_path": str(vectors[0])}


def _word(index: int, word: tuple[str, str]) -> dict[str, Any]:
    text, tag = word
    return {"id": index + 1, "text": text, "upos": tag, "xpos": tag}


def _convert(root: Any) -> Tree:
    """Convert Stanza's tree to ours, children first, without recursion."""
    order, stack = [], [root]
    while stack:
        node = stack.pop()
        order.append(node)
        if not node.is_preterminal():
            stack.extend(node.children)
    trees: dict[int, Tree] = {}
    for node in reversed(order):
        if node.is_preterminal():
            trees[id(node)] = Tree(node.label, (), node.children[0].label)
        else:
            trees[id(node)] = Tree(node.label, [trees[id(child)] for child in node.children])
    return trees[id(root)]


def _not_installed() -> str:
    return "`syntax=stanza` needs the package stanza: pip install 'graphrerank[syntax]', or choose syntax=dependency"
