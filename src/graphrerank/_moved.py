"""Deprecated import paths of modules that moved in 0.4.0. They work until 0.5.0, with a ``DeprecationWarning``."""

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: New modules that define the names of each old module.
MOVED: dict[str, tuple[str, ...]] = {
    "graphrerank.api": (
        "graphrerank.evaluation.evaluate",
        "graphrerank.evaluation.plan",
        "graphrerank.evaluation.loading",
        "graphrerank.evaluation.datasets",
        "graphrerank.feedback.learn",
    ),
    "graphrerank.caching": ("graphrerank.utils.caching",),
    "graphrerank.checks": ("graphrerank.utils.checks",),
    "graphrerank.cli.http_service": ("graphrerank.serving.standard_routes", "graphrerank.serving.setup.corpus"),
    "graphrerank.cli.index": ("graphrerank_documents.command",),
    "graphrerank.cli.training_run": ("graphrerank.cli.training_settings",),
    "graphrerank.conf_folder": ("graphrerank.installation.conf_folder",),
    "graphrerank.corpus.metadata": (
        "graphrerank.corpus.filters",
        "graphrerank.corpus.metadata_fields",
        "graphrerank.corpus.metadata_index",
        "graphrerank.corpus.permissions",
    ),
    "graphrerank.corpus.passages": ("graphrerank.corpus.inverted_index",),
    "graphrerank.corpus_store.preparation": ("graphrerank.corpus_store.word_columns",),
    "graphrerank.data.corpus_folder": ("graphrerank.corpus_store",),
    "graphrerank.data.corpus_folder.growth": ("graphrerank.corpus_store.growth",),
    "graphrerank.data.corpus_folder.opening": ("graphrerank.corpus_store.opening",),
    "graphrerank.data.corpus_folder.preparation": (
        "graphrerank.corpus_store.word_columns",
        "graphrerank.corpus_store.preparation",
    ),
    "graphrerank.data.documents": ("graphrerank_documents",),
    "graphrerank.data.documents.git_history": ("graphrerank_documents.git_history",),
    "graphrerank.data.documents.index_folder": ("graphrerank_documents.index_folder",),
    "graphrerank.data.drafted_questions": ("graphrerank.data.synthetic_queries.questions",),
    "graphrerank.data.drafted_rewording": ("graphrerank.data.synthetic_queries.rewording",),
    "graphrerank.data.drafted_wording": ("graphrerank.data.synthetic_queries.wording",),
    "graphrerank.evaluation.analysis": ("graphrerank.evaluation.comparisons", "graphrerank.evaluation.measuring"),
    "graphrerank.evaluation.cost": ("graphrerank.evaluation.latency", "graphrerank.evaluation.memory"),
    "graphrerank.evaluation.dataset_result": ("graphrerank.evaluation.comparisons",),
    "graphrerank.evaluation.evaluate": (
        "graphrerank.evaluation.plan",
        "graphrerank.evaluation.loading",
        "graphrerank.evaluation.datasets",
        "graphrerank.evaluation.runners.run_file",
    ),
    "graphrerank.evaluation.exposure": ("graphrerank.evaluation.permission_leakage",),
    "graphrerank.evaluation.loading": ("graphrerank.evaluation.datasets",),
    "graphrerank.evaluation.ranking": (
        "graphrerank.evaluation.ablations",
        "graphrerank.evaluation.baselines",
        "graphrerank.evaluation.encoder_checks",
        "graphrerank.evaluation.latency",
        "graphrerank.evaluation.reranking",
        "graphrerank.evaluation.runners.checkpoint",
        "graphrerank.evaluation.runners.pipeline",
        "graphrerank.training.tuning",
    ),
    "graphrerank.evaluation.reliability": (
        "graphrerank.calibration.labelled_lists",
        "graphrerank.calibration.probabilities",
        "graphrerank.evaluation.reranking",
    ),
    "graphrerank.evaluation.sequential": ("graphrerank.evaluation.sequential_test",),
    "graphrerank.data.enrichment.knn": ("graphrerank.data.enrichment.neighbours",),
    "graphrerank.data.enrichment.random_edges": ("graphrerank.data.enrichment.neighbours",),
    "graphrerank.data.enrichment.shared_entities": (
        "graphrerank.data.enrichment.neighbours",
        "graphrerank.data.folder",
    ),
    "graphrerank.data.readers.attack": ("graphrerank.data.loaders.attack",),
    "graphrerank.data.readers.documents": ("graphrerank.data.readers.edges",),
    "graphrerank.data.readers.folder": ("graphrerank.data.folder",),
    "graphrerank.data.readers.merged": ("graphrerank.data.loaders.merged",),
    "graphrerank.data.readers.named": ("graphrerank.data.loaders.named",),
    "graphrerank.evaluation.tables": ("graphrerank.utils.markdown",),
    "graphrerank.extensions": ("graphrerank.installation.plugins",),
    "graphrerank.extras": ("graphrerank.installation.extras",),
    "graphrerank.files": ("graphrerank.utils.files", "graphrerank.utils.tensor_files"),
    "graphrerank.fitting": ("graphrerank.training",),
    "graphrerank.fitting.calibrate": ("graphrerank.training.calibrate", "graphrerank.calibration.probabilities"),
    "graphrerank.fitting.fit": (
        "graphrerank.training.fit",
        "graphrerank.training.trainer",
        "graphrerank.training.manifest",
    ),
    "graphrerank.fitting.session": ("graphrerank.training.session", "graphrerank.training.resume"),
    "graphrerank.fitting.training_data": ("graphrerank.training.training_data", "graphrerank.training.settings"),
    "graphrerank.graphs": ("graphrerank.core", "graphrerank.corpus"),
    "graphrerank.graphs.algebra": ("graphrerank.core.graph_algebra",),
    "graphrerank.graphs.calibration": ("graphrerank.calibration.logistic",),
    "graphrerank.graphs.candidate_graphs": ("graphrerank.core.candidate_graphs", "graphrerank.corpus.candidate_edges"),
    "graphrerank.graphs.corpus_graph": ("graphrerank.corpus.corpus_graph",),
    "graphrerank.graphs.edge_lists": ("graphrerank.corpus.edge_lists",),
    "graphrerank.graphs.edge_types": ("graphrerank.corpus.edge_types",),
    "graphrerank.graphs.entity_incidence": ("graphrerank.corpus.entity_incidence",),
    "graphrerank.graphs.list_confidence": ("graphrerank.calibration.list_confidence",),
    "graphrerank.graphs.mapped_pages": ("graphrerank.corpus.mapped_pages",),
    "graphrerank.graphs.metadata": (
        "graphrerank.corpus.filters",
        "graphrerank.corpus.metadata_fields",
        "graphrerank.corpus.metadata_index",
        "graphrerank.corpus.permissions",
        "graphrerank.corpus.metadata",
    ),
    "graphrerank.graphs.model_inputs": ("graphrerank.core.model_inputs",),
    "graphrerank.graphs.packed_strings": ("graphrerank.corpus.packed_strings",),
    "graphrerank.graphs.pair_encoder": ("graphrerank.core.encoder", "graphrerank.core.retriever"),
    "graphrerank.graphs.passages": ("graphrerank.corpus.inverted_index", "graphrerank.corpus.passages"),
    "graphrerank.graphs.queries": ("graphrerank.core.queries", "graphrerank.core.adapters"),
    "graphrerank.graphs.ranking": ("graphrerank.core.ranking",),
    "graphrerank.graphs.relations": ("graphrerank.corpus.relations",),
    "graphrerank.graphs.retriever": (
        "graphrerank.core.retriever",
        "graphrerank.core.encoder",
        "graphrerank.core.adapters",
    ),
    "graphrerank.graphs.rewire": ("graphrerank.evaluation.edge_rewiring",),
    "graphrerank.graphs.routes": ("graphrerank.pipelines.router",),
    "graphrerank.graphs.sparse_rows": ("graphrerank.core.sparse_rows",),
    "graphrerank.graphs.times": ("graphrerank.corpus.times",),
    "graphrerank.graphs.vector_index": ("graphrerank.operators.vector_index",),
    "graphrerank.graphs.word_index": ("graphrerank.corpus.inverted_index",),
    "graphrerank.inference": ("graphrerank.rerank",),
    "graphrerank.inference.arrays": ("graphrerank.rerank.arrays",),
    "graphrerank.inference.checkpoint_scorer": ("graphrerank.rerank.checkpoint_scorer",),
    "graphrerank.inference.edge_forms": ("graphrerank.rerank.edge_forms",),
    "graphrerank.inference.explanation": ("graphrerank.rerank.explanation",),
    "graphrerank.inference.graph_reranker": ("graphrerank.rerank.graph_reranker",),
    "graphrerank.inference.hub": ("graphrerank.rerank.hub",),
    "graphrerank.inference.inputs": ("graphrerank.rerank.candidate_lists",),
    "graphrerank.inference.rerank_input": ("graphrerank.rerank.rerank_input",),
    "graphrerank.inference.reranked_list": ("graphrerank.rerank.reranked_list",),
    "graphrerank.parts": ("graphrerank.config.components",),
    "graphrerank.passwords": ("graphrerank.utils.redaction",),
    "graphrerank.processes": ("graphrerank.utils.processes",),
    "graphrerank.progress": ("graphrerank.utils.progress",),
    "graphrerank.quiet": ("graphrerank.utils.quiet",),
    "graphrerank.serving.artifact": ("graphrerank.artifacts.artifact",),
    "graphrerank.serving.batches": ("graphrerank.serving.batching",),
    "graphrerank.serving.bench": ("graphrerank.artifacts.benchmark",),
    "graphrerank.serving.calibration": ("graphrerank.serving.price_measurement",),
    "graphrerank.serving.callers": ("graphrerank.serving.auth",),
    "graphrerank.serving.deployment": (
        "graphrerank.serving.deployment.deployed_engine",
        "graphrerank.serving.deployment.interleaving",
        "graphrerank.serving.deployment.artifact_search",
    ),
    "graphrerank.serving.documents_engine": (
        "graphrerank.serving.engines.documents",
        "graphrerank.serving.schemas.documents",
    ),
    "graphrerank.serving.export": ("graphrerank.artifacts.export",),
    "graphrerank.serving.feedback": (
        "graphrerank.serving.recorder",
        "graphrerank.serving.engines.feedback",
        "graphrerank.serving.schemas.feedback",
    ),
    "graphrerank.serving.formats": ("graphrerank.artifacts.formats",),
    "graphrerank.serving.limits": (
        "graphrerank.serving.schemas.requests",
        "graphrerank.serving.work_estimates",
        "graphrerank.serving.auth",
    ),
    "graphrerank.serving.parity": ("graphrerank.artifacts.parity",),
    "graphrerank.serving.rerank_engine": ("graphrerank.serving.engines.rerank",),
    "graphrerank.serving.rerank_request": (
        "graphrerank.serving.schemas.rerank",
        "graphrerank.serving.schemas.tei",
        "graphrerank.serving.schemas.explanation",
        "graphrerank.serving.schemas.edges",
    ),
    "graphrerank.serving.search_engine": (
        "graphrerank.serving.engines.search",
        "graphrerank.serving.engines.searchable_corpus",
        "graphrerank.serving.engines.inspection",
        "graphrerank.serving.schemas.search",
        "graphrerank.serving.schemas.inspection",
    ),
    "graphrerank.serving.watching": ("graphrerank.serving.hot_reload",),
    "graphrerank.training.calibrate": ("graphrerank.calibration.probabilities",),
    "graphrerank.training.calibration": ("graphrerank.calibration.fitting",),
    "graphrerank.untrusted": ("graphrerank.utils.safe_loading",),
}


