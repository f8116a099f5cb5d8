"""Parse code with tree-sitter: functions and classes become sections; calls, imports, bases and tests become links."""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from graphrerank.installation.extras import optional
from graphrerank_documents.document import MAX_NAME, MAX_TARGET, SYMBOL, Block, Document, Link, Section
from graphrerank_documents.formats.code_languages import CodeLanguage, code_language, rust_target
from graphrerank_documents.formats.text import decode_text, without_blobs
from graphrerank_documents.module_names import family_of, module_of

_CHUNK = 1024  # number of bytes that the parser reads at once, small enough to count repeated reads
_ROOM = 1 << 20  # number of bytes that the parser may always read, also of a short file
_READ_AGAIN = 50  # maximum number of passes over a file: code needs two, unclosed comments cause thousands
#: Maximum number of characters of a file to parse. Longer files are divided between lines, without symbols and links.
MAX_PARSED = 500_000
#: Maximum number of lines and characters of a block. Longer functions are split.
MAX_BLOCK_LINES, MAX_BLOCK_CHARS = 60, 3000
#: Maximum number of characters of the first block if it only lists the names of definitions or imports.
MAX_OUTLINE = 500
_MAX_MEAN_LINE = 500  # mean number of characters per line above which a file counts as minified
_MAX_DEPTH = 300  # maximum depth of the syntax tree
_MAX_NESTED = 20  # maximum depth of nested sections
_MAX_MARKS = 5000  # maximum number of punctuation marks in a syntax error
_MAX_OPEN = 200  # maximum number of unclosed angle brackets
_MAX_STATEMENT = 20_000  # maximum number of bytes of an import or of a macro's arguments
_GENERATED = re.compile(r"^\W*(?:Code generated .* DO NOT EDIT|.*@generated\b)", re.MULTILINE)
_OPEN = re.compile(r"(?:<[^<>;{}()]*+)++")
# string, which is skipped, or a name or path in front of an opening parenthesis
_TOKEN_CALL = re.compile(r'"(?:[^"\\]|\\.)*+"|(?<![\w.:])([A-Za-z_]\w*(?:::[A-Za-z_]\w*){0,15})\(')
_WORD = re.compile(r"[\w$]+")
_SPLIT = re.compile(r"::|\.")  # separators of qualified names
_TEST_FILE = re.compile(
    r"(?:^|/)(?:tests?|__tests__|spec)/(?!.*conftest\.)"  # folder of tests
    r"|(?:^|/)test_[^/]*$"
    r"|(?:_test|_spec|[.]test|[.]spec|Tests?)\.\w+$"
)
# start or end of a name that marks a test, behind or before the name of what is tested
_TEST_NAME = re.compile(r"^(?:test_|[Tt]est(?=[A-Z]))(?=\w)|(?<=\w)Tests?$")
# parts of a captured name that are not in qualified names, such as type arguments and quotes
_NO_NAME = re.compile(r"^(?:module\.)?exports\.|\bprototype\.|<.*>|[\"'\s]", re.DOTALL)
# pointers, references, lifetimes, quotes and keywords in a type
_TYPE_DECORATION = re.compile(r"^[&*\s:]+|'\w+\s|\b(?:mut|const|struct|dyn|impl|final)\s|[\"'\s*&]")
# optional types, whose group is the type without it, and type arguments
_OPTIONAL_TYPE = re.compile(r"^(?:\w+\.)?Optional\[(.*)\]$|\|None$|\|null$|\|undefined$|<.*>$|\[[^\]]*\]$")
_TEST_MACRO = re.compile(r"TEST\w*\s*\(\s*(\w+),\s*(\w+)")
_STATEMENT = re.compile(r"(\s*)(?![)\]}{]|#e|(?:else|elif|except|finally|catch)\b)\S")  # first line of a statement


