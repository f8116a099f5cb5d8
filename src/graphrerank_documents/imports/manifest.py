"""Read package manifests, such as ``pyproject.toml``, as data. Nothing in them is executed.

Manifests are untrusted, so they are parsed in the processes with time and memory limits, with the documents.
"""

import configparser
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from posixpath import basename, dirname, join, normpath
from typing import Any

from graphrerank_documents.document import UnreadableError
from graphrerank_documents.json_comments import without_comments
from graphrerank_documents.untrusted_yaml import yaml_nodes

#: Maximum size of a manifest in bytes. Larger ones are ignored.
MAX_MANIFEST = 500_000
#: Maximum number of entries of a manifest, and of characters of each.
MAX_ENTRIES, MAX_ENTRY = 2000, 1000


@dataclass(frozen=True, slots=True)
class PackageManifest:
    """Settings of a package manifest that decide where its imports lead.

    All paths are relative to the folder of the manifest.

    Attributes:
        name: Name of the package, module or crate as the manifest writes it, or empty.
        roots: Folders from which absolute imports start, such as ``src`` for Python or ``baseUrl`` for TypeScript.
        paths: Files, folders or packages by the names that stand for them: package folders of Python, ``replace`` of
            Go, renamed dependencies and targets of Rust, ``exports`` of a package of JavaScript, ``paths`` of
            TypeScript.
        inherits: Manifests whose settings hold unless this one has its own (``extends`` of TypeScript).
        members: Glob patterns of the folders of a workspace.
        uses: Versions of the dependencies by name.
    """

    name: str = ""
    roots: tuple[str, ...] = ()
    paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    inherits: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    uses: Mapping[str, str] = field(default_factory=dict)


def read_package_manifest(content: bytes, path: str) -> PackageManifest | None:
    """Return the manifest in a file.

    Args:
        content: Bytes of the file.
        path: Path of the file, whose last component names the format.

    Returns:
        PackageManifest, or None if the file is no manifest.

    Raises:
        UnreadableError: If the file is a manifest and damaged. The message says what is wrong.
    """
    file = basename(path)
    parse = _FORMATS.get("tsconfig.json" if re.fullmatch(r"[jt]sconfig(?:\.[\w.-]+)?\.json", file) else file)
    if parse is None:
        return None
    if len(content) > MAX_MANIFEST:
        raise UnreadableError(f"larger than {MAX_MANIFEST // 1000} kB")
    try:
        return parse(content.decode("utf-8-sig", "replace"))
    except UnreadableError:
        raise
    except (ValueError, configparser.Error) as error:  # invalid TOML, JSON and INI
        raise UnreadableError(f"not valid {_language(file)}") from error
    except RecursionError as error:
        raise UnreadableError("too many levels of nesting") from error
    except (AttributeError, KeyError, TypeError) as error:  # for example, a list in place of a mapping
        raise UnreadableError("settings of an unexpected type") from error


def _language(file: str) -> str:
    """Return the name of the language of a manifest."""
    return {"toml": "TOML", "json": "JSON", "yaml": "YAML"}.get(file.rpartition(".")[2], "INI")


def _pyproject(text: str) -> PackageManifest:
    data = tomllib.loads(text)
    tool = _mapping(data, "tool")
    setuptools, hatch = _mapping(tool, "setuptools"), _mapping(tool, "hatch", "build")
    wheel = _mapping(hatch, "targets", "wheel")
    poetry = _mapping(tool, "poetry")
    packages = [each for each in _list(poetry.get("packages")) if isinstance(each, dict)]
    folders = [*_strings(hatch.get("packages")), *_strings(wheel.get("packages"))]
    roots = chain(
        _strings(_mapping(setuptools, "packages", "find").get("where")),
        (str(each["from"]) for each in packages if "from" in each),
        map(dirname, folders),
        _strings(hatch.get("sources")),
        _strings(wheel.get("sources")),
        _strings(_mapping(tool, "pdm", "build").get("package-dir")),
        _strings(_mapping(tool, "maturin").get("python-source")),
        _strings(_mapping(tool, "uv", "build-backend").get("module-root")),
        _strings(_mapping(tool, "pytest", "ini_options").get("pythonpath")),
        _strings(_mapping(tool, "pyright").get("extraPaths")),
    )
    package_dir = {str(key): str(value) for key, value in _mapping(setuptools, "package-dir").items()}
    name = str(_mapping(data, "project").get("name") or poetry.get("name") or "")
    return _python(name, roots, package_dir)


