"""Resolve names in code to the sections that define them, through the imports of files and the bases of classes."""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import PurePosixPath
from posixpath import dirname

from graphrerank_documents.document import Document, Link
from graphrerank_documents.failures import noting_failure
from graphrerank_documents.imports.base import CodeFiles, ModuleMatch, ModuleResolver
from graphrerank_documents.imports.go import GoResolver
from graphrerank_documents.imports.manifest import PackageManifest
from graphrerank_documents.imports.python import PythonResolver
from graphrerank_documents.imports.rust import RustResolver
from graphrerank_documents.imports.scripts import ScriptResolver
from graphrerank_documents.module_names import EXACT_FAMILIES, family_of, module_of, name_parts
from graphrerank_documents.pages import path_of_document

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
_STANDARD = sys.stdlib_module_names | {"std", "core", "alloc", "crate"}
_DISTINCT = re.compile(r"_[^\W_]|[^\W_]\w*?(?:[^\W_]_[^\W_]|[a-z\d][A-Z])")  # private names, and names of two words
_NOT_INDEXED = "read, but its symbols cannot be indexed"
_MAX_LISTED = 64  # maximum number of definitions of one name that are compared
_MAX_STEPS = 256  # maximum number of look-ups to resolve a link
_MAX_HOPS = 12  # maximum number of imports and bases that a link follows
_MAX_PARTS = 16  # maximum number of components of a name

#: Document number and section number.
Place = tuple[int, int]


