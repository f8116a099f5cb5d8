"""One run of a command: its settings as plain numbers, and the parts that it builds from the configuration."""

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from graphrerank.cli.compose import (
    command_line,
    compose_group,
    compose_pipeline,
    data_group,
    group_from_manifest,
    portable_config,
    with_trained_splits,
)
from graphrerank.cli.job_session import Group, PipelineFactory
from graphrerank.cli.tracking import Tracking
from graphrerank.data.candidates import PreparedDataset, prepare, with_cross_encoder
from graphrerank.data.dataset import RetrievalDataset
from graphrerank.data.encoder import Encoder
from graphrerank.data.hints import expansion_hints
from graphrerank.data.pair_cache import PairCache
from graphrerank.data.vector_cache import VectorCache
from graphrerank.evaluation.records import RETRIEVER
from graphrerank.evaluation.rerankers import trained_system
from graphrerank.evaluation.systems import System, base_ranking
from graphrerank.graphs import CorpusGraph, RetrieverFactory
from graphrerank.graphs.retriever import needs_vectors
from graphrerank.models.manifest import GroupEntry, RerankerManifest
from graphrerank.operators.gcs import GCS
from graphrerank.operators.ppr import PPR
from graphrerank.passwords import without_passwords
from graphrerank.pipelines.pipeline import Pipeline

NONE = "none"  # the file of `conf/encoder` that says: without