def _setup_cfg(text: str) -> PackageManifest:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(text)

    def value(section: str, key: str) -> str:
        return parser.get(section, key, fallback="")

    rows = (row.partition("=") for row in value("options", "package_dir").splitlines() if "=" in row)
    package_dir = {key.strip(): path.strip() for key, _, path in rows}
    roots = value("options.packages.find", "where").split()
    roots += value("tool:pytest", "pythonpath").split() + value("pytest", "pythonpath").split()
    return _python(value("metadata", "name"), roots, package_dir)


def _setup_py(text: str) -> PackageManifest:
    """Read the literal arguments of a setup script without executing it."""
    found = re.search(r"\bpackage_dir\s*=\s*(?:dict\s*\()?\{?([^{}()]{0,2000})", text)
    package_dir = dict(re.findall(r"""["']([^"'\n]*)["']\s*:\s*["']([^"'\n]+)["']""", found[1])) if found else {}
    roots = re.findall(r"""\bwhere\s*=\s*["']([^"'\n]+)["']""", text)
    roots += re.findall(r"""\bfind_(?:namespace_)?packages\(\s*["']([^"'\n]+)["']""", text)
    name = re.search(r"""\bname\s*=\s*["']([\w.-]+)["']""", text)
    return _python(name[1] if name else "", roots, package_dir)


def _python(name: str, roots: Iterable[str], package_dir: Mapping[str, str]) -> PackageManifest:
    roots = [*roots, *([package_dir[""]] if package_dir.get("") else [])]
    paths = {key: (normpath(value),) for key, value in package_dir.items() if key}
    return PackageManifest(name, tuple(dict.fromkeys(normpath(root) for root in roots)), paths)


def _go_mod(text: str) -> PackageManifest:
    """Read the module path and the local replacements of a ``go.mod``, or the modules of a ``go.work``."""
    text = re.sub(r"//[^\n]*", "", text)
    module = re.search(r'^\s*module\s+"?([^\s"()]+)', text, re.MULTILINE)
    replaced = re.findall(
        r'^[ \t]*(?:replace[ \t]+)?"?([^\s"()=]+)"?(?:[ \t]+v\S+)?'  # module, and its version
        r'[ \t]*=>[ \t]*"?(\.[^\s"]*)',  # local folder
        text,
        re.MULTILINE,
    )
    uses = re.findall(r"^\s*use\s+(\.[^\s()]*)", text, re.MULTILINE)
    for block in re.findall(r"^\s*use\s*\(([^()]*)\)", text, re.MULTILINE):
        uses += block.split()
    paths = {old: (normpath(new),) for old, new in replaced}
    return PackageManifest(module[1] if module else "", paths=paths, members=tuple(map(normpath, uses)))


def _cargo(text: str) -> PackageManifest:
    """Read the targets, the renamed dependencies and the members of a workspace.

    The paths ``lib`` and ``targets`` have the files of the library and of other targets.
    """
    data = tomllib.loads(text)
    tables = ("dependencies", "dev-dependencies", "build-dependencies")
    with_tables = [data, _mapping(data, "workspace")]
    with_tables += [each for each in _mapping(data, "target").values() if isinstance(each, dict)]
    paths: dict[str, tuple[str, ...]] = {}
    uses: dict[str, str] = {}
    dependencies = [_mapping(each, table) for each in with_tables for table in tables]
    for name, value in chain.from_iterable(table.items() for table in dependencies):
        settings = value if isinstance(value, dict) else {"version": str(value)}
        if "path" in settings:
            uses[name] = "path"
        elif settings.get("workspace"):
            uses[name] = "workspace"
        else:
            uses[name] = "version"
        if isinstance(package := settings.get("package"), str):
            paths[f"dependency {name}"] = (package,)
    library = _mapping(data, "lib")
    if isinstance(file := library.get("path"), str):
        paths["lib"] = (normpath(file),)
    if isinstance(crate := library.get("name"), str):
        paths["lib name"] = (crate,)
    kinds = ("bin", "example", "test", "bench")
    targets = [each.get("path") for kind in kinds for each in _list(data.get(kind)) if isinstance(each, dict)]
    package = _mapping(data, "package")
    targets.append(package.get("build"))
    paths["targets"] = tuple(normpath(each) for each in targets if isinstance(each, str))
    members = tuple(_strings(_mapping(data, "workspace").get("members")))
    return PackageManifest(str(package.get("name") or ""), paths=paths, members=members, uses=uses)


