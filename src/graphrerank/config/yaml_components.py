"""Construction of components from settings in YAML, for use in worker processes.

The functions can be pickled with :func:`functools.partial`, and do not import any command.
"""

from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.pipelines.pipeline import Pipeline


def as_yaml(settings: Any) -> str:
    """Return settings as YAML with all interpolations resolved.

    Args:
        settings: Settings of a component, with the class as ``_target_``.

    Returns:
        YAML text.
    """
    return OmegaConf.to_yaml(settings, resolve=True)


def build_from_yaml(settings: str, *args: Any, **arguments: Any) -> Any:
    """Build a component from its settings.

    Args:
        settings: Settings of the component, in YAML.
        *args: Positional arguments of the component's class.
        **arguments: Keyword arguments of the component's class. They override the settings.

    Returns:
        The component.
    """
    return instantiate(OmegaConf.create(settings), *args, **arguments)


def build_cached_encoder(settings: str) -> MemoryVectorCache:
    """Build an encoder with a cache of its vectors in memory.

    Args:
        settings: Settings of ``conf/encoder``, in YAML.

    Returns:
        The encoder.
    """
    return MemoryVectorCache(build_from_yaml(settings))


def read_dataset(settings: str, folder: Path, language: str) -> Any:
    """Read a data set folder or a corpus folder.

    Args:
        settings: Settings of ``conf/data``, in YAML.
        folder: Data set folder or corpus folder.
        language: Language for word matching. Ignored if the settings have no language, as is the case for a corpus
            folder.

    Returns:
        The data set.
    """
    arguments = {"language": language} if "language" in OmegaConf.create(settings) else {}
    return build_from_yaml(settings, path=str(folder), **arguments)


def build_pipeline(settings: str, retriever: str, graph: Any, **arguments: Any) -> Pipeline:
    """Build a pipeline over a corpus.

    Args:
        settings: Settings of ``conf/pipeline``, in YAML.
        retriever: Settings of the retriever, in YAML. Search steps that do not name a retriever use it.
        graph: Corpus graph.
        **arguments: Additional arguments of :class:`~graphrerank.pipelines.pipeline.Pipeline`.

    Returns:
        The pipeline.
    """
    pipeline: Pipeline = build_from_yaml(settings)(graph, retriever=build_from_yaml(retriever), **arguments)
    return pipeline
