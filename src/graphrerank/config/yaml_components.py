"""Components that are described in one process and built in another, from settings as YAML text.

The functions are picklable with :func:`functools.partial`, and import nothing of the commands.
"""

from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.pipelines.pipeline import Pipeline


def as_yaml(settings: Any) -> str:
    """Return resolved settings as text, which another process can read.

    Args:
        settings: Settings of a component, with the class as ``_target_``.

    Returns:
        The settings in YAML.
    """
    return OmegaConf.to_yaml(settings, resolve=True)


def build_from_yaml(settings: str, *args: Any, **arguments: Any) -> Any:
    """Build a component.

    Args:
        settings: Settings of the component, in YAML.
        *args: Positional arguments of its class.
        **arguments: Keyword arguments of its class, which replace those of the settings.

    Returns:
        The component.
    """
    return instantiate(OmegaConf.create(settings), *args, **arguments)


def build_cached_encoder(settings: str) -> MemoryVectorCache:
    """Build an encoder whose vectors are kept in memory.

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
        folder: The folder.
        language: Language in which words are matched. Ignored if the settings have none, as those of a corpus folder.

    Returns:
        The data set.
    """
    arguments = {"language": language} if "language" in OmegaConf.create(settings) else {}
    return build_from_yaml(settings, path=str(folder), **arguments)


def build_pipeline(settings: str, retriever: str, graph: Any, **arguments: Any) -> Pipeline:
    """Build a pipeline over a corpus.

    Args:
        settings: Settings of ``conf/pipeline``, in YAML.
        retriever: Settings of the retriever of vector searches that name none, in YAML.
        graph: The corpus graph.
        **arguments: Further arguments of :class:`~graphrerank.pipelines.pipeline.Pipeline`.

    Returns:
        The pipeline.
    """
    pipeline: Pipeline = build_from_yaml(settings)(graph, retriever=build_from_yaml(retriever), **arguments)
    return pipeline