def _package_json(text: str) -> PackageManifest:
    """Read the entries of a package. ``.`` is the package itself, ``./x`` a path in it, ``#x`` a private name."""
    data = json.loads(text)
    paths: dict[str, list[str]] = {}
    exports = data.get("exports")
    is_map = isinstance(exports, dict) and any(key.startswith(".") for key in exports)
    for name, value in [*(exports.items() if is_map else [(".", exports)]), *_mapping(data, "imports").items()]:
        paths.setdefault(str(name), []).extend(_leaves(value))
    for key in ("source", "types", "typings", "module", "main", "browser"):
        if isinstance(data.get(key), str):
            paths.setdefault(".", []).append(data[key])
    tables = ("dependencies", "devDependencies", "peerDependencies", "optionalDependencies")
    uses = {name: str(value) for table in tables for name, value in _mapping(data, table).items()}
    workspaces = data.get("workspaces")
    members = _strings(workspaces.get("packages") if isinstance(workspaces, dict) else workspaces)
    whole = {name: tuple(dict.fromkeys(files)) for name, files in paths.items() if files}
    return PackageManifest(str(data.get("name") or ""), paths=whole, members=tuple(members), uses=uses)


def _lerna(text: str) -> PackageManifest:
    return PackageManifest(members=tuple(_strings(json.loads(text).get("packages"))))


def _pnpm(text: str) -> PackageManifest:
    node = yaml_nodes(text, "package manifests")
    items = node.value if getattr(node, "tag", "").endswith(":map") else []
    members = [each for key, value in items if getattr(key, "value", "") == "packages" for each in value.value]
    texts = (getattr(each, "value", None) for each in members)
    return PackageManifest(members=tuple(text for text in texts if isinstance(text, str)))


def _tsconfig(text: str) -> PackageManifest:
    data = json.loads(without_comments(text))
    options = _mapping(data, "compilerOptions")
    base = options.get("baseUrl")
    paths = {
        str(key): tuple(normpath(join(base or ".", each)) for each in _strings(value))
        for key, value in _mapping(options, "paths").items()
    }
    return PackageManifest(roots=(normpath(base),) if isinstance(base, str) else (), paths=paths,
                    inherits=tuple(_strings(data.get("extends"))))  # fmt: skip


def _leaves(value: object, depth: int = 0) -> Iterator[str]:
    """Yield the files of all conditions of an export, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list) and depth < 10:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner, depth + 1)


def _mapping(data: Any, *keys: str) -> Mapping[str, Any]:
    """Return a nested mapping, empty if there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _strings(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str) and len(each) <= MAX_ENTRY][:MAX_ENTRIES]


_FORMATS: dict[str, Callable[[str], PackageManifest]] = {
    "pyproject.toml": _pyproject,
    "setup.cfg": _setup_cfg,
    "pytest.ini": _setup_cfg,
    "tox.ini": _setup_cfg,
    "setup.py": _setup_py,
    "go.mod": _go_mod,
    "go.work": _go_mod,
    "Cargo.toml": _cargo,
    "package.json": _package_json,
    "lerna.json": _lerna,
    "pnpm-workspace.yaml": _pnpm,
    "tsconfig.json": _tsconfig,
}