class Session:
    """The interface of a command to its job (:class:`graphrerank.cli.job_session.JobSession`)."""

    def __init__(self, cfg: DictConfig, tracking: Tracking | None = None) -> None:
        self.cfg, self.tracking = cfg, tracking or Tracking()
        self.run_dir, self.cache = Path(cfg.paths.run_dir), Path(cfg.paths.cache)
        self.device = torch.device(cfg.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.num_threads = int(cfg.num_threads)
        self.seed = int(cfg.get("seed", 0))
        self._text_encoders: list[VectorCache] = []

    @property
    def split(self) -> str:
        """The split that systems are evaluated on."""
        return str(self.cfg.split if "split" in self.cfg else self.cfg.test_split)

    @property
    def num_queries(self) -> int | None:
        """Number of queries to evaluate, the first ones by id; None for all."""
        count: int | None = self.cfg.get("num_queries")
        return count

    @property
    def overrides(self) -> list[str]:
        """The settings that the command was called with, without passwords."""
        return [without_passwords(override) for override in HydraConfig.get().overrides.task]

    def overrides_key(self, key: str) -> bool:
        """Return whether the command line itself sets a key or one below it."""
        given = [override.lstrip("+~").split("=", 1)[0] for override in self.overrides]
        return any(name == key or name.startswith(f"{key}.") for name in given)

    @property
    def command(self) -> str:
        """The command that was given, without folders of this machine."""
        return command_line()

    @property
    def config(self) -> dict[str, Any]:
        """The configuration as it is written, without folders of this machine."""
        return portable_config(self.cfg)

    def choice(self, group: str) -> str:
        """Return the chosen file of ``conf/<group>``."""
        return str(HydraConfig.get().runtime.choices[group])

    def group(self, group: str, choice: str, **settings: Any) -> DictConfig:
        """Compose a file of ``conf/<group>``, or a data set folder by its path, with some other settings."""
        if group == "data":
            return data_group(self.cfg, choice, **settings)
        return compose_group(self.cfg, group, choice, **settings)

    def chosen(self, group: str) -> DictConfig | None:
        """Return a copy of the group that the command chose of ``conf/<group>``, resolved; None for none."""
        node: DictConfig | None = deepcopy(self.cfg[group])
        if node is not None:
            OmegaConf.resolve(node)
        return node

    def build(self, group: Mapping[str, Any]) -> Any:
        """Build the object that a group describes."""
        return instantiate(group)

    def reads_files(self, name: str, files: Sequence[Path]) -> None:
        """Note for loggers that the job reads a data set from files by itself."""
        self.tracking.reads_files(name, files)

    def group_from_manifest(self, group: str, entry: GroupEntry) -> DictConfig:
        """Compose a checkpoint's training configuration (:func:`graphrerank.cli.compose.group_from_manifest`)."""
        return group_from_manifest(self.cfg, group, entry)

    def dataset_names(self) -> list[str]:
        """Name the data sets to evaluate on: the one that ``data=`` chose, else those of ``datasets``."""
        names = list(self.cfg.datasets) if self.cfg.data is None else [self.choice("data")]
        if not names:
            raise ValueError("`datasets` must name at least one file of conf/data, got []")
        return names

    def data(self, name: str, manifests: Sequence[RerankerManifest] = ()) -> DictConfig:
        """Take the data set that ``data=`` chose, with its settings; else compose the one of a name.

        It comes with the settings of the first manifest that says it was trained on, else as ``conf`` gives it. A data
        set folder that a manifest's model was trained on has the splits of that training, unless the command says.
        """
        if self.cfg.data is not None:
            return with_trained_splits(self.cfg.data, manifests)
        for manifest in manifests:
            if manifest.data.choice == name:
                return self.group_from_manifest("data", manifest.data)
        return with_trained_splits(self.group("data", name), manifests)

    def pipeline(self, name: str) -> DictConfig:
        """Take the pipeline that ``pipeline=`` chose; else compose the one of a name, with ``settings`` of it.

        Raises:
            ValueError: If a setting that has no default is not given.
        """
        chosen = self.cfg.pipeline is not None and self.choice("pipeline") == name
        own = self.cfg.get("settings", {}).get(name, {})
        group = self.cfg.pipeline if chosen else compose_pipeline(self.cfg, name, own)
        if missing := sorted(OmegaConf.missing_keys(group)):
            key = re.sub(r"\[(\d+)\]", r".\1", missing[0]).removeprefix("pipeline.")
            raise ValueError(f"`{'pipeline' if chosen else f'settings.{name}'}.{key}` must be given for {name}")
        return group

    def choose(
        self, group: str, manifests: Mapping[str, RerankerManifest], usual: str | None
    ) -> tuple[DictConfig | Any, str]:
        """Return the command's group and its name in notes, else the first checkpoint's, else the ``usual`` file's.

        None, if the command says ``none``.
        """
        if self.choice(group) == NONE:
            return None, ""
        if self.cfg[group] is not None:
            return self.cfg[group], self.choice(group)
        for label, manifest in manifests.items():
            if (entry := getattr(manifest, group)) is not None:  # None where nothing was encoded
                return self.group_from_manifest(group, entry), f"{entry.choice} of {label}"
        return (None, "") if usual is None else (self.group(group, usual), usual)

    def prepare(
        self,
        data: Group,
        encoder: Group | None,
        retriever: Group,
        *,
        reads_vectors: bool = True,
        splits: Sequence[str] = (),
    ) -> PreparedDataset:
        """Load, encode and rank a data set, from the caches where possible.

        The encoder is not loaded where neither a model, the retriever nor edges to nearest neighbours read vectors;
        where a model or the retriever does, or ``data.knn`` asks for these edges, it must be given. ``data.edges=auto``
        has them where there is an encoder. ``splits`` are those that will be read, which are checked before anything is
        computed.
        """
        dataset, encodes, build_retriever = self.load(
            data, encoder, retriever, reads_vectors=reads_vectors, splits=splits
        )
        return prepare(dataset, encoder=encodes, build_retriever=build_retriever, cache=self.cache / "candidates")

    def load(
        self,
        data: Group,
        encoder: Group | None,
        retriever: Group,
        *,
        reads_vectors: bool = True,
        splits: Sequence[str] = (),
    ) -> tuple[RetrievalDataset, Encoder | None, RetrieverFactory]:
        """Load a data set, and build what :meth:`prepare` prepares it with: the encoder, if any, and the retriever."""
        dataset, build_retriever = instantiate(data), instantiate(retriever)
        dataset.check_splits(*splits)
        self.tracking.reads_data(dataset)
        for hint in expansion_hints(dataset, data, build_retriever):
            print(hint, file=sys.stderr)
        readers = {
            "a model that reads vectors (features=scores does not)": reads_vectors,
            "a retriever that reads vectors": needs_vectors(build_retriever),
            "edges to nearest neighbours (data.knn)": dataset.needs_vectors
            or (dataset.knn > 0 and encoder is not None),
        }
        reader = next((reader for reader, reads in readers.items() if reads), None)
        if encoder is None and reader is not None:
            raise ValueError(f"`encoder` must be chosen (encoder=minilm) for {reader}, got none")
        print(dataset.summary(encoded=encoder is not None), flush=True)
        return dataset, None if reader is None else self.text_encoder(encoder), build_retriever

    def with_pair_encoder(self, prepared: PreparedDataset, pair_encoder: Group) -> PreparedDataset:
        """Give a data set a cross-encoder with a cache of vectors on disk."""
        return replace(prepared, pair_encoder=PairCache(instantiate(pair_encoder), self.cache / "pairs"))

    def with_cross_encoder(
        self, prepared: PreparedDataset, pair_encoder: Group, queries: Tensor, *, top_k: int
    ) -> PreparedDataset:
        """Let a cross-encoder read the first candidates of some queries, from the cache on disk where possible."""
        torch.set_num_threads(self.num_threads)
        label = f"reading pairs of {prepared.dataset.name}"
        reads = PairCache(instantiate(pair_encoder), self.cache / "pairs", label=label)
        return with_cross_encoder(prepared, reads, queries, top_k=top_k)

    def usual_encoder(self) -> DictConfig | None:
        """Return the encoder that the command chose, else MiniLM; None for ``encoder=none``."""
        return None if self.choice("encoder") == NONE else self.cfg.encoder or self.group("encoder", "minilm")

    def text_encoder(self, encoder: Group | None) -> VectorCache:
        """Build an encoder of texts with a cache of vectors on disk."""
        self._text_encoders.append(VectorCache(instantiate(encoder), self.cache / "vectors"))
        return self._text_encoders[-1]

    @property
    def encoder_counts(self) -> dict[str, int]:
        """What the encoders behind an endpoint counted so far, all together; empty where there is none."""
        total: Counter[str] = Counter()
        for encoder in self._text_encoders:
            total.update(encoder.counts)
        return dict(total)

    def prepare_for_pipelines(
        self, data: Group, *, retriever: Group | None = None, pair_encoder: Group | None = None
    ) -> tuple[PreparedDataset, PipelineFactory]:
        """Prepare a data set for pipelines, with :meth:`usual_encoder`.

        ``retriever`` is that of vector searches that name none; None: dense. Returns the data set, and a factory of
        pipelines over its graph.
        """
        encoder = self.usual_encoder()
        retriever = retriever or self.group("retriever", "dense")
        prepared = self.prepare(data, encoder, retriever)
        if pair_encoder is not None:
            prepared = self.with_pair_encoder(prepared, pair_encoder)
        return prepared, self.pipeline_factory(prepared, encoder, retriever)

    def pipeline_factory(self, prepared: PreparedDataset, encoder: Group | None, retriever: Group) -> PipelineFactory:
        """Return a factory of pipelines over a data set's graph, or over another, on the device.

        ``retriever`` is that of vector searches that name none.
        """
        torch.set_num_threads(self.num_threads)
        own_graph = prepared.dataset.graph.to(self.device)
        parts = {
            "retriever": instantiate(retriever),
            "pair_encoder": prepared.pair_encoder,
            "text_encoder": None if encoder is None else self.text_encoder(encoder),
        }

        def build(group: Group, graph: CorpusGraph | None = None) -> Pipeline:
            self.tracking.reads_checkpoints_of(group)
            pipeline: Pipeline = instantiate(group)(own_graph if graph is None else graph, **parts)
            return pipeline

        return build

    def systems(self, models: Mapping[str, nn.Module], operators: Mapping[str, float]) -> list[System]:
        """List the rows of a table of rerankers: the retriever's ranking, the frozen operators, the trained models.

        The files of ``conf/scorer`` that ``scorers`` names are operators too.

        ``models`` are trained models by system name; ``operators`` the restart probabilities, ``gcs`` and ``ppr``.
        """
        return [
            System(RETRIEVER, base_ranking, reads_graph=False),
            System("ppr", PPR(restart_prob=operators["ppr"]).score),
            System("gcs", GCS(restart_prob=operators["gcs"]).score),
            *(System(name, instantiate(self.group("scorer", name)).score) for name in self.cfg.scorers),
            *(trained_system(name, model, self.device) for name, model in models.items()),
        ]
