"""Imports lead where the manifests of packages say, in each language; the expected files are worked out by hand."""

from contextlib import suppress

import pytest

from graphrerank_documents.document import UnreadableError
from graphrerank_documents.imports.manifest import PackageManifest, read_package_manifest
from graphrerank_documents.index_folder import index_folder
from graphrerank_documents.paths import folders_above, path_below
from graphrerank_documents.reading import DAMAGED_MANIFEST, read_content
from graphrerank_documents.symbols import SymbolIndex
from tests.support.documents import all_links
from tests.support.files import write_files

pytestmark = pytest.mark.usefixtures("parses_here")

PYTHON_SRC = {
    "pyproject.toml": '[project]\nname = "plant"\n[tool.setuptools.packages.find]\nwhere = ["lib"]\n',
    "lib/plant/__init__.py": "",
    "lib/plant/pump.py": "import logging\nfrom plant.base import Machine\nfrom plant.missing import x\n",
    "lib/plant/base.py": "class Machine: ...\n",
    "lib/plant/logging.py": "def getLogger(): ...\n",
    "tests/test_pump.py": "from plant import pump\nimport plant.base\nimport requests\n",
    "lib/area/zone/tank.py": "def fill(): ...\n",
    "tests/test_tank.py": "from area.zone.tank import fill\nfrom area.other import x\n",
}
PYTHON_APART = {
    "one/setup.py": 'setup(name="one", package_dir={"": "source", "deep.tools": "t"})\n',
    "one/source/one/__init__.py": "from . import core\n",
    "one/source/one/core.py": "def run(): ...\n",
    "one/t/__init__.py": "def cut(): ...\n",
    "one/scripts/go.py": "from one.core import run\nfrom deep.tools import cut\nimport helper\n",
    "one/scripts/helper.py": "x = 1\n",
    "two/setup.cfg": "[options]\npackage_dir =\n    = src\n",
    "two/src/two/__init__.py": "from one.core import run\nfrom one.core import absent\nimport requests.sessions\n",
    "two/src/two/_vendor/requests/__init__.py": "class Session: ...\n",
    "two/tests/test_x.py": "from requests import Session\nfrom two import run\n",
}
GO = {
    "go.mod": "module example.com/plant // the top\n\ngo 1.22\n",
    "cmd/main.go": 'package main\nimport (\n\t"fmt"\n\t"example.com/plant/pump"\n\tgear "example.com/plant/gear/v2"\n'
    '\t"example.com/plantation"\n\t"example.com/plant/absent"\n)\nfunc main() { pump.New(); gear.Turn() }\n',
    "pump/pump.go": 'package pump\nimport "example.org/old/store"\nfunc New() { store.Open() }\n',
    "gears/go.mod": "module example.com/plant/gear/v2\nreplace (\n\texample.org/old v1.2.3 => ../shop\n)\n",
    "gears/gear.go": 'package gear\nimport "example.org/old/store"\nfunc Turn() { store.Open() }\n',
    "shop/go.mod": "module example.com/shop\n",
    "shop/store/store.go": "package store\nfunc Open() {}\n",
}
RUST = {
    "Cargo.toml": '[workspace]\nmembers = ["crates/*"]\n',
    "crates/motor/Cargo.toml": '[package]\nname = "plant-motor"\n[lib]\npath = "src/all.rs"\n',
    "crates/motor/src/all.rs": 'pub mod gear;\n#[path = "odd/name.rs"]\nmod shaft;\npub use gear::Gear as Cog;\n',
    "crates/motor/src/gear.rs": "mod tooth;\nuse crate::shaft::Shaft;\npub struct Gear;\n",
    "crates/motor/src/gear/tooth.rs": "use super::Gear;\npub struct Tooth;\n",
    "crates/motor/src/odd/name.rs": "pub struct Shaft;\n",
    "crates/motor/tests/turns.rs": "mod common;\nuse plant_motor::Cog;\nuse common::set_up;\n",
    "crates/motor/tests/common/mod.rs": "pub fn set_up() {}\n",
    "crates/app/Cargo.toml": '[package]\nname = "app"\n[dependencies]\n'
    'engine = {package = "plant-motor", path = "../motor"}\n',
    "crates/app/src/main.rs": "use engine::gear::Gear;\nuse serde::Serialize;\n"
    "use engine::absent::Thing;\nfn main() {}\n",
    "crates/app/src/bin/tool.rs": "use engine::Cog;\nfn main() {}\n",
}
SCRIPTS = {
    "package.json": '{"name": "plant", "private": true, "workspaces": ["packages/*"]}',
    "tsconfig.base.json": '{\n  // paths of all packages\n  "compilerOptions": {"baseUrl": ".",'
    ' "paths": {"~lib/*": ["packages/core/lib/*"],},},\n}',
    "packages/core/package.json": '{"name": "@plant/core", "main": "dist/index.js",'
    ' "imports": {"#in": "./lib/inner.ts"},'
    ' "exports": {".": {"types": "./dist/index.d.ts", "import": "./dist/index.js"}, "./lib/*": "./dist/lib/*.js"}}',
    "packages/core/src/index.ts": 'export { Pump } from "./pump.js";\n'
    'export * as tools from "./tools";\nimport "#in";\n',
    "packages/core/src/pump.ts": "export class Pump {}\n",
    "packages/core/src/tools/index.ts": "export function cut() {}\n",
    "packages/core/lib/inner.ts": "export const inner = 1;\n",
    "packages/core/src/lib/view.tsx": "export const View = 1;\n",
    "packages/app/tsconfig.json": '{"extends": "../../tsconfig.base.json"}',
    "packages/app/package.json": '{"name": "app", "dependencies": {"@plant/core": "workspace:*"}}',
    "packages/app/main.ts": 'import { Pump } from "@plant/core";\nimport { View } from "@plant/core/lib/view";\n'
    'import { inner } from "~lib/inner";\nimport data from "./data.json";\nimport { x } from "lodash";\n'
    'import logo from "./logo.svg";\nimport { gone } from "./gone";\n'
    "export function f() { return \"import a from\" + 'lodash'; }\n",
    "packages/app/data.json": '{"text": "data"}',
    "packages/app/logo.svg": "<svg/>",
    "fixtures/lodash/package.json": '{"name": "lodash"}',
    "fixtures/lodash/index.js": "exports.x = 1;\n",
}
MANIFESTS = [
    *("pyproject.toml", "Cargo.toml", "package.json", "tsconfig.json", "setup.cfg", "go.mod", "setup.py"),
    *("pnpm-workspace.yaml", "go.work", "lerna.json"),
]
EXPECTED = [
    (
        PYTHON_SRC,
        {
            ("lib/plant/pump.py", "lib/plant/base.py"), ("tests/test_pump.py", "lib/plant/pump.py"),
            ("tests/test_pump.py", "lib/plant/base.py"), ("tests/test_tank.py", "lib/area/zone/tank.py"),
        },
        (4, 5),
    ),
    (
        PYTHON_APART,
        {
            ("one/source/one/__init__.py", "one/source/one/core.py"), ("one/scripts/go.py", "one/source/one/core.py"),
            ("one/scripts/go.py", "one/t/__init__.py"), ("one/scripts/go.py", "one/scripts/helper.py"),
            ("two/src/two/__init__.py", "one/source/one/core.py"),
            ("two/tests/test_x.py", "one/source/one/core.py"),
        },
        (6, 7),
    ),
    (
        GO,
        {
            ("cmd/main.go", "pump/pump.go"), ("cmd/main.go", "gears/gear.go"),
            ("gears/gear.go", "shop/store/store.go"),
        },
        (3, 4),
    ),
    (
        RUST,
        {
            ("crates/motor/src/all.rs", "crates/motor/src/gear.rs"),
            ("crates/motor/src/all.rs", "crates/motor/src/odd/name.rs"),
            ("crates/motor/src/gear.rs", "crates/motor/src/gear/tooth.rs"),
            ("crates/motor/src/gear.rs", "crates/motor/src/odd/name.rs"),
            ("crates/motor/src/gear/tooth.rs", "crates/motor/src/gear.rs"),
            ("crates/motor/tests/turns.rs", "crates/motor/tests/common/mod.rs"),
            ("crates/motor/tests/turns.rs", "crates/motor/src/gear.rs"),
            ("crates/app/src/main.rs", "crates/motor/src/gear.rs"),
            ("crates/app/src/bin/tool.rs", "crates/motor/src/gear.rs"),
        },
        (11, 12),
    ),
    (
        SCRIPTS,
        {
            ("packages/core/src/index.ts", "packages/core/src/pump.ts"),
            ("packages/core/src/index.ts", "packages/core/src/tools/index.ts"),
            ("packages/core/src/index.ts", "packages/core/lib/inner.ts"),
            ("packages/app/main.ts", "packages/core/src/index.ts"),
            ("packages/app/main.ts", "packages/core/src/pump.ts"),
            ("packages/app/main.ts", "packages/core/src/lib/view.tsx"),
            ("packages/app/main.ts", "packages/core/lib/inner.ts"),
            ("packages/app/main.ts", "packages/app/data.json"),
        },
        None,
    ),
]  # fmt: skip


