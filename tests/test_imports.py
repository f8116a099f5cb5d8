import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import graphrerank

PACKAGE = Path(graphrerank.__file__).parent
PAPERS = PACKAGE.parent / "graphrerank_papers"
LAYERS = [  # from the lowest up: a package imports the layers below its own, never one beside it
    {"_moved"},  # which every module with renamed names imports
    {"utils"},
    {"installation"},
    {"text", "core", "task_engines"},
    {"corpus"},
    {"features", "language_models", "metrics"},
    {"knowledge", "calibration"},
    {"data", "operators", "losses"},
    {"models", "pipelines", "corpus_store"},
    {"rerank"},
    {"config"},
    {"evaluation"},
    {"artifacts"},
    {"training"},
    {"feedback"},
    {"serving", "integrations"},
    {"cli"},
    {"__main__"},
]
LAYER_OF = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}
NARROWER = {  # packages that may import less than all layers below
    "features": {"utils", "text", "core", "corpus"},
    "models": {"utils", "installation", "core", "corpus", "calibration", "operators"},
    "pipelines": {"utils", "core", "corpus", "text", "language_models", "knowledge", "operators"},
    "integrations": {"utils", "installation", "core", "corpus", "models", "rerank"},
    "rerank": {
        "utils", "installation", "core", "corpus", "calibration", "text", "features", "operators", "models",
    },
}  # fmt: skip
HEAVY = ("torch_geometric", "transformers", "sentence_transformers", "wandb", "lightning", "hydra", "fastapi")
UNUSED = (*HEAVY, "torchmetrics", "uvicorn", "sklearn", "spacy", "matplotlib", "pandas")  # by GraphReranker


def modules(package: Path) -> dict[str, Path]:
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules(PACKAGE)
SIBLINGS = modules(PAPERS) | modules(PACKAGE.parent / "graphrerank_documents")
ALL_MODULES = MODULES | SIBLINGS


