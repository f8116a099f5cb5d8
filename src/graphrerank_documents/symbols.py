"""Names of code to the sections that define them, over the imports of files and the bases of classes."""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice
from pathlib import PurePosixPath
from posixpath import dirname, splitext

from graphrerank_documents.document import Document, Link

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
_COMMON_WORDS = (  # names of methods of the languages' types, which an object of an unknown type may have
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
_DISTINCT = re.compile(r"_[^\W_]|[^\W_]\w*?(?:[^\W_]_[^\W_]|[a-z\d][A-Z])")  # of two words, or private
_MAX_LISTED, _MAX_STEPS, _MAX_HOPS, _MAX_PARTS = 64, 256, 12, 16

Place = tuple[int, int]  # the number of a document and of its section


def family_of(name: str) -> str:
    """Return the languages that share names with a file's, by its path; empty for a document."""
    return _FAMILIES.get(name.rpartition(".")[2].lower(), "")


@lru_cache(maxsize=1 << 16)
def module_of(name: str) -> str:
    """Return what stands before the names that a file defines, in all languages with dots.

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
    if family == "java":  # the package, of tests as well
        parts = _parts(_JAVA_SOURCES.sub("", dirname(name) + "/"))
    if family == "rust":
        parts = [part.replace("-", "_") for part in parts if part != "src"]
    last = {"python": ("__init__",), "script": ("index",), "rust": ("mod", "lib", "main")}.get(family, ())
    return ".".join(parts[:-1] if parts and parts[-1] in last else parts)


def _parts(text: str) -> list[str]:
    return [part for part in _SEPARATORS.split(text) if part]


class SymbolIndex:
    """Finds what links of the kind "symbol" point at; ``documents`` may come without their sections' blocks.

    A target of code is `/` and a name from the folder on (`/src.pump.motor.Motor.start`), the same with a scope around
    the name (`/pump~Motor~start`: `Motor.start` or `start` of the package), an absolute name as an import has it, or
    `.name` of an unknown object and `..name` after a test, found if nothing else has that name.
    Other documents write names as they are.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents
        self.families = [family_of(document.name) for document in documents]
        self.definitions: defaultdict[str, list[Place]] = defaultdict(list)  # by the whole name
        self.tails: defaultdict[str, list[tuple[str, Place]]] = defaultdict(list)  # by its last part and last two
        self.modules: defaultdict[tuple[str, str], list[int]] = defaultdict(list)  # their documents, by family and name
        self.bases: dict[tuple[str, str], tuple[int, list[str]]] = {}  # of a class: its document, and their targets
        self.roots: defaultdict[tuple[str, str], list[str]] = defaultdict(list)  # what stands before a package's name
        self.whole: dict[str, str] = {}  # the name of the package that the whole folder is, by family
        self.numbers = {document.name: number for number, document in enumerate(documents)}
        self.found: dict[tuple[str, str, bool], Place | None] = {}  # what was searched for, from a file or folder
        self.handed_on: dict[tuple[int, str], Place | None] = {}  # a name of a module's imports, by its first document
        self.steps = 0  # that are left to the search
        for number, document in enumerate(documents):
            self._add(number, document)
        for family, document in zip(self.families, documents, strict=True):
            self._add_root(family, document.name)
        self._name_whole()

    def find(self, document: Document, link: Link) -> Place | None:
        """Return the number of the document and of its section that a link's target names; None where it is unknown."""
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
            start = len(folders[: -folders[::-1].index("src") - 1]) - 1
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
        """Find the name of the package or module that the whole folder is, which its paths lack, by its imports."""
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
        """Find what a document names, as its author may shorten it: first what documents describe, then code."""
        tail = self.tails.get(".".join(parts[-2:]), ())
        named = [(whole, place) for whole, place in tail if f".{whole}".endswith("." + ".".join(parts))]
        described = [place for _, place in named if not self.families[place[0]]]
        modules = [module_of(self.documents[number].name) for _, (number, _) in named]
        names = [f"{module}.{parts[-1]}".lstrip(".") for module in modules]
        outer = [pair for pair, name in zip(named, names, strict=True) if pair[0] == name]
        public = [place for whole, place in outer if "._" not in f".{whole}"]
        groups = (described, public, [place for _, place in outer], [place for _, place in named])
        targets = [(".".join(parts), family) for family in ("python", "rust", "java", "go")]
        if is_member := len(parts) > 1 and parts[-2][:1].isupper():  # which a class inherits
            classes = [(whole, self.families[place[0]]) for whole, place in self.tails.get(parts[-2], ())]
            targets += [(f"/{whole}.{parts[-1]}", family) for whole, family in classes[:2] if family]
        found = (self._target(target, family, near) for target, family in targets)
        place = next(filter(None, chain((self._nearest(places, near) for places in groups), found)), None)
        return self._documented(parts[:-1], near) if place is None and is_member else place  # an attribute

    def _unique(self, name: str, family: str, near: str, *, is_member: bool) -> Place | None:
        """Find a method of an unknown object, or what a test is named after, if nothing else has that name."""
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
        """Find a name in a scope, those around it, its module, and what the file imports as a whole."""
        module, scope, name = (_parts(part) for part in [*target.split("~"), "", ""][:3])
        ends = (end for end in range(len(scope), -1, -1) if name != scope[end - 1 : end])  # no constructor
        around = (self._resolve([*module, *scope[:end], *name], family, near, hops=hops) for end in ends)
        stars = self.documents[self.numbers[near]].imports.get("*", "").split()
        found = (self._target(".".join((star, *name)), family, near, hops=hops + 1) for star in stars)
        return next(filter(None, chain(around, found)), None)

    def _rooted(self, parts: list[str], family: str, near: str) -> Iterator[list[str]]:
        """Yield what an absolute name may be from the folder on."""
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
                parts = [parts[0].partition("_")[2], *parts[1:]]  # a crate `plant_pump` in the folder `pump`
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
        """Find a name from the folder on, through the imports of modules and the bases of classes."""
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
        if names and family in ("python", "script", "rust"):  # whose modules hand on what they import
            key = (numbers[0], ".".join(names))
            if key not in self.handed_on:
                self.handed_on[key] = None  # of a circle of imports
                sources = self._sources(numbers, names)
                found = (self._target(target, family, name, hops=hops + 1) for target, name in sources)
                self.handed_on[key] = next(filter(None, found), None)
                if self.steps < 0:
                    del self.handed_on[key]  # the search was not ended
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
        """Yield the targets that a module's files may import a name from, with the file."""
        for document in (self.documents[number] for number in numbers[:_MAX_HOPS]):
            for end in range(len(names), 0, -1):
                if (target := document.imports.get(".".join(names[:end]))) is not None:
                    yield ".".join([target, *names[end:]]), document.name
            for star in document.imports.get("*", "").split():
                yield ".".join([star, *names]), document.name

    def _nearest(self, places: Iterable[Place], near: str) -> Place | None:
        """Choose the definition in the same file or folder, before declarations; None where two are as near."""
        names = {place: self.documents[place[0]].name for place in islice(dict.fromkeys(places), _MAX_LISTED)}
        ranks = {place: (place[1] > 0, not name.endswith(".pyi"), _common(name, near)) for place, name in names.items()}
        top = max(ranks.values(), default=None)
        best = [place for place, rank in ranks.items() if rank == top]
        return best[0] if len({number for number, _ in best}) == 1 else None


def _common(path: str, other: str) -> int:
    """Count the folders that two paths share, and the file."""
    pairs = zip(re.split("[./]", path), re.split("[./]", other), strict=False)
    return next((i for i, (part, that) in enumerate(pairs) if part != that), len(path))