def imports_of(files):
    read = [read_content(text.encode(), name) for name, text in files.items()]
    documents = [document for file in read for document in file.documents]
    manifests = {file.path: file.manifest for file in read if file.manifest is not None}
    index = SymbolIndex(documents, manifests=manifests, files=files)
    pairs, resolved, within = set(), 0, 0
    for document in documents:
        for link in all_links(document):
            if link.edge == "import":
                place = index.find(document, link)
                resolved += place is not None
                within += place is not None or index.is_within(document, link)
                if place is not None:
                    pairs.add((document.name, documents[place[0]].name))
    return {pair for pair in pairs if pair[0] != pair[1]}, (resolved, within)


@pytest.mark.parametrize(("files", "pairs", "counts"), EXPECTED, ids=["src", "apart", "go", "rust", "scripts"])
def test_imports(files, pairs, counts):
    found, numbers = imports_of(files)
    assert found == pairs
    assert counts is None or numbers == counts


def test_the_account_counts_imports_like_links(tmp_path):
    made = index_folder(write_files(tmp_path / "docs", PYTHON_SRC), tmp_path / "out")
    assert "imports: 4 of 5 within the folder resolved" in str(made)
    assert "1 imports broken: lib/plant/pump.py:3 -> plant.missing.x" in str(made)
    assert (made.links.by_type["import"].resolved, made.links.by_type["import"].within) == (4, 5)


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize("content", [b"", b"\0\xff", b"[" * 9999, b"{" * 9999, b"[1]", b'{"name": 1, "exports": [[]]}'])
def test_damaged_manifests_decide_nothing(name, content):
    with suppress(UnreadableError):
        assert isinstance(read_package_manifest(content, f"a/{name}"), PackageManifest)
    assert imports_of({f"a/{name}": content.decode("latin-1"), "a/b.py": "import c\n"})[0] == set()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("pyproject.toml", b"[project\n", "not valid TOML"),
        ("tsconfig.json", b'{"extends": }', "not valid JSON"),
        ("pnpm-workspace.yaml", b"[" * 9999, "YAML with more than 100 levels of nesting"),
        ("setup.cfg", b"name = x\n", "not valid INI"),
        ("package.json", b"[1]", "settings of an unexpected type"),
        ("package.json", b" " * 500_001, "larger than 500 kB"),
    ],
)
def test_damaged_manifests_are_named_in_the_report(name, content, reason):
    assert read_content(content, f"a/{name}").damage == (f"{DAMAGED_MANIFEST}: {reason}",)


def test_setup_scripts_are_never_executed(tmp_path):
    text = f"open({str(tmp_path / 'ran')!r}, 'w')\nsetup(packages=find_packages('code'))\n"
    assert read_package_manifest(text.encode(), "setup.py").roots == ("code",)
    assert not (tmp_path / "ran").exists()


def test_paths_out_of_the_folder():
    assert folders_above("/etc/x") == ["etc", ""]
    assert folders_above("x") == [""]
    assert path_below("a", "../../b") == "../b"
    files = {"/etc/x.py": "import y\n", "a.go": 'package a\nimport "b"\n', "go.mod": "module a\nreplace b => ../../c\n"}
    assert imports_of(files)[0] == set()
