"""Syntax features of texts, cached on disk; their units of syntax by rules on spaCy's parse, or in Stanza's trees."""

import importlib.metadata
import importlib.util
import pickle
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from graphrerank.caching import BlobStore, fill, hash_text, short_hash
from graphrerank.checks import UserError, check_choice
from graphrerank.files import hash_files
from graphrerank.text.spacy_pipeline import ENGLISH, load_spacy, spacy_versions
from graphrerank_papers.ea_graphrag.syntax.constituency import Tree, Units, count_units, read_tree
from graphrerank_papers.ea_graphrag.syntax.dependency_units import RULES, approximate_units
from graphrerank_papers.ea_graphrag.syntax.features import FEATURES, VERSION, feature_values

COMPONENTS = ("tok2vec", "transformer", "tagger", "parser", "attribute_ruler", "ner")  # of spaCy
BATCH_TEXTS = 64  # of spaCy
BATCH_SENTENCES = 50  # of Stanza
SHARD_TEXTS = 256  # texts between two writes: at most this much work is lost on a stop
ROW = np.dtype("<f4")
RESOURCES = '{"en": {"lang_name": "English", "packages": {}}}'


class SyntaxFeatures:
    """The features of ``FEATURES`` for any text, even an empty one or one in another language.

    All features but the units and their ratios come from spaCy's dependency parse.

    Args:
        syntax: ``stanza``: units from Stanza's constituency trees; ``dependency``: estimated from spaCy's parse.
        stanza_folder: Folder of Stanza's model, only for ``stanza``; see :class:`StanzaParser`.
        cache: Folder that keeps features, one SQLite file per fingerprint; nothing is kept when None.
    """

    def __init__(
        self, syntax: str, *, stanza_folder: str | Path | None = None, cache: str | Path | None = None
    ) -> None:
        check_choice(("stanza", "dependency"), syntax=syntax)
        if syntax == "dependency" and stanza_folder is not None:
            raise UserError(f"`stanza_folder` applies to syntax=stanza only, got {stanza_folder} with {syntax}")
        self.name = syntax
        self._stanza = StanzaParser(stanza_folder) if syntax == "stanza" else None
        self._cache = cache

    @cached_property
    def fingerprint(self) -> str:
        """All that the features depend on: the source of units, spaCy's versions, the features and their version."""
        units = f"dependency rules {RULES}" if self._stanza is None else self._stanza.fingerprint
        return repr(("syntax", VERSION, units, *spacy_versions(ENGLISH), FEATURES))

    def extract(self, texts: Sequence[str]) -> Tensor:
        """Compute the features of ``n`` texts, or read them from disk.

        White space of any kind and length counts as one blank; a text without words has zeros.

        Returns:
            ``[n, F]`` float32 in the order of ``FEATURES``, finite, on the CPU.
        """
        name = f"{self.name}-{short_hash(self.fingerprint)}.sqlite"
        store = BlobStore(None if self._cache is None else Path(self._cache) / name, "features")
        keys = [hash_text(text) for text in texts]
        fill(store, keys, texts, self._rows, shard_size=SHARD_TEXTS, length=len)
        return store.rows(keys, len(FEATURES), ROW)

    def _rows(self, texts: Sequence[str]) -> list[bytes]:
        cleaned = [" ".join(text.encode("utf-8", "replace").decode().split()) for text in texts]
        documents = list(load_spacy(ENGLISH, components=COMPONENTS).pipe(cleaned, batch_size=BATCH_TEXTS))
        units = map(approximate_units, documents) if self._stanza is None else self._stanza.count(documents)
        return [np.array(feature_values(*pair), dtype=ROW).tobytes() for pair in zip(documents, units, strict=True)]


class StanzaParser:
    """Stanza's constituency parser for English, loaded at its first use; on the CPU.

    Sentences, tokens and Penn tags are spaCy's (Stanza's ``constituency_pretagged``), so that units and all other
    features refer to the same tokens. Parsing is linear in a sentence's length, which is not limited.

    Args:
        folder: Folder of the model: as written by ``stanza.download``, or with ``*constituency*.pt``, one other ``.pt``
            of word vectors, and Stanza's ``resources.json``. None for Stanza's default folder
            (``STANZA_RESOURCES_DIR`` or ``~/stanza_resources``).
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self._files = {} if self.folder is None or (self.folder / "en").is_dir() else _loose_files(self.folder)
        if importlib.util.find_spec("stanza") is None:
            raise UserError(
                "`syntax=stanza` needs the package stanza: pip install 'graphrerank[syntax]', or choose "
                "syntax=dependency"
            )

    @cached_property
    def fingerprint(self) -> str:
        """Stanza's version and a hash of the model's files."""
        config = self._files or self._pipeline.config
        named = [key for key in sorted(config) if key.startswith("constituency_") and key.endswith("_path")]
        version = importlib.metadata.version("stanza")
        return repr(("stanza", version, hash_files([Path(config[key]) for key in named])))

    def parse(self, documents: Sequence[Any]) -> list[list[Tree]]:
        """Parse spaCy's documents, all sentences in common batches: a tree for each sentence with tokens."""
        sentences = [
            (index, [{"id": i, "text": token.text, "upos": token.tag_, "xpos": token.tag_} for i, token in numbered])
            for index, document in enumerate(documents)
            for sentence in document.sents
            if (numbered := list(enumerate((token for token in sentence if not token.is_space), 1)))
        ]
        trees: list[list[Tree]] = [[] for _ in documents]
        if sentences:
            pipeline = self._pipeline
            from stanza.models.common.doc import Document

            parsed = pipeline(Document([tokens for _, tokens in sentences]))
            for (index, _), sentence in zip(sentences, parsed.sentences, strict=True):
                trees[index].append(read_tree(str(sentence.constituency)))
        return trees

    def count(self, documents: Sequence[Any]) -> list[Units]:
        """Count the units in the trees of each text."""
        return [count_units(trees) for trees in self.parse(documents)]

    @cached_property
    def _pipeline(self) -> Any:
        import stanza

        folder = {} if self.folder is None else {"dir": str(self.folder)}
        try:
            return stanza.Pipeline(
                "en",
                processors="tokenize,constituency",
                tokenize_pretokenized=True,
                constituency_pretagged=True,
                constituency_batch_size=BATCH_SENTENCES,
                download_method=None,
                use_gpu=False,
                verbose=False,
                **folder,
                **self._files,
            )
        except (OSError, ValueError, KeyError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            where = "Stanza's default folder" if self.folder is None else str(self.folder)
            raise UserError(
                f"`syntax=stanza` needs Stanza's English constituency model in {where}: stanza.download('en') "
                f"writes it there; or choose syntax=dependency; {type(error).__name__}: {error}"
            ) from error


def _loose_files(folder: Path) -> dict[str, str]:
    models = sorted(folder.glob("*constituency*.pt"))
    vectors = sorted(set(folder.glob("*.pt")) - set(models))
    if len(models) != 1 or len(vectors) != 1 or not (folder / "resources.json").is_file():
        raise UserError(
            f"`folder` must contain en/ as Stanza writes it, or one *constituency*.pt, one other .pt of word vectors "
            f"and resources.json ({RESOURCES}), got {folder} with {sorted(p.name for p in folder.glob('*'))[:9]}"
        )
    return {"constituency_model_path": str(models[0]), "constituency_pretrain_path": str(vectors[0])}