def read_code(content: bytes, name: str) -> list[Document]:
    """Parse a source file.

    The first section has the code outside functions and classes, and the links of the imports. Each function, method
    and class has a section. The section of a class excludes the lines of its methods. Minified and generated files have
    no sections.

    Args:
        content: Bytes of the file.
        name: Path of the file, relative to the source.

    Returns:
        One document.

    Raises:
        UnreadableError: If ``content`` is binary or its encoding is unknown.
    """
    text = decode_text(content)
    title = _title(name, text)
    reason = "generated files" if _GENERATED.search(text[:2000]) else ""
    if len(text) > max(2000, _MAX_MEAN_LINE * (text.count("\n") + 1)):
        reason = "minified files"
    if reason:
        return [Document(name, title, (), dropped={reason: 1})]
    text, dropped = without_blobs(text)
    language = code_language(name, text)
    if (tree := _parse(text, language)) is not None:
        return [_File(text, name, dropped, language, tree).document(title)]
    lines = text.split("\n")
    blocks = tuple(_blocks(lines, 0, len(lines)))
    sections = (Section("", blocks, 1, len(lines)),) if blocks else ()
    return [Document(name, title, sections, dropped=dropped)]


def _parse(text: str, language: CodeLanguage) -> Any:
    """Return the syntax tree, or None if parsing would be too expensive: long files, and text that is not code."""
    is_open = text.count("<") > _MAX_OPEN and any(run[0].count("<") > _MAX_OPEN for run in _OPEN.finditer(text))
    if len(text) > MAX_PARSED or is_open:
        return None
    source = text.encode()
    calls = count()  # the callback runs every hundred steps, for code at most 17 times per 1,000 bytes
    room = _READ_AGAIN * len(source) + _ROOM  # number of bytes that the parser may still read, including look-ahead

    def read(offset: int, point: object) -> bytes:
        nonlocal room
        chunk = source[offset : offset + _CHUNK] if room > 0 else b""
        room -= len(chunk)
        return chunk

    try:
        tree = language.parser.parse(
            read, progress_callback=lambda offset, has_error: room <= 0 or next(calls) > 100 + 0.025 * offset
        )
    except ValueError:
        room = 0
    if room <= 0:
        language.parser.reset()
        return None
    nodes = [tree.root_node]
    while nodes:  # the time of a query is quadratic in the number of punctuation marks of a syntax error
        if (node := nodes.pop()).child_count > _MAX_MARKS + 2 * node.named_child_count:
            return None
        nodes += [child for child in node.children if child.has_error] if node.has_error else []
    return tree


def _title(name: str, text: str) -> str:
    """Return the name by which other code imports the module, or the path of the file."""
    path = PurePosixPath(name)
    match family_of(name):
        case "python":
            return re.sub(r"^(?:src|lib)\.(?=.)", "", module_of(name)) or path.stem
        case "rust":
            return module_of(name).replace(".", "::") or path.stem
        case "java" if package := re.search(r"^\s*package\s+([\w.]+)\s*;", text, re.MULTILINE):
            return f"{package[1]}.{path.stem}"[:MAX_NAME]
    return name