@cache
def own_imports(path: Path) -> tuple[str, ...]:
    """Modules of this package that a file imports, anywhere in it."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            below = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name if name in ALL_MODULES else str(node.module) for name in below]
    return tuple(name for name in found if name in ALL_MODULES)


PUBLIC = {
    "_moved",
    "data",
    "evaluation",
    "feedback",
    "rerank",
    "training",
}  # packages whose names `graphrerank` exports


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("package", ["graphrerank_documents", "graphrerank_papers"])
def test_the_library_never_names_the_packages_built_on_it(package: str) -> None:
    naming = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        if path.name != "_moved.py" and package in path.read_text(encoding="utf-8")
    }
    assert naming == set()


def test_every_package_has_a_layer() -> None:
    assert {package_of(module) for module in MODULES} - {""} <= set(LAYER_OF)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_run_downward(module: str) -> None:
    own = package_of(module)
    if not own:
        assert {package_of(name) for name in own_imports(MODULES[module])} <= PUBLIC  # at their first use
        return
    allowed = NARROWER.get(own, {other for other, layer in LAYER_OF.items() if layer < LAYER_OF[own]})
    upward = [name for name in own_imports(MODULES[module]) if package_of(name) not in allowed | {own, "_moved"}]
    assert upward == []


def test_no_import_goes_in_a_circle() -> None:
    graph = {module: {name for name in own_imports(path) if name != module} for module, path in ALL_MODULES.items()}
    while leaves := [module for module, below in graph.items() if not below]:
        for leaf in leaves:
            del graph[leaf]
        for below in graph.values():
            below.difference_update(leaves)
    assert graph == {}


def circles_among_children(package: str) -> dict[str, set[str]]:
    """Modules and packages directly in a package that import each other in circles, with what they import."""
    first = f"{package}."
    children: dict[str, set[str]] = {}
    for module, path in ALL_MODULES.items():
        if module.startswith(first):
            child = module.removeprefix(first).split(".")[0]
            imported = {name.removeprefix(first).split(".")[0] for name in own_imports(path) if name.startswith(first)}
            children.setdefault(child, set()).update(imported - {child})
    while leaves := [child for child, imported in children.items() if not imported]:
        for leaf in leaves:
            del children[leaf]
        for imported in children.values():
            imported.difference_update(leaves)
    return children


PACKAGES = sorted(
    module for module, path in ALL_MODULES.items() if path.name == "__init__.py" and module != "graphrerank"
)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circle_inside_a_package(package: str) -> None:
    """A package within a package counts as one: no two of its neighbours import each other, by whichever modules."""
    assert circles_among_children(package) == {}


def test_a_circle_of_a_module_and_a_package_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    texts = {
        "graphrerank.data.low": "",
        "graphrerank.data.dataset": "def read():\n    from graphrerank.data.readers.folder import read_corpus\n",
        "graphrerank.data.readers.folder": "import graphrerank.data.low",
        "graphrerank.data.readers.named": "from graphrerank.data.dataset import Dataset",
    }
    for module, text in texts.items():
        (tmp_path / module).write_text(text)
    monkeypatch.setattr(sys.modules[__name__], "ALL_MODULES", {module: tmp_path / module for module in texts})
    assert circles_among_children("graphrerank.data") == {"dataset": {"readers"}, "readers": {"dataset"}}


def statements_at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that the import of a module executes: none of functions and none for type checkers."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            is_for_types = ast.unparse(statement.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
            yield from statements_at_import(statement.orelse if is_for_types else statement.body + statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from statements_at_import(statement.body + statement.orelse + statement.finalbody)
        elif isinstance(statement, ast.ClassDef | ast.With):
            yield from statements_at_import(statement.body)


def loaded_with(*modules: str) -> set[str]:
    """Modules of this distribution that are loaded when some of them are imported."""
    loaded, waiting = set[str](), list(modules)
    while waiting:
        module = waiting.pop()
        if module not in ALL_MODULES or module in loaded:
            continue
        loaded.add(module)
        waiting.append(module.rpartition(".")[0])
        for node in statements_at_import(ast.parse(ALL_MODULES[module].read_text(encoding="utf-8")).body):
            if isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                waiting += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return loaded


USERS_OF_NO_FEEDBACK = ("graphrerank.training.fit", "graphrerank.cli.train", "graphrerank.cli.evaluate")


def test_feedback_is_imported_only_by_those_who_use_it() -> None:
    loaded = loaded_with(*USERS_OF_NO_FEEDBACK)
    assert {"graphrerank.training.trainer", "graphrerank.evaluation.evaluate", "graphrerank.config"} <= loaded
    assert [module for module in loaded if module.startswith("graphrerank.feedback")] == []
    assert "graphrerank.feedback.learning" in loaded_with("graphrerank.feedback.learn")


@pytest.mark.slow  # a process that imports the training
def test_feedback_is_not_loaded_by_those_who_do_not_use_it() -> None:
    modules = ", ".join(USERS_OF_NO_FEEDBACK)
    code = f"import {modules}, sys; print(*[name for name in sys.modules if name.startswith('graphrerank.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert [module for module in loaded if module.startswith("graphrerank.feedback")] == []
    assert loaded_with(*USERS_OF_NO_FEEDBACK) - {"graphrerank"} <= loaded  # what the sources say is true


def test_processes_that_read_documents_start_without_numpy() -> None:
    code = "import graphrerank_documents.git_reader, sys; print({'numpy', 'bm25s', 'torch'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


FIGURES = (*HEAVY, "torchmetrics", "sklearn", "matplotlib", "jinja2")
MOST_MODULES = 72  # of this distribution that GraphReranker loads


@pytest.mark.parametrize(
    "steps",  # modules that one process imports in turn: none before loads what a later one must not
    [
        [("graphrerank", (*UNUSED, "torch", "numpy")), ("graphrerank.rerank", UNUSED)],
        pytest.param(
            [
                ("graphrerank.evaluation", FIGURES),
                ("graphrerank.operators", HEAVY),
                ("graphrerank.models", HEAVY),
                ("graphrerank.pipelines", (*HEAVY, "faiss")),
                ("graphrerank.cli.evaluate", (*(name for name in HEAVY if name != "hydra"), "torchmetrics", "sklearn")),
            ],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            [
                ("graphrerank.data", tuple(name for name in HEAVY if name != "lightning")),
                # lightning loads torchmetrics, and that transformers
                ("graphrerank.training", tuple(name for name in HEAVY if name not in {"lightning", "transformers"})),
            ],
            marks=pytest.mark.slow,
        ),
    ],
    ids=["reranking", "judging", "training"],
)
def test_importing_loads_nothing_heavy(steps: list[tuple[str, tuple[str, ...]]]) -> None:
    code = f"""
import importlib, sys
for module, light in {steps!r}:
    importlib.import_module(module)
    print(*[f"{{module}}: {{name}}" for name in light if name in sys.modules])
print("and:", *[name for name in sys.modules if name.startswith("graphrerank")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found, _, ours = done.stdout.partition("and:")
    assert found.split() == []
    if steps[-1][0] == "graphrerank.rerank":
        assert len(ours.split()) <= MOST_MODULES
        allowed = {*NARROWER["rerank"], "_moved", "rerank"}
        assert {name.split(".")[1] for name in ours.split() if "." in name} <= allowed
        assert "graphrerank_papers" not in ours
