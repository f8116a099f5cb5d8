"""Every code block of README and docs: Python runs, commands are read by their parsers, or a mark says why."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from graphrerank.cli import schema
from graphrerank.cli.hydra_jobs import read_arguments
from graphrerank.cli.main import commands, settings
from graphrerank.installation.extras import extra_of
from tests.support import ROOT
from tests.support.commands import RunCommand
from tests.support.folders import write_dataset
from tests.support.pages import PAGES, SHELL, Block, blocks_of, commands_of, inline_commands
from tests.support.running import running

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
OURS = [block for block in BLOCKS if block.run_by is None and block.not_run is None]
SERVICE = "localhost:8000"
READ = {"toml": tomllib.loads, "yaml": OmegaConf.create, "text": str}
GALLERY = ("txtai", "rerankers", "graphiti_core")  # tools of docs/gallery.md
INLINE = [(page.relative_to(ROOT), command) for page in PAGES for command in inline_commands(page)]
EXTRA_NAMES = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def test_readme_names_every_command() -> None:
    readme = [command for block in OURS if str(block.page) == "README.md" for command in commands_of(block.code)]
    assert {"train", "evaluate", "export", "serve"} <= {command[1] for command in readme if command[0] == "graphrerank"}
    assert ["python", "train.py"] in [command[:2] for command in readme]
    assert len(OURS) >= 75


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in OURS], ids=str)
def test_a_mark_is_true(block: Block) -> None:
    if block.run_by is not None:
        assert f'"{block.page.name}"' in block.run_by.read_text(encoding="utf-8")
    else:
        assert block.not_run


@pytest.mark.parametrize("block", [b for b in OURS if b.language == "python" and SERVICE not in b.code], ids=str)
def test_python_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.startswith("graphrerank.integrations.")]:
        monkeypatch.delitem(sys.modules, name)  # pytest's doctests leave those there that could not be imported
    try:
        exec(compile(block.code, str(block), "exec"), {"__name__": "__main__"})
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in GALLERY and extra_of(package) is None:
            raise
        pytest.skip(str(error))


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its cells in order, in one namespace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHRERANK_CACHE", str(tmp_path / "cache"))
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in (block for block in BLOCKS if block.page.name == "notebook.md" and block.language == "python"):
        exec(compile(block.code, str(block), "exec"), names)
    assert {"base", "mine"} <= set(names["result"].to_pandas().to_string().split())
    assert (tmp_path / "my_reranker" / "model.safetensors").is_file()
    assert (tmp_path / "report" / "report.html").is_file()
    assert "PR@10" in capsys.readouterr().out


def test_every_tool_of_the_adapters_page_has_an_example() -> None:
    sections = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert len(sections) >= 5
    assert all("\n```python\n" in section for section in sections)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the one that the pages call `my_data`."""
    (tmp_path / "my_data").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("block", [block for block in OURS if block.language != "python"], ids=str)
def test_other_blocks_are_read(block: Block, here: None) -> None:
    if block.language == SHELL:
        for command in commands_of(block.code):
            check_command(command)
    else:
        READ[block.language](block.code)


@pytest.mark.parametrize(("page", "command"), INLINE)
def test_commands_of_the_text_are_read(page: Path, command: str, here: None) -> None:
    for words in commands_of(command):
        check_command(words)


def check_command(words: list[str]) -> None:
    program, *arguments = words[: words.index(">")] if ">" in words else words
    CHECKS[program](arguments)


def check_python(arguments: list[str]) -> None:
    script, *rest = arguments
    if script.removesuffix(".py") in ("train", "evaluate", "serve"):
        check_graphrerank([script.removesuffix(".py"), *rest])
        return
    source = (ROOT / script).read_text(encoding="utf-8")
    if "command_line import" in source:  # arguments that benchmarks share
        source += (ROOT / "benchmarks" / "command_line.py").read_text(encoding="utf-8")
    for argument in rest:
        assert not argument.startswith("--") or f'"{argument.partition("=")[0]}"' in source, argument