class SymbolIndex:
    """Index of code symbols, which resolves links of the kind ``symbol``.

    Links in code have one of these targets:

    - ``/src.pump.motor.Motor.start``: a name qualified from the top folder.
    - ``/pump~Motor~start``: a name with the scope in which it occurs. ``Motor.start`` is tried first, then ``start`` in
      the package.
    - ``pump.motor.Motor``: an absolute name, as in an import.
    - ``/src/pump/motor.js#Motor`` and ``@plant/pump#Motor``: a module specifier of JavaScript or TypeScript, and a name
      in the module. A relative specifier is written as a path from the top folder.
    - ``.start``: a method of an object of unknown type. Resolved only if the name is unique.
    - ``..start``: a name derived from the name of a test. Resolved only if the name is unique.

    Other documents use the name as it is written.

    Args:
        documents: All documents. The sections need no blocks.
        manifests: Package manifests by path, which decide where absolute imports lead.
        files: Paths of all files in the folder, including those without a document.
        failures: Documents whose symbols cannot be indexed because of an exception, by reason. New ones are added.
            Links to such symbols are not resolved. If None, the exception is raised.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        *,
        manifests: Mapping[str, PackageManifest] | None = None,
        files: Collection[str] = (),
        failures: MutableMapping[str, list[str]] | None = None,
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
        # name of the package whose root is the top folder, by language family
        self.whole: dict[str, str] = {}
        self.numbers = {document.name: number for number, document in enumerate(documents)}
        self.first = {path_of_document(name): self.numbers[name] for name in reversed(self.numbers)}  # by file
        # cached results by file or folder, target and whether the link is an import
        self.found: dict[tuple[str, str, bool], Place | None] = {}
        # cached results for re-exported names, by the first document of the module and the name
        self.handed_on: dict[tuple[int, str], Place | None] = {}
        self.steps = 0  # number of remaining steps of the current search
        for number, document in enumerate(documents):
            with nullcontext() if failures is None else noting_failure(failures, document.name, _NOT_INDEXED):
                self._add(number, document)
        first = {name: documents[number] for name, number in self.first.items()}
        code = CodeFiles(first, frozenset(files) - first.keys(), manifests or {})
        families = (PythonResolver, GoResolver, RustResolver, ScriptResolver)
        self.resolvers: dict[str, ModuleResolver] = {each.family: each(code) for each in families}
        self._name_whole(code.manifests)

    def find(self, document: Document, link: Link) -> Place | None:
        """Return the definition of a link's target.

        Args:
            document: Document with the link.
            link: Link of the kind ``symbol``.

        Returns:
            Document number and section number, or None if the target is unknown or ambiguous.
        """
        target, is_import = link.target.strip().removesuffix("()"), link.edge == "import"
        is_local = _is_scoped(target) or family_of(document.name) in ("", "rust")
        key = (document.name if is_local else dirname(document.name), target, is_import)
        if key not in self.found:
            self.steps, is_short = _MAX_STEPS, len(name_parts(target)) <= _MAX_PARTS
            self.found[key] = self._find(document.name, target, is_import=is_import) if is_short else None
        return self.found[key]

    def is_within(self, document: Document, link: Link) -> bool:
        """Return whether an import refers to the folder rather than to an installed package.

        Args:
            document: Document with the link.
            link: Link of the kind ``symbol``.
        """
        target = link.target.strip()
        resolver = self.resolvers.get(family_of(document.name))
        if resolver is None or _is_scoped(target) or target.startswith(".") or len(name_parts(target)) > _MAX_PARTS:
            return False
        return resolver.is_within(target, document.name)

    def _find(self, near: str, target: str, *, is_import: bool) -> Place | None:
        family = family_of(near)
        if not family:
            return self._documented(name_parts(target), near)
        if family in EXACT_FAMILIES:
            return self._exact(".".join(name_parts(target)), family, near)
        if target.startswith("."):
            return self._unique(target.strip("."), family, near, is_member=target[1:2] != ".")
        if family == "c" and is_import:
            numbers = self.modules.get(("include", ".".join(name_parts(target))), [])
            return self._nearest(((number, 0) for number in numbers), near)
        return self._target(target, family, near, is_import=is_import)

    def _exact(self, name: str, family: str, near: str) -> Place | None:
        """Find a definition by its whole name. Kotlin may use Java."""
        families = (family, "java") if family == "kotlin" else (family,)
        places = self.definitions.get(name, ())
        return self._nearest([place for place in places if self.families[place[0]] in families], near)

    def _add(self, number: int, document: Document) -> None:
        family, module = self.families[number], module_of(document.name)
        self.modules[family, module].append(number)
        if family == "c":
            path = name_parts(document.name)[-_MAX_PARTS:]
            for start in range(len(path) - 1):
                self.modules["include", ".".join(path[start:])].append(number)
        prefix = name_parts(module) if family else []
        for section, names in enumerate(section.symbols for section in document.sections):
            for parts in ([*prefix, *name_parts(name)] for name in names):
                whole, place = ".".join(parts), (number, section)
                if len(self.definitions[whole]) <= _MAX_LISTED:
                    self.definitions[whole].append(place)
                for tail in {".".join(parts[-1:]), ".".join(parts[-2:])}:
                    if len(self.tails[tail]) <= _MAX_LISTED:
                        self.tails[tail].append((whole, place))
        for name, target in document.imports.items():
            if name.endswith(".*"):
                self.bases[family, ".".join([*prefix, *name_parts(name[:-2])])] = (number, target.split())

    def _name_whole(self, manifests: Collection[str]) -> None:
        """Infer the name of the package whose root is the top folder from the imports, because no path contains it."""
        # number of imports by the start of their name, and of those among them whose rest exists in the folder
        seen = {family: Counter[str]() for family in ("python", "rust", "go")}
        resolved = {family: Counter[str]() for family in seen}
        for family, document in zip(self.families, self.documents, strict=True):
            for parts in (name_parts(target) for target in document.imports.values() if target[:1] not in ("/", ".")):
                if family not in seen or not parts or parts[0] in _STANDARD or " " in parts[-1]:
                    continue
                for cut in range(1, min(len(parts), _MAX_PARTS if family == "go" else 2)):
                    name = ".".join(parts[:cut])
                    seen[family][name] += 1
                    resolved[family][name] += self._is_known(family, parts[cut:])
        for family, counts in resolved.items():
            likely = [name for name, count in counts.items() if count > 0.75 * seen[family][name]]
            is_named = family == "go" and any(path.endswith("go.mod") for path in manifests)
            if likely and not is_named and (family == "go" or (family, "") in self.modules):
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
        symbols = map(name_parts, self.documents[number].sections[section].symbols)
        if is_member and not any(len(parts) > 1 and parts[-1] == name for parts in symbols):
            return None
        return self._nearest([place for _, place in named], near)

    def _target(self, target: str, family: str, near: str, *, is_import: bool = False, hops: int = 0) -> Place | None:
        if _is_scoped(target):
            return self._scoped(target, family, near, hops)
        matches = list(islice(self._matches(target, family, near), _MAX_LISTED))
        exact = (self._match(match, family, near, hops=hops) for match in matches)
        place = next(filter(None, exact), None)
        if place is None and is_import:  # an unknown name of a known module leads to the module
            known = (self._match(match, family, near, is_import=True, hops=hops) for match in matches
                     if not match.is_exact)  # fmt: skip
            place = next(filter(None, known), None)
        return place

    def _matches(self, target: str, family: str, near: str) -> Iterator[ModuleMatch]:
        """Yield the modules of the folder to which a qualified name may refer."""
        if (resolver := self.resolvers.get(family)) is not None:
            yield from resolver.resolve(target, near)
        elif target.startswith("/"):
            yield ModuleMatch(tuple(name_parts(target)))
        elif family == "java":
            yield from self._java_classes(name_parts(target))
        parts, whole = name_parts(target), name_parts(self.whole.get(family, ""))
        if whole and target[:1] != "/" and parts[: len(whole)] == whole:
            yield ModuleMatch(tuple(parts[len(whole) :]))

    def _match(
        self, match: ModuleMatch, family: str, near: str, *, is_import: bool = False, hops: int = 0
    ) -> Place | None:
        if not match.file:
            return self._resolve(list(match.names), family, near, is_import=is_import, hops=hops)
        self.steps -= 1
        if self.steps < 0 or hops > _MAX_HOPS:
            return None
        number = self.first[match.file]
        if not match.names or family_of(match.file) != family:
            return number, 0
        module, names = name_parts(module_of(match.file)), list(match.names)
        places = self.definitions.get(".".join([*module, *names]), ())
        if (place := next((place for place in places if place[0] == number), None)) is not None:
            return place
        return self._inherited([*module, *names], family, hops) or self._member(
            [number], module, names, near, is_import=is_import, hops=hops
        )

    def _java_classes(self, parts: list[str]) -> Iterator[ModuleMatch]:
        """Yield the classes of Java whose qualified name ends with the start of a name."""
        for end in range(len(parts), 1, -1):
            for name, _ in self.tails.get(".".join(parts[end - 2 : end]), ()):
                if f".{name}".endswith("." + ".".join(parts[:end])):
                    yield ModuleMatch((*name.split("."), *parts[end:]))

    def _scoped(self, target: str, family: str, near: str, hops: int) -> Place | None:
        """Find a name in its scope, the enclosing scopes, its module and the wildcard imports of the file."""
        module, scope, name = (name_parts(part) for part in [*target.split("~"), "", ""][:3])
        ends = (end for end in range(len(scope), -1, -1) if name != scope[end - 1 : end])  # skip constructors
        around = (self._resolve([*module, *scope[:end], *name], family, near, hops=hops) for end in ends)
        stars = self.documents[self.numbers[near]].imports.get("*", "").split()
        found = (self._target(".".join((star, *name)), family, near, hops=hops + 1) for star in stars)
        return next(filter(None, chain(around, found)), None)

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
        if (place := self._inherited(parts, family, hops)) is not None:
            return place
        for cut in range(len(parts), -1, -1):
            if numbers := self.modules.get((family, ".".join(parts[:cut]))):
                return self._member(numbers, parts[:cut], parts[cut:], near, is_import=is_import, hops=hops)
        return None

    def _inherited(self, parts: list[str], family: str, hops: int) -> Place | None:
        """Find a member of a class in its bases."""
        for cut in range(len(parts) - 1, 0, -1):
            number, bases = self.bases.get((family, ".".join(parts[:cut])), (0, []))
            found = (self._target(".".join([base, *parts[cut:]]), family, self.documents[number].name, hops=hops + 1)
                     for base in bases)  # fmt: skip
            if (place := next(filter(None, found), None)) is not None:
                return place
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
        is_path = family == "go" or (len(names) > 1 and (family == "python" or names[0][:1].islower()))
        is_known = any(names[:1] and names[0] in self.documents[number].imports for number in numbers)
        if names and family != "script" and is_path and not is_known:
            return None  # an import names a module that does not exist
        stems = (*(module or name_parts(self.whole.get(family, "")))[-1:], "doc")
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


def _is_scoped(target: str) -> bool:
    """Return whether a target is a name with the scope in which it occurs. Module specifiers may contain ``~``, too."""
    return target.startswith("/") and "~" in target and "#" not in target


def _common(path: str, other: str) -> int:
    """Return the number of leading components that two paths share."""
    pairs = zip(re.split("[./]", path), re.split("[./]", other), strict=False)
    return next((i for i, (part, that) in enumerate(pairs) if part != that), len(path))