RENAMED: dict[tuple[str, str], str] = {  # (old module, old name) -> name in the new module
    ("graphrerank.api", "Named"): "SystemSpec",
    ("graphrerank.corpus_store.opening", "read_manifest"): "read_corpus_manifest",
    ("graphrerank.data.derived_edges", "FoundEdges"): "EdgeRecipe",
    ("graphrerank.data.encoder", "check_vectors"): "check_finite_vectors",
    ("graphrerank.data.readers.documents", "Document"): "CorpusRecord",
    ("graphrerank.data.readers.fetch", "check_file"): "check_download",
    ("graphrerank.evaluation.cost", "MOST_SECONDS"): "TIME_BUDGET_SECONDS",
    ("graphrerank.evaluation.dataset_result", "with_comparisons"): "compare_systems",
    ("graphrerank.evaluation.evaluate", "Named"): "SystemSpec",
    ("graphrerank.evaluation.exposure", "Exposure"): "PermissionLeakage",
    ("graphrerank.evaluation.exposure", "measure_exposure"): "measure_leakage",
    ("graphrerank.evaluation.ranking", "EDGES"): "EDGE_ABLATIONS",
    ("graphrerank.evaluation.ranking", "FROZEN"): "BASELINES",
    ("graphrerank.evaluation.ranking", "OtherEdges"): "EdgeAblation",
    ("graphrerank.evaluation.ranking", "Rerankers"): "CheckpointGroup",
    ("graphrerank.feedback.learning", "Learned"): "LearningResult",
    ("graphrerank.feedback.learning", "Material"): "LearningData",
    ("graphrerank.feedback.learning", "describe"): "describe_update",
    ("graphrerank.graphs.calibration", "LogisticCalibration"): "Calibration",
    ("graphrerank.installation.plugins", "describe"): "describe_entry_point",
    ("graphrerank.language_models.strict_answers", "read_json"): "parse_json_answer",
    ("graphrerank.language_models.strict_answers", "read_object"): "parse_object_answer",
    ("graphrerank.models.manifest", "check_file"): "check_artifact_file",
    ("graphrerank.rerank.edge_forms", "read_edges"): "parse_edges",
    ("graphrerank.utils.safe_loading", "file_of"): "untrusted_file",
    ("graphrerank_papers.builders.tables", "Reference"): "ForeignKey",
    ("graphrerank_papers.grapher.text_rich_graph", "Mention"): "NodeMention",
    ("graphrerank_papers.retag.builder", "Part"): "SummarisedGraph",
    ("graphrerank.serving.rerank_request", "EdgeEffect"): "EdgeEffectResult",
}