def check_settings(name: str, arguments: list[str]) -> None:
    """Compose what a script would compose; of a sweep its first run."""
    sweep = "-m" in arguments or any(argument.startswith("hparams_search=") for argument in arguments)
    arguments = [re.sub(r"=choice\((.*)\)$", r"=\1", argument) for argument in arguments]
    overrides = [argument.split(",")[0] if sweep else argument for argument in arguments if argument != "-m"]
    overrides = ["data=folder" if override == "data=NAME" else override for override in overrides]
    check_composition(name, tuple(read_arguments(overrides)))


@cache
def check_composition(name: str, overrides: tuple[str, ...]) -> None:
    """Compose settings, once for all places that name them."""
    register_settings_once()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        compose(name, overrides=list(overrides))


@cache
def register_settings_once() -> None:
    schema.register()


def check_graphrerank(arguments: list[str]) -> None:
    if arguments[0] in ("-sc", "--help", "--version"):
        return
    command, rest = arguments[0], [word for word in arguments[1:] if "SETTING" not in word]
    config = commands()[command].config
    if config is not None and not (command == "doctor" and not rest):
        check_settings(config, settings(command, [word for word in rest if word != "--help"]))
    elif rest and rest != ["--help"]:
        import_module(f"graphrerank.cli.{command}").parser().parse_args(rest)


def check_pip(arguments: list[str]) -> None:
    assert arguments[0] == "install"
    for argument in arguments:
        for names in re.findall(r"^(?:\.|graphrerank)\[(.*)\]$", argument):
            assert set(names.split(",")) <= set(EXTRA_NAMES)


def check_request(arguments: list[str]) -> None:
    assert any(SERVICE in argument for argument in arguments)  # sent by test_requests_are_answered


def check_file(arguments: list[str]) -> None:
    assert arguments[0] != "sweep" or (ROOT / arguments[-1]).is_file()


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "python": check_python,
    "graphrerank": check_graphrerank,
    "pip": check_pip,
    "curl": check_request,
    "wandb": check_file,
    "torchrun": lambda arguments: check_command(arguments[arguments.index("graphrerank") :]),
    "eval": lambda arguments: check_command(arguments[0].removeprefix("$(").removesuffix(")").split()),
    "pytest": lambda arguments: None,
    "pre-commit": lambda arguments: None,
}


@pytest.fixture(scope="module")
def service_url(tmp_path_factory: pytest.TempPathFactory, run_command: RunCommand, cache: Path) -> Iterator[str]:
    """A service over a corpus folder, as docs/serving.md starts it."""
    folder = tmp_path_factory.mktemp("service")
    corpus = [
        {"_id": "lorraine", "title": "Lorraine", "text": "A region with Metz."},
        {"_id": "usb", "title": "Replication Through Removable Media", "text": "Spreads through infected USB sticks."},
    ]
    data = write_dataset(folder / "data", corpus=corpus, queries=[], edges=[("lorraine", "usb", "next")])
    run_command("prepare", str(folder / "corpus"), "data=folder", f"data.path={data}")
    environment = {"GRAPHRERANK_CACHE": str(cache)}
    with running(folder, "artifact=base", f"index={folder / 'corpus'}", environment=environment) as service:
        yield service.url


@pytest.mark.slow  # a service
@pytest.mark.parametrize("block", [b for b in OURS if SERVICE in b.code and b.language != "text"], ids=str)
def test_requests_are_answered(block: Block, service_url: str) -> None:
    code = block.code.replace(f"http://{SERVICE}", service_url).replace(SERVICE, service_url)
    if block.language == "python":
        exec(compile(code, str(block), "exec"), {})
        return
    for command in commands_of(code):
        if command[0] == "curl":
            done = subprocess.run(
                [*command, "--silent", "--show-error", "--fail-with-body"], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
