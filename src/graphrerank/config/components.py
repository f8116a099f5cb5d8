"""Named parts: what ``encoder="minilm"`` means, in a notebook and for every command.

A name is a file of ``conf/<group>``, ours or an installed extension's. :class:`Parts` composes it, builds it, and
prepares data sets with it; every argument that takes a name also takes the object itself.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import ConfigCompositionException, InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import Tensor

from graphrerank.core import RetrieverFactory
from graphrerank.core.retriever import needs_vectors
from graphrerank.corpus_store.opening import is_corpus_folder
from graphrerank.data.candidates import PreparedDataset, prepare, with_cross_encoder
from graphrerank.data.dataset import Dataset
from graphrerank.data.encoder import Encoder
from graphrerank.data.readers.folder import AUTO
from graphrerank.data.vector_cache import PairCache, VectorCache
from graphrerank.installation.conf_folder import conf_folder, register_choices
from graphrerank.installation.plugins import settings_folders
from graphrerank.models.manifest import GroupEntry
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.utils.checks import UserError
from graphrerank.utils.redaction import without_passwords
from graphrerank.utils.safe_loading import check_hub_model

MACHINE_KEYS = ("device", "datasets", "cache")  # settings that name a device or a folder of this machine
CONF_ONLY = ("package", "folder", "sha256")  # what is imported, which conf alone may say
PATH_SIGNS = re.compile(r"^[.~]|[/\\\0]")  # of texts that name a file or an address
OVERRULED = {"mentions": False, "adjacency": False, "entities": None}  # by edges=auto, in manifests of 0.1
FREE_TEXTS = ("prompt", "query_prompt", "id", "splits", "corpus_where", "descriptions", "user", "system", "abstention")
Settings = Mapping[str, Any]  # of a group of conf: plain settings, and the classes to build as `_target_`
ROOT = "part"  # file of conf that a part is composed below
PipelineFactory = Callable[..., Pipeline]  # (settings of conf/pipeline, changes of them by name) -> pipeline


@dataclass(frozen=True)
class Part:
    """A part as a manifest names it, and its settings, from which it is built; or the object that the caller brings."""

    settings: DictConfig | None = None  # resolved, with ``_target_``
    choice: str | None = None  # the file of ``conf/<group>``, if the settings are those of one
    given: Any = None

    @property
    def name(self) -> str:
        """The name in notes and manifests: the file of ``conf``, else the class."""
        return self.choice or type(self.given).__name__

    @property
    def arguments(self) -> dict[str, Any]:
        """Settings without Hydra's keys, as a manifest holds them."""
        return {} if self.settings is None else plain_arguments(self.settings)

    def build(self, *args: Any, **arguments: Any) -> Any:
        """Build the object, or return the given one."""
        return self.given if self.settings is None else build(self.settings, *args, **arguments)


def register_settings() -> None:
    """Make known to Hydra where settings lie: folders of extensions, and choices of which one file holds several."""
    OmegaConf.register_new_resolver(
        "graphrerank_extensions", lambda: [f"file://{folder}" for folder in settings_folders()], replace=True
    )
    register_choices()


def build(settings: Settings, *args: Any, **arguments: Any) -> Any:
    """Build what settings describe; an error of its class comes as it is."""
    try:
        return instantiate(settings, *args, **arguments)
    except InstantiationException as error:
        if isinstance(error.__cause__, ValueError | ImportError | OSError):
            raise error.__cause__ from None
        raise


def plain_arguments(settings: Settings) -> dict[str, Any]:
    """Return resolved settings without Hydra's keys (``_target_`` and the like) and passwords, nested ones too."""
    content = OmegaConf.to_container(settings, resolve=True) if OmegaConf.is_config(settings) else settings
    return dict(shown(content, private=True))


def portable_arguments(settings: Settings) -> dict[str, Any]:
    """Return :func:`plain_arguments` without those of this machine."""
    return dict(shown(plain_arguments(settings), MACHINE_KEYS))


def dotted_settings(settings: Settings, before: str = "") -> Iterator[tuple[str, Any]]:
    """List nested settings by their whole keys."""
    for key, setting in settings.items():
        if isinstance(setting, Mapping) and "_target_" not in setting:
            yield from dotted_settings(setting, f"{before}{key}.")
        else:
            yield f"{before}{key}", setting