def new_homes(module: str) -> tuple[str, ...]:
    """Return the modules that may define the renamed names of a module: its new modules and the module itself.

    Args:
        module: Absolute name of the module.

    Returns:
        Absolute names of existing modules.

    Example:
        >>> new_homes("graphrerank.feedback.learning")
        ('graphrerank.feedback.learning',)
    """
    homes = MOVED.get(module, ())
    is_old_path = module in sys.modules and isinstance(sys.modules[module], MovedModule)
    return homes if is_old_path else (*homes, module)


def warn_renamed(old: str, new: str) -> None:
    """Warn that a method or property has a new name. Its caller is the deprecated alias.

    Args:
        old: Class and old name.
        new: Class and new name.
    """
    warnings.warn(f"{old} is now {new}; the old name will be removed in 0.5.0", DeprecationWarning, stacklevel=3)


def moved_names(module: str) -> Callable[[str], Any]:
    """Return a ``__getattr__`` that finds the moved and renamed names of a module.

    Args:
        module: Absolute name of the module. Its names are looked up in its new modules in :data:`MOVED`. Names in
            :data:`RENAMED` are also looked up in the module itself.

    Returns:
        Function that returns an attribute from the first module that defines it, with a ``DeprecationWarning``.
    """

    def attribute(name: str) -> Any:
        new_name = RENAMED.get((module, name), name)
        homes = MOVED.get(module, ()) if new_name == name else new_homes(module)
        if not name.startswith("__"):
            for new in homes:
                if hasattr(new_module := import_module(new), new_name):
                    target = new if new_name == name else f"{new}.{new_name}"
                    message = f"{module}.{name} has moved to {target}. The old path will be removed in 0.5.0"
                    warnings.warn(message, DeprecationWarning, stacklevel=2)
                    return getattr(new_module, new_name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return attribute


class MovedModule(ModuleType):
    """Module at an old path, which looks up its attributes in the modules that replace it."""

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the first new module that has it.

        Args:
            name: Name of a function, class or constant of the old module.

        Returns:
            The same object as under the new path.

        Raises:
            AttributeError: If no new module defines the name.
        """
        if not name.startswith("__"):
            new_name = RENAMED.get((self.__name__, name), name)
            for new in MOVED[self.__name__]:
                if hasattr(module := import_module(new), new_name):
                    return getattr(module, new_name)
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class MovedModuleFinder(MetaPathFinder, Loader):
    """Import hook for the old paths. Python calls it only if no file exists for a module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a moved module.

        Args:
            fullname: Absolute name of the module to import.
            path: Ignored.
            target: Ignored.

        Returns:
            The spec, or None for a module that has not moved.
        """
        is_package = any(old.startswith(f"{fullname}.") for old in MOVED)
        return ModuleSpec(fullname, self, is_package=is_package) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Create the module of an old path, with a ``DeprecationWarning``.

        Args:
            spec: Spec that :meth:`find_spec` returned.

        Returns:
            A :class:`MovedModule`.
        """
        new = " and ".join(MOVED[spec.name])
        message = f"{spec.name} has moved to {new}. The old path will be removed in 0.5.0"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return MovedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing, because attributes are looked up on use.

        Args:
            module: Module that :meth:`create_module` returned.
        """


def install() -> None:
    """Add the import hook after Python's own finders, unless it has already been added."""
    if not any(isinstance(finder, MovedModuleFinder) for finder in sys.meta_path):
        sys.meta_path.append(MovedModuleFinder())
