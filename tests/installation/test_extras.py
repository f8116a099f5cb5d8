import ast
import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from itertools import chain

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from graphrerank.installation.extras import (
    EXTRAS,
    MissingExtraError,
    importing,
    missing_modules,
    optional,
    require_extra,
)
from tests.support import ROOT

ADAPTERS = {file.stem for file in (ROOT / "src" / "graphrerank" / "integrations").glob("*.py")} - {
    "__init__",
    "cross_encoder",
    "graph_libraries",
    "metadata",
}
BUILD_OR_CUDA = ("setuptools", "nvidia-", "cuda-", "triton")  # of torch, on machines with or without a GPU
SHARED = ("adapters", "all", "dev", "dev-all", "docs", "papers")  # of other extras, and what builds the pages


def test_every_extra_of_the_package_is_described() -> None:
    """Against pyproject.toml, where `documents` and all others are installed from."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(EXTRAS) == set(listed) - set(SHARED)
    assert listed["dev-all"][0].startswith("graphrerank[dev,all,adapters,")


def test_the_service_needs_nothing_that_training_alone_installs() -> None:
    absent = sorted(set(EXTRAS["train"].modules).difference(EXTRAS["serve"].modules))
    code = f"import sys\nsys.modules |= dict.fromkeys({absent})\nimport graphrerank.cli.serve"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), importing("encoders", "a test"):
        importlib.import_module("no_such_module")  # that an installed package lacks
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert missing_modules("wandb") == ["wandb"]
    with pytest.raises(ValueError, match=r"^logger=wandb needs wandb, .*: pip install 'graphrerank\[wandb\]'$"):
        require_extra("wandb", "logger=wandb")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtraError, match=r"graphrerank.encoders."):  # the narrowest that has it
        optional("transformers", "a tokenizer")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        optional("no_such_module", "a test")
    assert optional("json", "a test").loads("1") == 1


def test_of_many_missing_packages_only_the_first_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrerank.installation.extras.missing_modules", lambda extra: list("abcdefg"))
    with pytest.raises(
        MissingExtraError, match=r"^index needs a, b, c, d and 3 other modules, which are not installed"
    ):
        require_extra("documents", "index")


def test_a_package_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("graphrerank.rerank", "graphrerank.text"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("Stemmer.algorithms", lambda: sys.of_another_version)
    with pytest.raises(ImportError, match=r"GraphReranker cannot be imported: .*of_another_version"):
        from graphrerank import GraphReranker  # noqa: F401


@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
def test_an_adapter_names_its_extra(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extra, module = adapter.replace("_", "-"), f"graphrerank.integrations.{adapter}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    for name in EXTRAS[extra].modules:
        for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, name, None)
    message = rf"^{module} needs {EXTRAS[extra].modules[0]}.* installed: pip install 'graphrerank\[{extra}\]'$"
    with pytest.raises(MissingExtraError, match=message):
        importlib.import_module(module)


@pytest.mark.parametrize(
    ("package", "module", "extra"), [("training", "lightning", "train"), ("serving", "fastapi", "serve")]
)
def test_a_package_of_ours_says_what_it_needs(
    package: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(f"graphrerank.{package}")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"{package} needs {module}.*graphrerank\[{extra}\]"):
        importlib.import_module(f"graphrerank.{package}")


@pytest.mark.parametrize("extra", ["train", "dev", "dev-all", "docs"])
def test_every_package_that_an_extra_installs_is_pinned(extra: str) -> None:
    """Against the requirements of the installed packages, PyTorch Geometric's among them."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pending, needed = [f"graphrerank[{extra}]"], set[str]()
    seen = set[str]()
    for text in pending:  # which grows
        requirement = Requirement(text)
        name = canonicalize_name(requirement.name)
        is_ours = name == "graphrerank"
        needed |= set() if is_ours or name.startswith(BUILD_OR_CUDA) else {name}
        for chosen in ("", *requirement.extras):
            if (key := f"{name}[{chosen}]") in seen or name.startswith(BUILD_OR_CUDA):
                continue
            seen.add(key)
            try:
                texts = listed.get(chosen, ()) if is_ours else requires(name) or ()
            except PackageNotFoundError:  # of another tool, which only .ci/run installs
                continue
            for each in map(Requirement, texts):
                if each.marker is None or each.marker.evaluate({"extra": chosen}):
                    pending.append(str(each))
    if extra != "docs":
        assert {"torch-geometric", "aiohttp", "lightning"} <= needed
    assert needed <= pinned, sorted(needed - pinned)


def test_every_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = (*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values()))
    names = {re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-") for requirement in declared}
    distributions, absent = packages_distributions(), {}
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            imported = [name.name for name in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported = [node.module]
            for module in {name.partition(".")[0] for name in imported} - sys.stdlib_module_names:
                packages = {name.lower().replace("_", "-") for name in distributions.get(module, ())}
                if packages and not packages & {*names, "graphrerank"}:
                    absent[module] = file.name
    assert not absent