def _blocks(lines: list[str], top: int, bottom: int) -> Iterator[Block]:
    """Divide the rows ``top`` to ``bottom - 1`` before the least indented statements. Skip blocks without words."""
    while top < bottom:
        chars = 0
        end = top
        while end < min(bottom, top + MAX_BLOCK_LINES) and chars <= MAX_BLOCK_CHARS:
            chars += len(lines[end]) + 1
            end += 1
        if end < bottom or (chars > MAX_BLOCK_CHARS and end - top > 1):
            earliest_end = top + max((end - top) // 3, 1)  # blocks have at least a third of the possible rows
            statements = {row: _STATEMENT.match(lines[row]) for row in range(earliest_end, end)}
            indents = {row: len(start[1].expandtabs()) for row, start in statements.items() if start is not None}
            end = min(indents, key=lambda row: (indents[row], -row), default=max(end - 1, top + 1))
        first = next((row for row in range(top, end) if lines[row].strip()), top)
        text = "\n".join(lines[first:end]).rstrip()
        if re.search(r"\w", text):
            yield Block(text, first + 1, is_whole=True, is_tight=True)
        top = end


@dataclass(slots=True)
class _Part:
    """Section under construction. Row numbers are 0-based.

    Attributes:
        name: Qualified name.
        scope: Qualified name of the class or module in which names are resolved first.
        first: First row, including comments and decorators.
        body: First row after the signature and docstring.
        space: Qualified name of the module within the file.
        receiver: Name of the receiver in the function, if it is not a keyword of the language.
        is_function: Whether the section is a function or method.
        symbols: Qualified names that the section defines.
        links: Links by target and edge type.
    """

    name: str
    scope: str
    first: int
    body: int
    space: str
    receiver: str = ""
    is_function: bool = False
    symbols: list[str] = field(default_factory=list)
    links: dict[tuple[str, str], Link] = field(default_factory=dict)


class _Definition(NamedTuple):
    """Definition that encloses the current one.

    Attributes:
        end: End of the definition in bytes.
        kind: ``function``, ``class`` or ``scope``.
        name: Qualified name.
        number: Index of the section that contains the definition.
    """

    end: int
    kind: str
    name: str
    number: int


_WHOLE_FILE = _Definition(0, "", "", 0)


class _File:
    """Source file that is converted to a document with a section for each function and class."""

    def __init__(self, text: str, name: str, dropped: dict[str, int], language: CodeLanguage, tree: Any) -> None:
        self.name, self.dropped = name, dropped
        self.source, self.lines = text.encode(), text.split("\n")
        self.language = language
        self.module = module_of(name)
        self.is_test = _TEST_FILE.search(name) is not None
        cursor = optional("tree_sitter", "code").QueryCursor(self.language.query)
        cursor.set_max_start_depth(_MAX_DEPTH)
        self.parts = [_Part("", "", 0, 0, "")]
        self.part_of_row = [0] * (len(self.lines) + 1)  # index in `parts` for each row
        self.scope = [""] * (len(self.lines) + 1)  # module within the file for each row
        self.lead: set[int] = set()  # rows of comments and decorators
        self.imported: set[int] = set()  # rows of imports
        self.imports: dict[str, str] = {}
        self.numbers: dict[str, int] = {}  # index in `parts` by name
        self.constants: set[str] = set()
        self.wholes: dict[str, dict[str, None]] = {}  # modules of wildcard imports (`*`), and bases of `Class.*`
        self.types: dict[tuple[str, str], str] = {}  # types by function or class and by variable or field
        self.matches: defaultdict[str, list[dict[str, list[Any]]]] = defaultdict(list)  # matches by capture name
        for _, captures in cursor.matches(tree.root_node):
            for capture in captures:
                self.matches[capture].append(captures)
        for node in self._nodes("lead"):
            row, column = node.start_point
            if not self.lines[row].encode()[:column].strip():  # nothing precedes it in the line
                self.lead.update(range(row, node.end_point[0] + (node.end_point[1] > 0)))
        for node in self._nodes("skip"):
            self.imported.update(range(node.start_point[0], node.end_point[0] + 1))
        self._define()
        self.names = {re.split(r"\W", symbol)[0] for part in self.parts for symbol in part.symbols}
        for key in ("load", "import"):  # Rust's `mod` before `use`, which may refer to it
            for node in self._nodes(key):
                self._import(node, is_shown=key == "load")
        self._note_types()
        self._link()

    def _nodes(self, *names: str) -> Iterator[Any]:
        """Yield the nodes with one of some capture names."""
        for name in names:
            for captures in self.matches[name]:
                yield from captures[name]

    def _part(self, node: Any) -> _Part:
        """Return the section that contains the first row of a node."""
        return self.parts[self.part_of_row[node.start_point[0]]]

    def _define(self) -> None:
        """Divide the rows of the file among its functions and classes. Functions within functions have no section."""
        definitions = [
            (captures[kind][0], kind, captures)
            for kind in ("function", "class", "scope")
            for captures in self.matches[kind]
        ]
        definitions.sort(key=lambda definition: (definition[0].start_byte, -definition[0].end_byte))
        enclosing: list[_Definition] = []  # outermost first
        last_start = -1
        for node, kind, captures in definitions:
            while enclosing and enclosing[-1].end <= node.start_byte:
                enclosing.pop()
            outer = enclosing[-1] if enclosing else _WHOLE_FILE
            is_repeated = node.start_byte == last_start and kind != "scope"
            if outer.kind == "function" or len(enclosing) > _MAX_NESTED or is_repeated:
                continue
            last_start = node.start_byte
            name = self._name(captures, outer.name)
            if kind == "class" and name == f"{outer.name}{self.language.separator}{outer.name}":
                continue  # typedef struct X {} X
            number = outer.number
            if kind == "scope":
                rows = slice(node.start_point[0], node.end_point[0] + 1)
                self.scope[rows] = [name] * len(self.scope[rows])
            else:
                number = self._assign_rows(name, kind, node, captures, number)
            enclosing.append(_Definition(node.end_byte, kind, name, number))

    def _name(self, captures: dict[str, list[Any]], outer: str) -> str:
        """Return the qualified name of a definition within the definition ``outer``."""
        names = [self._text(node) for kind in ("owner", "name") for node in captures.get(kind, ())[:1]] or ["default"]
        if names[0].startswith("TEST"):
            row = captures["name"][0].start_point[0]
            if test := _TEST_MACRO.match(self.lines[row]):
                names = [test[1], test[2]]
        name = _NO_NAME.sub("", self.language.separator.join(names))
        return (f"{outer}{self.language.separator}" if outer else "") + name[:200]

    def _text(self, node: Any) -> str:
        """Return the text of a node, or the last 300 bytes of a long one."""
        return self.source[max(node.start_byte, node.end_byte - 300) : node.end_byte].decode(errors="ignore")

    def _assign_rows(self, name: str, kind: str, node: Any, captures: dict[str, list[Any]], outer: int) -> int:
        """Assign rows of the section ``outer`` to a function or class, and return the index of its section."""
        first, end = node.start_point[0], node.end_point[0] + 1
        while first and first - 1 in self.lead and self.part_of_row[first - 1] == outer:
            first -= 1
        # a definition that starts on a line of another definition belongs to the section of that one
        if self.part_of_row[first] != outer or (outer and first <= self.parts[outer].first):
            self.parts[self.part_of_row[first]].symbols.append(name)
            return self.part_of_row[first]
        number = self.numbers.get(name)
        is_continued = number is not None and (kind == "class" or number == len(self.parts) - 1)  # or an overload
        if number is None or not is_continued:
            number = self.numbers[name] = len(self.parts)
            part = _Part(
                name,
                scope=name if kind == "class" else name.rpartition(self.language.separator)[0],
                first=first,
                body=self._body(node, end),
                space=self.scope[first],
                receiver=self._text(captures["self"][0]) if "self" in captures else "",
                is_function=kind == "function",
                symbols=[name],
            )
            self.parts.append(part)
        self.part_of_row[first:end] = [number] * (end - first)
        return number

    def _body(self, node: Any, end: int) -> int:
        """Return the first row after the signature and, in Python, after the docstring."""
        body, fields = node, ("body", "value", "right")
        while body.type != "block" and (inner := next(filter(None, map(body.child_by_field_name, fields)), None)):
            body = inner
        if body is node:
            return end
        row: int = body.start_point[0]
        if body.type != "block" or self.source[body.start_byte : body.start_byte + 1] == b"{":
            return min(row + 1, end)
        statement = next(iter(body.named_children), body)
        is_docstring = statement.type in ("expression_statement", "string") and self._text(statement)[-1:] in ("'", '"')
        return statement.end_point[0] + 1 if is_docstring else max(row, node.start_point[0] + 1)

    def _note_types(self) -> None:
        """Record the names of constants, and the types of variables and fields."""
        for node in self._nodes("constant", "declared"):
            if (name := self._text(node)) not in self.names and name not in self.imports:
                self.constants.add(name)
                self._part(node).symbols.append(name)
        for captures in self.matches["var"] + self.matches["field"]:
            type_name = self._text(captures["type"][0]) if "type" in captures else ""
            if "made" in captures and not re.search(r"(?:^|\.)[A-Z]\w*$", type_name):
                type_name = ""  # result of a call that is not a constructor
            for node in captures.get("var") or captures["field"]:
                part, name = self._part(node), self._text(node)
                receiver, _, member = name.partition(".")
                if part.is_function and "var" in captures and not member:
                    self.types[part.name, name] = self.types.get((part.name, name)) or type_name
                elif type_name and (not member or receiver in self.language.own):
                    self.types.setdefault((part.scope, member or name), type_name)

    def _import(self, node: Any, *, is_shown: bool) -> None:
        row = node.start_point[0]
        text = self._statement(node)
        if node.type == "mod_item":  # of Rust, whose attribute may name the file
            above = node.prev_named_sibling
            if above is not None and above.type == "attribute_item":
                text = f"{self._text(above)}\n{text}"
        if not is_shown:
            self.imported.update(range(row, node.end_point[0] + 1))
        for local, target, is_link in self.language.imports(text, self.name, self._space(self.scope[row])):
            root = target.partition(".")[0]
            if self.language.separator == "::" and root in self.imports:  # module declared with `mod`
                target = self.imports[root] + target.removeprefix(root)
            if local == "*":
                self.wholes.setdefault("*", {})[target] = None
            elif local and local != "_":
                self.imports.setdefault(local, target)
            if is_link:
                self._add(self._part(node), target, row, "import")

    def _statement(self, node: Any) -> str:
        """Return the text of an import or of a macro's arguments, or the start of a long one."""
        end = min(node.end_byte, node.start_byte + _MAX_STATEMENT)
        return self.source[node.start_byte : end].decode(errors="ignore")

    def _space(self, scope: str) -> str:
        """Return the qualified module of a scope within the file."""
        return ".".join(filter(None, (self.module, scope.replace("::", "."))))

    def _link(self) -> None:
        for node in self._nodes("base"):
            part = self._part(node)
            if (target := self._target(self._text(node), part)) and not target.startswith("."):
                self._add(part, target, node.start_point[0], "inherits")
                if part.name:  # otherwise a type without a section, as a tuple in Rust
                    self.wholes.setdefault(f"{part.name}.*", {})[target] = None
        for captures in self.matches["call"]:
            node = captures["call"][0]
            name = ".".join(map(self._text, [*captures.get("object", ()), node]))
            part = self._part(node)
            if target := self._target(name, part):
                self._add(part, target, node.start_point[0], self._edge(name, part))
        for node in self._nodes("tokens"):
            self._link_tokens(node)

    def _link_tokens(self, node: Any) -> None:
        """Add links for the calls in the arguments of a macro, such as ``println!("{}", pump::speed(1))``."""
        text = self._statement(node)
        part, row = self._part(node), node.start_point[0]
        for call in _TOKEN_CALL.finditer(text):
            if (name := call[1]) and (target := self._target(name, part)) and not target.startswith("."):
                self._add(part, target, row + text.count("\n", 0, call.start()), self._edge(name, part))

    def _edge(self, name: str, part: _Part) -> str:
        """Return ``tests`` if a test calls code outside itself (in Rust, outside its test module), else ``call``."""
        root = re.split(r"\W", name)[0]
        test_module = re.search(r"(?:^|::)(tests?)(?:::|$)", part.space)
        if test_module is not None:
            is_in_test = f"{test_module[1]}::{root}" in self.numbers
        else:
            is_in_test = root in self.names or root in self.constants or root in self.language.own
        is_test = test_module is not None or self.is_test
        return "tests" if is_test and not is_in_test else "call"

    def _add(self, part: _Part, target: str, row: int, edge: str) -> None:
        if len(target) <= MAX_TARGET:
            part.links.setdefault((target, edge), Link(target, row + 1, SYMBOL, edge))

    def _target(self, text: str, part: _Part) -> str:
        """Return the target of a name in a section, or an empty string if it cannot be determined."""
        text = re.sub(r"\s+|(?:::)?<[^<>]*>|[?!]", "", text).replace("->", ".")
        names = _SPLIT.split(text)
        if _WORD.fullmatch(names[-1]) is None:
            return ""
        is_path = "::" in text
        last = f".{names[-1]}" if len(names) > 1 else ""  # target if the type of the object is unknown
        if names[0] in ("super", "super()") and not is_path and len(names) == 2:
            return next((f"{base}{last}" for base in self.wholes.get(f"{part.scope}.*", ())), "")
        if any(_WORD.fullmatch(name) is None for name in names):
            return last
        if (names[0] in self.language.own or names[0] == part.receiver) and not (is_path and names[0] == "self"):
            if len(names) < 3 and part.scope:
                return f"/{'.'.join([self.module, part.scope, *names[1:]])}"
            type_name = self.types.get((part.scope, names[1]), "") if len(names) > 2 else ""
            return self._member_of_type(type_name, names[2:], part) or last
        if part.is_function and (part.name, names[0]) in self.types:
            return self._member_of_type(self.types[part.name, names[0]], names[1:], part) or last
        for scope in (part.scope, "") if len(names) > 1 and not is_path else ():
            if type_name := self.types.get((scope, names[0]), ""):
                return self._member_of_type(type_name, names[1:], part) or last
        return self._named(names, part, is_path=is_path) or last

    def _member_of_type(self, type_name: str, names: list[str], part: _Part) -> str:
        """Return the target of a member of an object with a type as written, or an empty string."""
        type_name = _TYPE_DECORATION.sub("", type_name)
        type_name = _OPTIONAL_TYPE.sub(r"\1", type_name)
        if not names or re.fullmatch(r"[\w$]+(?:(?:::|\.)[\w$]+)*", type_name) is None:
            return ""
        target = self._named(_SPLIT.split(type_name), part, is_path=True)
        return f"{target}.{'.'.join(names)}" if target and not target.startswith(".") else ""

    def _named(self, names: list[str], part: _Part, *, is_path: bool) -> str:
        root, dotted = names[0], ".".join(names)
        if is_path and root in ("crate", "super", "self") and self.language.separator == "::":
            return rust_target(names, self._space(part.space))
        if root in self.imports:
            return ".".join([self.imports[root], *names[1:]])
        if self.language.is_package:
            if len(names) == 1 or is_path or root[0].isupper():
                return f"/{self.module}~{part.scope}~{dotted}"
        elif root in self.names or (len(names) == 1 and ("*" in self.wholes or root in self.constants)):
            return f"/{self.module}.{dotted}"
        elif is_path and self.language.separator == "::" and root[:1].islower() and "*" not in self.wholes:
            return dotted  # path from another crate of Rust
        return ""

    def document(self, title: str) -> Document:
        """Return the document with a section for each function and class."""
        rows_of_part: list[list[int]] = [[] for _ in self.parts]
        for row, number in enumerate(self.part_of_row[: len(self.lines)]):
            rows_of_part[number].append(row)
        num_before: Counter[str] = Counter()  # number of earlier sections by name
        sections: list[Section] = []
        for part, rows in zip(self.parts, rows_of_part, strict=True):
            anchor = f"{part.name}-{num_before[part.name]}" if num_before[part.name] else part.name
            num_before[part.name] += 1
            name = re.split(r"\W", part.name)[-1]
            if self.is_test and (tested := _TEST_NAME.sub("", name)) != name:
                self._add(part, f"..{tested}", part.first, "tests")
            first = rows[0] if rows else part.first
            after_last = rows[-1] + 1 if rows else first + 1
            end = next((row for row, actual in enumerate(rows, first) if actual != row), after_last)  # first gap
            section = Section(
                part.name[:MAX_NAME],
                tuple(self._blocks(part, rows)),
                first + 1,
                end,
                (anchor[:MAX_NAME],) if part.name else (),
                symbols=tuple(part.symbols),
            )
            sections.append(section)
        imports = self.imports | {name: " ".join(targets) for name, targets in self.wholes.items()}
        return Document(self.name, title, tuple(sections), imports=imports, dropped=self.dropped)

    def _blocks(self, part: _Part, rows: list[int]) -> list[Block]:
        """Return the blocks of a section: of each run of consecutive rows, and of its signature and body apart."""
        text_rows = [row for row in rows if part.name or row not in self.imported]
        blocks: list[Block] = []
        # the difference between a row and its index is the same in a run of consecutive rows
        for _, run in groupby(enumerate(text_rows), lambda pair: (pair[1] - pair[0], pair[1] >= part.body)):
            run_rows = [row for _, row in run]
            blocks += _blocks(self.lines, run_rows[0], run_rows[-1] + 1)
        if not blocks and not part.name:  # the file consists of definitions and imports only
            names = ", ".join(part.name for part in self.parts[1:])
            text = (names or "\n".join(self.lines[row] for row in rows).strip())[:MAX_OUTLINE].rstrip()
            blocks = [Block(text, rows[0] + 1 if rows else 1, is_whole=True)] if text else []
        links: list[list[Link]] = [[] for _ in blocks]
        starts = [block.line for block in blocks]
        for link in part.links.values() if blocks else ():
            links[max(bisect_right(starts, link.line) - 1, 0)].append(link)
        return [replace(block, links=tuple(block_links)) for block, block_links in zip(blocks, links, strict=True)]