def check_plain(key: str, settings: Any, usual: Any) -> None:
    """Refuse settings in a file that name a package, a folder, an address, or a model that is not the hub's.

    The path of a data set passes: it is read as data, and as nothing else. So does what ``conf`` has in their place,
    the ``usual``; None where it has nothing.
    """
    if settings == (OmegaConf.to_container(usual) if OmegaConf.is_config(usual) else usual):
        return
    name = key.rpartition(".")[2]
    if name in CONF_ONLY:
        raise UserError(f"`{key}` of a file must be what conf says, {usual!r}, got {str(settings)[:200]!r}")
    if name in FREE_TEXTS:
        return
    if isinstance(settings, Mapping):
        for part, entry in settings.items():
            check_plain(f"{key}.{part}", entry, usual.get(part) if OmegaConf.is_dict(usual) else None)
    elif isinstance(settings, list):
        for entry in settings:
            check_plain(key, entry, None)
    elif isinstance(settings, str) and name == "model":
        check_hub_model(**{key: settings})
    elif isinstance(settings, str) and PATH_SIGNS.search(settings) and (name != "path" or "://" in settings):
        raise UserError(f"`{key}` of a file names {settings[:200]!r}; if you trust it, name it yourself: {key}=...")


def shown(content: Any, left_out: Sequence[str] = (), *, private: bool = False) -> Any:
    """Hide passwords and leave out keys at any depth, and with ``private`` the keys that Hydra acts on."""
    if isinstance(content, Mapping):
        return {
            key: shown(entry, left_out, private=private)
            for key, entry in content.items()
            if key not in left_out and not (private and str(key).startswith("_"))
        }
    if isinstance(content, list):
        return [shown(entry, left_out, private=private) for entry in content]
    return without_passwords(content) if isinstance(content, str) else content


