"""Resolve names in code to the sections that define them, through the imports of files and the bases of classes."""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import nullcontext
from functools import lru_cache
from itertools import chain, islice
from pathlib import PurePosixPath
from posixpath import dirname, splitext

from graphrerank_documents.document import Document, Link
from graphrerank_documents.failures import noting_failure

_FAMILIES = {
    suffix: family
    for family, suffixes in {
        "python": "py pyi",
        "script": "js jsx mjs cjs ts tsx mts cts",
        "go": "go",
        "java": "java",
        "rust": "rs",
        "c": "c h cc cpp cxx hh hpp hxx",
    }.items()
    for suffix in suffixes.split()
}
_COMMON_WORDS = (  # built-in methods of the languages, which are ambiguous on an object of unknown type
    "add_argument add_note addAll addEventListener and_then appendChild as_bytes as_integer_ratio as_mut as_path"
    " as_posix as_ref as_slice as_str bit_count bit_length c_str charAt charCodeAt charValue computeIfAbsent"
    " containsKey containsValue createElement difference_update emplace_back ends_with endsWith entrySet fetch_all"
    " findIndex findLast flatMap forEach format_map from_bytes fromEntries getAttribute getBytes getClass"
    " getElementById getKey getMessage getName getOrDefault getValue hashCode hasNext hasOwnProperty indexOf into_iter"
    " intValue intersection_update is_dir is_empty is_err is_file is_integer is_none is_ok is_some is_symlink isArray"
    " isEmpty isFinite isInteger isNaN iter_mut keySet lastIndexOf map_err nextInt or_else padEnd padStart parse_args"
    " pop_back preventDefault printStackTrace push_back push_front push_str putAll putIfAbsent querySelector read_text"
    " reduceRight removeEventListener replaceAll setAttribute setValue starts_with startsWith"
    " symmetric_difference symmetric_difference_update to_bytes to_owned to_path_buf to_string to_vec toArray toFixed"
    " toISOString toJSON toLowerCase toString toUpperCase trimEnd trimStart unwrap_or unwrap_or_else valueOf"
    " with_capacity with_traceback write_text"
)
_COMMON = frozenset(_COMMON_WORDS.split())
_SEPARATORS = re.compile(r"::|[./#\\]")
_JAVA_SOURCES = re.compile(r"^(?:.*/)?src/\w+/java/|^(?:.*?/)?(?:src|java)/")
_STANDARD = sys.stdlib_module_names | {"std", "core", "alloc", "crate"}
_DISTINCT = re.compile(r"_[^\W_]|[^\W_]\w*?(?:[^\W_]_[^\W_]|[a-z\d][A-Z])")  # private names, and names of two words
_NOT_INDEXED = "read, but its symbols cannot be indexed"
_MAX_LISTED, _MAX_STEPS, _MAX_HOPS, _MAX_PARTS = 64, 256, 12, 16

#: Document number and section number.
Place = tuple[int, int]


def family_of(name: str) -> str:
    """Return the language family of a code file, such as ``script`` for JavaScript and TypeScript.

    Args:
        name: Path of the file.

    Returns:
        Name of the family, or an empty string if the file is not code.
    """
    return _FAMILIES.get(name.rpartition(".")[2].lower(), "")


@lru_cache(maxsize=1 << 16)
def module_of(name: str) -> str:
    """Return the module or package that qualifies the names defined in a file.

    Args:
        name: Path of the file.

    Returns:
        Name with dots as separators, whatever the language uses. Empty for C and C++, because their names do not depend
        on the path.

    Example:
        >>> module_of("src/pump/__init__.py"), module_of("web/index.ts"), module_of("a-b/src/c/mod.rs")
        ('src.pump', 'web', 'a_b.c')
        >>> module_of("pump/motor.go"), module_of("src/motor.cpp")
        ('pump', '')
    """
    family, path = family_of(name), splitext(name)[0].removesuffix(".d")
    if family == "c":
        return ""
    parts = _parts(dirname(name) if family == "go" else path)
    if family == "java":  # source folders, including those of tests, are not part of the package
        parts = _parts(_JAVA_SOURCES.sub("", dirname(name) + "/"))
    if family == "rust":
        parts = [part.replace("-", "_") for part in parts if part != "src"]
    last = {"python": ("__init__",), "script": ("index",), "rust": ("mod", "lib", "main")}.get(family, ())
    return ".".join(parts[:-1] if parts and parts[-1] in last else parts)