class Parts:
    """Build parts by their names, and prepare data sets with them.

    Args:
        datasets: Folder of data set folders that come from no registry package; None: as ``conf/paths`` says.
        cache: Folder of vectors, candidate lists and replies; None: as ``conf/paths`` says.
        device: Where models run; None: ``cuda`` where there is one.
        num_threads: torch threads.
        paths: Further folders of ``conf/paths``, such as a command's ``run_dir``.
        on_dataset: Called with each data set that is loaded.

    Example:
        >>> Parts().settings("retriever", "hybrid", top_k=50).top_k
        50
    """

    def __init__(
        self,
        *,
        datasets: str | Path | None = None,
        cache: str | Path | None = None,
        device: str | torch.device | None = None,
        num_threads: int = 1,
        seed: int = 0,
        paths: Mapping[str, Any] | None = None,
        on_dataset: Callable[[Dataset], None] = lambda _: None,
    ) -> None:
        self._paths = dict(paths or {})
        self._paths |= {key: str(path) for key, path in (("datasets", datasets), ("cache", cache)) if path is not None}
        self._device = None if device is None else str(device)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.num_threads, self.seed = num_threads, seed
        self._on_dataset = on_dataset
        self._encoders: list[tuple[Any, VectorCache]] = []  # each with what it was asked for by

    @property
    def cache(self) -> Path:
        """Folder of vectors, candidate lists and replies."""
        return Path(str(self._paths.get("cache") or self.compose().paths.cache))

    def compose(self, *overrides: str, run_dir: str | Path | None = None, system: str | None = None) -> DictConfig:
        """Compose files of ``conf`` by overrides such as ``+encoder=minilm``, with these folders and this device.

        ``run_dir`` and ``system`` are the folder of a run, and the name of the model in it.
        """
        with _hydra():
            folders = (str(GlobalHydra.instance().config_loader().get_search_path()), *map(str, settings_folders()))
            try:
                composed = deepcopy(_composed(folders, overrides))
            except ConfigCompositionException as error:
                raise UserError(str(error).partition("\n")[0]) from error
        OmegaConf.set_struct(composed.paths, False)
        composed.paths.merge_with(self._paths)
        if run_dir is not None:
            composed.paths.run_dir = str(run_dir)
        composed.device, composed.num_threads, composed.seed = self._device, self.num_threads, self.seed
        composed.system = system
        OmegaConf.set_struct(composed, True)
        return composed

    def settings(self, group: str, name: str, /, **changes: Any) -> DictConfig:
        """Compose a file of ``conf/<group>`` with some other settings; a ValueError if one of them is unknown."""
        if group == "data" and ("/" in name or "\\" in name):
            changes = {"path": name, **changes}
            name = "corpus_folder" if is_corpus_folder(name) else "folder"
        composed = self._file(group, name)
        try:
            if group == "pipeline":  # whose steps are a list, which no mapping merges into
                for key, setting in dotted_settings(changes):
                    OmegaConf.update(composed, key if key.startswith("shared.") else f"{group}.{key}", setting)
            else:
                composed[group].merge_with(changes)
        except (OmegaConfBaseException, ValueError) as error:
            problem = str(error).partition("\n")[0]
            raise UserError(f"settings {changes} do not fit conf/{group}/{name}.yaml: {problem}") from error
        chosen: DictConfig = composed[group]
        if missing := sorted(OmegaConf.missing_keys(chosen)):
            key = re.sub(r"\[(\d+)\]", r".\1", missing[0]).removeprefix(f"{group}.")
            raise UserError(f"`{key}` must be given for {group}={name}")
        OmegaConf.resolve(chosen)
        return chosen

    def choices(self, group: str) -> list[str]:
        """Name the files of ``conf/<group>``, ours and those of installed extensions."""
        with _hydra():
            return list(GlobalHydra.instance().config_loader().get_group_options(group, config_name=ROOT))

    def _file(self, group: str, name: str) -> DictConfig:
        if not re.fullmatch(r"[\w-]+", name):
            raise UserError(f"`{group}` must name a file of conf/{group}, got {name!r}")
        try:
            return self.compose(f"+{group}={name}")
        except ValueError as error:
            raise UserError(f"`{group}` must name a file of conf/{group}, got {name!r}: {error}") from error

    def part(self, group: str, given: Any, /, **changes: Any) -> Part:
        """Return a part by its name, by settings of ``conf/<group>``, or as the caller brings it."""
        if isinstance(given, Part):
            return given
        if isinstance(given, str | Path):
            return Part(self.settings(group, str(given), **changes), str(given))
        if OmegaConf.is_dict(given) or isinstance(given, Mapping):
            settings = OmegaConf.merge(OmegaConf.create(dict(given) if isinstance(given, dict) else given), changes)
            OmegaConf.resolve(settings)
            return Part(settings)  # type: ignore[arg-type] # of a mapping
        return Part(given=given)

    def build(self, group: str, given: Any, /, **changes: Any) -> Any:
        """Build a part, given as :meth:`part` takes it; None stays None."""
        return None if given is None else self.part(group, given, **changes).build()

    def from_manifest(self, group: str, entry: GroupEntry) -> Part:
        """Return the part that a manifest describes: its choice, with its plain arguments.

        Classes and packages come from ``conf``, never from the manifest, and so do folders and the device. A manifest
        may name models of the hub and the path of a data set; any other path, or an address, is the caller's to name.
        """
        arguments = shown(dict(entry.arguments), MACHINE_KEYS)
        if "${" in (written := json.dumps(arguments)):
            raise UserError(f"the manifest's arguments of {group} must be plain, got {written[:200]}")
        check_plain(group, arguments, self._file(group, str(entry.choice))[group])
        if arguments.get("edges") == AUTO and OVERRULED.items() <= arguments.items():
            overruled = OVERRULED.keys() | ({"knn"} if arguments.get("knn") == 0 else set())
            arguments = {key: value for key, value in arguments.items() if key not in overruled}
        return Part(self.settings(group, str(entry.choice), **arguments), str(entry.choice))

    def dataset(self, given: Any, /, **changes: Any) -> Dataset:
        """Load a data set: a name of ``conf/data``, the path of a folder, settings, or the data set itself."""
        dataset: Dataset = self.build("data", given, **changes)
        self._on_dataset(dataset)
        return dataset

    def text_encoder(self, given: Any) -> VectorCache | None:
        """Build an encoder of texts with a cache of vectors on disk; None for None."""
        if given is None or isinstance(given, VectorCache):
            return given
        for before, encoder in self._encoders:
            if before == given:
                return encoder
        self._encoders.append((given, VectorCache(self.build("encoder", given), self.cache / "vectors")))
        return self._encoders[-1][1]

    @property
    def encoder_counts(self) -> dict[str, int]:
        """Counts of the encoders behind an endpoint so far, added up; empty where there is none."""
        total: Counter[str] = Counter()
        for _, encoder in self._encoders:
            total.update(encoder.counts)
        return dict(total)

    def load(
        self, data: Any, *, encoder: Any, retriever: Any, reads_vectors: bool = True, splits: Sequence[str] = ()
    ) -> tuple[Dataset, Encoder | None, RetrieverFactory]:
        """Load a data set, and build the encoder and the retriever that prepare it.

        The encoder is None where neither a model (``reads_vectors``), the retriever nor edges to nearest neighbours
        read vectors; a ValueError if one of them does and there is none, or one of the ``splits`` is missing.
        """
        data, build_retriever = self.part("data", data), self.build("retriever", retriever)
        dataset = self.dataset(data)
        dataset.check_splits(*splits)
        if "Expand" in getattr(getattr(build_retriever, "func", None), "__name__", "") and not dataset.has_edges:
            hint = f"hint: {dataset.name} has no edges to expand along; data.edges=auto finds edges in any texts"
            print(hint, file=sys.stderr)
        readers = {
            "a model that reads vectors (features=scores does not)": reads_vectors,
            "a retriever that reads vectors": needs_vectors(build_retriever),
            "edges to nearest neighbours (data.knn)": dataset.needs_vectors
            or (dataset.knn > 0 and encoder is not None),
        }
        reader = next((reader for reader, reads in readers.items() if reads), None)
        if encoder is None and reader is not None:
            raise UserError(f"`encoder` must be chosen (encoder=minilm) for {reader}, got none")
        print(dataset.summary(encoded=encoder is not None), flush=True)
        return dataset, None if reader is None else self.text_encoder(encoder), build_retriever

    def prepare(
        self,
        data: Any,
        *,
        retriever: Any,
        encoder: Any = None,
        reads_vectors: bool = True,
        splits: Sequence[str] = (),
        keep_retriever: bool = False,
    ) -> PreparedDataset:
        """Load, encode and rank a data set, from the caches where possible; arguments as :meth:`load`."""
        if isinstance(data, PreparedDataset):
            return data
        dataset, encodes, build = self.load(
            data, encoder=encoder, retriever=retriever, reads_vectors=reads_vectors, splits=splits
        )
        cache = self.cache / "candidates"
        return prepare(dataset, encoder=encodes, build_retriever=build, cache=cache, keep_retriever=keep_retriever)

    def pair_encoder(self, given: Any, *, label: str | None = None) -> PairCache:
        """Build a cross-encoder with a cache of its vectors on disk."""
        if isinstance(given, PairCache):
            return given
        return PairCache(self.build("pair_encoder", given), self.cache / "pairs", label=label)

    def with_pair_encoder(self, prepared: PreparedDataset, given: Any) -> PreparedDataset:
        """Give a data set a cross-encoder, which reads pairs on demand."""
        return replace(prepared, pair_encoder=self.pair_encoder(given))

    def with_cross_encoder(
        self, prepared: PreparedDataset, given: Any, queries: Tensor, *, top_k: int
    ) -> PreparedDataset:
        """Add a cross-encoder's scores of the first ``top_k`` candidates of some queries, cached where possible."""
        torch.set_num_threads(self.num_threads)
        reads = self.pair_encoder(given, label=f"reading pairs of {prepared.dataset.name}")
        return with_cross_encoder(prepared, reads, queries, top_k=top_k)

    def pipeline_factory(self, prepared: PreparedDataset, *, retriever: Any, encoder: Any = None) -> PipelineFactory:
        """Return a factory of pipelines over a data set's graph, on the device.

        ``retriever`` is of vector searches that name none; ``encoder`` is None where no step encodes texts.
        """
        torch.set_num_threads(self.num_threads)
        graph = prepared.dataset.graph.to(self.device)
        shared = {
            "retriever": self.build("retriever", retriever),
            "pair_encoder": prepared.pair_encoder,
            "text_encoder": self.text_encoder(encoder),
        }

        def build(given: Any, **settings: Any) -> Pipeline:
            pipeline: Pipeline = self.build("pipeline", given, **settings)(graph, **shared)
            return pipeline

        return build


@contextmanager
def _hydra() -> Iterator[None]:
    """Let Hydra compose from ``conf``, where no command has initialized it."""
    register_settings()
    if GlobalHydra.instance().is_initialized():
        yield
        return
    with initialize_config_dir(str(conf_folder()), version_base="1.3"):
        yield


@cache
def _composed(folders: tuple[str, ...], overrides: tuple[str, ...]) -> DictConfig:
    """Compose from the files in ``folders``, which a process reads once: a copy costs far less than composing."""
    return compose(ROOT, overrides=list(overrides))