def _parts(text: str) -> list[str]:
    return [part for part in _SEPARATORS.split(text) if part]


class SymbolIndex:
    """Index of code symbols, which resolves links of the kind ``symbol``.

    Links in code have one of these targets:

    - ``/src.pump.motor.Motor.start``: a name qualified from the top folder.
    - ``/pump~Motor~start``: a name with the scope in which it occurs. ``Motor.start`` is tried first, then ``start`` in
      the package.
    - ``pump.motor.Motor``: an absolute name, as in an import.
    - ``.start``: a method of an object of unknown type. Resolved only if the name is unique.
    - ``..start``: a name derived from the name of a test. Resolved only if the name is unique.

    Other documents use the name as it is written.

    Args:
        documents: All documents. The sections need no blocks.
        failures: Documents whose symbols cannot be indexed because of an exception, by reason. New ones are added.
            Links to such symbols are not resolved. If None, the exception is raised.
    """

    def __init__(
        self, documents: Sequence[Document], *, failures: MutableMapping[str, list[str]] | None = None
    ) -> None:
        self.documents = documents
        self.families = [family_of(document.name) for document in documents]
        # definitions by qualified name
        self.definitions: defaultdict[str, list[Place]] = defaultdict(list)
        # qualified names and definitions by the last component and by the last two components
        self.tails: defaultdict[str, list[tuple[str, Place]]] = defaultdict(list)
        # document numbers by language family and module
        self.modules: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        # document number of a class and the targets of its bases, by language family and class
        self.bases: dict[tuple[str, str], tuple[int, list[str]]] = {}
        # folders that contain a package, by language family and package
        self.roots: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        # name of the package whose root is the top folder, by language family
        self.whole: dict[str, str] = {}
        self.numbers = {document.name: number for number, document in enumerate(documents)}
        # cached results by file or folder, target and whether the link is an import
        self.found: dict[tuple[str, str, bool], Place | None] = {}
        # cached results for re-exported names, by the first document of the module and the name
        self.handed_on: dict[tuple[int, str], Place | None] = {}
        self.steps = 0  # number of remaining steps of the current search
        for number, document in enumerate(documents):
            with nullcontext() if failures is None else noting_failure(failures, document.name, _NOT_INDEXED):
                self._add(number, document)
        for family, document in zip(self.families, documents, strict=True):
            with nullcontext() if failures is None else noting_failure(failures, document.name, _NOT_INDEXED):
                self._add_root(family, document.name)
        self._name_whole()

    def find(self, document: Document, link: Link) -> Place | None:
        """Return the definition of a link's target.

        Args:
            document: Document with the link.
            link: Link of the kind ``symbol``.

        Returns:
            Document number and section number, or None if the target is unknown or ambiguous.
        """
        target, is_import = link.target.strip().removesuffix("()"), link.edge == "import"
        is_local = "~" in target or not family_of(document.name)
        key = (document.name if is_local else dirname(document.name), target, is_import)
        if key not in self.found:
            self.steps, is_short = _MAX_STEPS, len(_parts(target)) <= _MAX_PARTS
            self.found[key] = self._find(document.name, target, is_import=is_import) if is_short else None
        return self.found[key]

    def _find(self, near: str, target: str, *, is_import: bool) -> Place | None:
        family = family_of(near)
        if not family:
            return self._documented(_parts(target), near)
        if target.startswith("."):
            return self._unique(target.strip("."), family, near, is_member=target[1:2] != ".")
        if family == "c" and is_import:
            numbers = self.modules.get(("include", ".".join(_parts(target))), [])
            return self._nearest(((number, 0) for number in numbers), near)
        return self._target(target, family, near, is_import=is_import)

    def _add(self, number: int, document: Document) -> None:
        family, module = self.families[number], module_of(document.name)
        self.modules[family, module].append(number)
        if family == "c":
            path = _parts(document.name)[-_MAX_PARTS:]
            for start in range(len(path) - 1):
                self.modules["include", ".".join(path[start:])].append(number)
        prefix = _parts(module) if family else []
        for section, names in enumerate(section.symbols for section in document.sections):
            for parts in ([*prefix, *_parts(name)] for name in names):
                whole, place = ".".join(parts), (number, section)
                if len(self.definitions[whole]) <= _MAX_LISTED:
                    self.definitions[whole].append(place)
                for tail in {".".join(parts[-1:]), ".".join(parts[-2:])}:
                    if len(self.tails[tail]) <= _MAX_LISTED:
                        self.tails[tail].append((whole, place))
        for name, target in document.imports.items():
            if name.endswith(".*"):
                self.bases[family, ".".join([*prefix, *_parts(name[:-2])])] = (number, target.split())

    def _add_root(self, family: str, name: str) -> None:
        parts = _parts(module_of(name))
        if family == "rust" and "src" in (folders := name.split("/")[:-1]):
            start = min(len(folders) - folders[::-1].index("src") - 2, len(parts) - 1)
        elif family == "python":
            outer = (i for i in range(len(parts) - 1, -1, -1) if not self._is_file(family, parts[:i], ("__init__",)))
            start = next(outer, -1)
        else:
            return
        roots = self.roots[family, parts[start]] if start >= 0 and parts else []
        if len(roots) < _MAX_LISTED and (prefix := ".".join(parts[:start])) not in roots:
            roots.append(prefix)

    def _is_file(self, family: str, parts: list[str], stems: tuple[str, ...]) -> bool:
        numbers = self.modules.get((family, ".".join(parts)), ())
        return any(PurePosixPath(self.documents[number].name).stem in stems for number in numbers)

    def _name_whole(self) -> None:
        """Infer the name of the package whose root is the top folder from the imports, because no path contains it."""
        found: dict[str, Counter[str]] = {family: Counter() for family in ("python", "rust", "go")}
        seen = {family: Counter[str]() for family in found}
        for family, document in zip(self.families, self.documents, strict=True):
            for parts in (_parts(target) for target in document.imports.values() if target[:1] not in ("/", ".")):
                if family not in found or not parts or parts[0] in _STANDARD or " " in parts[-1]:
                    continue
                for cut in range(1, min(len(parts), _MAX_PARTS if family == "go" else 2)):
                    name = ".".join(parts[:cut])
                    seen[family][name] += 1
                    found[family][name] += self._is_known(family, parts[cut:])
        for family, counts in found.items():
            likely = [name for name, count in counts.items() if count > 0.75 * seen[family][name]]
            if likely and (family == "go" or (family, "") in self.modules):
                self.whole[family] = max(likely, key=lambda name: (counts[name], len(name)))

    def _is_known(self, family: str, parts: list[str]) -> bool:
        name, module = ".".join(parts), ".".join(parts[:-1])
        if (family, name) in self.modules or family == "go":
            return (family, name) in self.modules
        around = (self.documents[number].imports for number in self.modules.get((family, module), ()))
        return name in self.definitions or any(parts[-1] in imports or "*" in imports for imports in around)

    def _documented(self, parts: list[str], near: str) -> Place | None:
        """Find a possibly shortened name that a document mentions. Documentation takes precedence over code."""
        tail = self.tails.get(".".join(parts[-2:]), ())
        named = [(whole, place) for whole, place in tail if f".{whole}".endswith("." + ".".join(parts))]
        described = [place for _, place in named if not self.families[place[0]]]
        modules = [module_of(self.documents[number].name) for _, (number, _) in named]
        names = [f"{module}.{parts[-1]}".lstrip(".") for module in modules]
        outer = [pair for pair, name in zip(named, names, strict=True) if pair[0] == name]
        public = [place for whole, place in outer if "._" not in f".{whole}"]
        groups = (described, public, [place for _, place in outer], [place for _, place in named])
        targets = [(".".join(parts), family) for family in ("python", "rust", "java", "go")]
        if is_member := len(parts) > 1 and parts[-2][:1].isupper():  # the class may inherit the member
            classes = [(whole, self.families[place[0]]) for whole, place in self.tails.get(parts[-2], ())]
            targets += [(f"/{whole}.{parts[-1]}", family) for whole, family in classes[:2] if family]
        found = (self._target(target, family, near) for target, family in targets)
        place = next(filter(None, chain((self._nearest(places, near) for places in groups), found)), None)
        # an unknown member may be an attribute, so fall back to its class
        return self._documented(parts[:-1], near) if place is None and is_member else place

    def _unique(self, name: str, family: str, near: str, *, is_member: bool) -> Place | None:
        """Find a method of an object of unknown type, or the subject of a test, if the name is unique."""
        named = [(whole, place) for whole, place in self.tails.get(name, ()) if self.families[place[0]] == family]
        if name in _COMMON or len({whole for whole, _ in named}) != 1:
            return None
        if not _DISTINCT.match(name) and (is_member or not name[0].isupper()):
            return None
        number, section = named[0][1]
        symbols = map(_parts, self.documents[number].sections[section].symbols)
        if is_member and not any(len(parts) > 1 and parts[-1] == name for parts in symbols):
            return None
        return self._nearest([place for _, place in named], near)

    def _target(self, target: str, family: str, near: str, *, is_import: bool = False, hops: int = 0) -> Place | None:
        if "~" in target:
            return self._scoped(target, family, near, hops)
        if target.startswith("/"):
            return self._resolve(_parts(target), family, near, is_import=is_import, hops=hops)
        is_import = is_import and (family != "rust" or target.startswith("crate."))
        rooted = self._rooted(_parts(target), family, near)
        found = (self._resolve(parts, family, near, is_import=is_import, hops=hops) for parts in rooted)
        return next(filter(None, found), None)

    def _scoped(self, target: str, family: str, near: str, hops: int) -> Place | None:
        """Find a name in its scope, the enclosing scopes, its module and the wildcard imports of the file."""
        module, scope, name = (_parts(part) for part in [*target.split("~"), "", ""][:3])
        ends = (end for end in range(len(scope), -1, -1) if name != scope[end - 1 : end])  # skip constructors
        around = (self._resolve([*module, *scope[:end], *name], family, near, hops=hops) for end in ends)
        stars = self.documents[self.numbers[near]].imports.get("*", "").split()
        found = (self._target(".".join((star, *name)), family, near, hops=hops + 1) for star in stars)
        return next(filter(None, chain(around, found)), None)

    def _rooted(self, parts: list[str], family: str, near: str) -> Iterator[list[str]]:
        """Yield the candidates for an absolute name, qualified from the top folder."""
        whole = _parts(self.whole.get(family, ""))
        if whole and parts[: len(whole)] == whole:
            yield parts[len(whole) :]
        if family == "java":
            for end in range(len(parts), 1, -1):
                for name, _ in self.tails.get(".".join(parts[end - 2 : end]), ()):
                    if f".{name}".endswith("." + ".".join(parts[:end])):
                        yield [*name.split("."), *parts[end:]]
        if family == "rust":
            own = _parts(module_of(near))
            if parts[:1] == ["crate"]:
                ends = (end for end in range(len(own), -1, -1) if self._is_file(family, own[:end], ("lib", "main")))
                yield [*own[: next(ends, -1)], *parts[1:]]
            elif ".".join([*own, *parts[:1]]) in self.definitions:
                yield [*own, *parts]
            if parts and (family, parts[0]) not in self.roots:
                parts = [parts[0].partition("_")[2], *parts[1:]]  # crate `plant_pump` in the folder `pump`
        folder = ".".join(_parts(dirname(near))) + "."
        roots = self.roots.get((family, parts[0] if parts else ""), ())
        for prefix in sorted(roots, key=lambda each: -_common(each, folder)):
            is_around = not prefix or family == "rust" or folder.startswith(f"{prefix}.")
            is_source = prefix in ("src", "lib") or self._is_file(family, [*_parts(prefix), parts[0]], ("__init__",))
            if is_around or (is_source and parts[0] not in _STANDARD):
                yield [*_parts(prefix), *parts]

    def _resolve(
        self, parts: list[str], family: str, near: str, *, is_import: bool = False, hops: int = 0
    ) -> Place | None:
        """Find a name qualified from the top folder, through the imports of modules and the bases of classes."""
        self.steps -= 1
        if self.steps < 0 or hops > _MAX_HOPS:
            return None
        name = ".".join(parts)
        places = [place for place in self.definitions.get(name, ()) if self.families[place[0]] == family]
        if places:
            return self._nearest(places, near) if len(places) <= _MAX_LISTED else None
        for cut in range(len(parts) - 1, 0, -1):
            number, bases = self.bases.get((family, ".".join(parts[:cut])), (0, []))
            found = (self._target(".".join([base, *parts[cut:]]), family, self.documents[number].name, hops=hops + 1)
                     for base in bases)  # fmt: skip
            if (place := next(filter(None, found), None)) is not None:
                return place
        for cut in range(len(parts), -1, -1):
            if numbers := self.modules.get((family, ".".join(parts[:cut]))):
                return self._member(numbers, parts[:cut], parts[cut:], near, is_import=is_import, hops=hops)
        return None

    def _member(
        self, numbers: list[int], module: list[str], names: list[str], near: str, *, is_import: bool, hops: int
    ) -> Place | None:
        family = self.families[numbers[0]]
        if names and family in ("python", "script", "rust"):  # modules of these languages re-export imported names
            key = (numbers[0], ".".join(names))
            if key not in self.handed_on:
                self.handed_on[key] = None  # ends circular imports
                sources = self._sources(numbers, names)
                found = (self._target(target, family, name, hops=hops + 1) for target, name in sources)
                self.handed_on[key] = next(filter(None, found), None)
                if self.steps < 0:
                    del self.handed_on[key]  # the search ran out of steps, so the result is unknown
                    return None
            if (place := self.handed_on[key]) is not None:
                return place
            if family == "script" and names[0] == "default" and len(names) > 1:
                return self._resolve([*module, *names[1:]], family, near, is_import=is_import, hops=hops + 1)
        if names and not is_import and not (family == "script" and names == ["default"]):
            return None
        stems = (*(module or _parts(self.whole.get(family, "")))[-1:], "doc")
        stemmed = [number for number in numbers if PurePosixPath(self.documents[number].name).stem in stems]
        return ((stemmed or numbers)[0], 0)

    def _sources(self, numbers: list[int], names: list[str]) -> Iterator[tuple[str, str]]:
        """Yield the targets from which a module may import a name, each with the name of the importing file."""
        for document in (self.documents[number] for number in numbers[:_MAX_HOPS]):
            for end in range(len(names), 0, -1):
                if (target := document.imports.get(".".join(names[:end]))) is not None:
                    yield ".".join([target, *names[end:]]), document.name
            for star in document.imports.get("*", "").split():
                yield ".".join([star, *names]), document.name

    def _nearest(self, places: Iterable[Place], near: str) -> Place | None:
        """Return the definition closest to a file, preferring definitions over stub files, or None for a tie."""
        names = {place: self.documents[place[0]].name for place in islice(dict.fromkeys(places), _MAX_LISTED)}
        ranks = {place: (place[1] > 0, not name.endswith(".pyi"), _common(name, near)) for place, name in names.items()}
        top = max(ranks.values(), default=None)
        best = [place for place, rank in ranks.items() if rank == top]
        return best[0] if len({number for number, _ in best}) == 1 else None


def _common(path: str, other: str) -> int:
    """Return the number of leading components that two paths share."""
    pairs = zip(re.split("[./]", path), re.split("[./]", other), strict=False)
    return next((i for i, (part, that) in enumerate(pairs) if part != that), len(path))
