"""Programming languages: grammars, queries for definitions and references, and parsers of import statements."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from posixpath import dirname, join, normpath
from typing import Any, NamedTuple

from graphrerank.installation.extras import optional
from graphrerank_documents.module_names import module_of

# Captures of the queries:
# - `function`, `class` and `scope` (qualifies names, but has no section), with `name`. A method optionally has its
#   class as `owner` and the name of its receiver as `self`.
# - `call` (with `object`), `base`, `import`, and `load` for an import that remains in the text.
# - `var` or `field`, with its `type`. `made` marks a type that is inferred from a constructor call.
# - `tokens` of a macro, whose calls are found by their spelling.
# - `constant` of the module, and `declared` function.
# - `lead`, a comment or decorator that belongs to the next definition, and `skip`, which is omitted from the text.
_PYTHON = """
(function_definition name: (_) @name) @function
(class_definition name: (_) @name) @class
(class_definition superclasses: (argument_list
  [(identifier) @base (attribute) @base (subscript value: [(identifier) (attribute)] @base)]))
[(decorator) (comment)] @lead
(call function: [(identifier) (attribute)] @call)
(decorator [(identifier) (attribute)] @call)
[(import_statement) (import_from_statement)] @import
(future_import_statement) @skip
(module (expression_statement (assignment left: [(identifier) @constant (pattern_list (identifier) @constant)])))
(module (if_statement (block (expression_statement (assignment left: (identifier) @constant)))))
(typed_parameter . (identifier) @var type: (_) @type)
(typed_default_parameter name: (identifier) @var type: (_) @type)
(parameters [(identifier) @var (default_parameter name: (identifier) @var)])
(lambda_parameters (identifier) @var)
(assignment left: [(identifier) (attribute)] @var type: (_) @type)
(assignment left: [(identifier) @var (attribute) @var] !type
  right: (call function: [(identifier) (attribute)] @type) @made)
(assignment left: (identifier) @var !type)
[(for_statement left: (identifier) @var) (for_in_clause left: (identifier) @var)]
(as_pattern (call function: [(identifier) (attribute)] @type) @made
  alias: (as_pattern_target (identifier) @var))
(as_pattern alias: (as_pattern_target (identifier) @var))
"""
_JAVASCRIPT = """
[(function_declaration name: (_) @name) (generator_function_declaration name: (_) @name)] @function
(export_statement "default" value: [(function_expression) (arrow_function)]) @function
(class_declaration name: (_) @name) @class
(export_statement "default" value: (class)) @class
(method_definition name: (_) @name) @function
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @function
(variable_declarator name: (identifier) @name value: (object)) @scope
(assignment_expression left: (member_expression) @name right: [(arrow_function) (function_expression)]) @function
(assignment_expression left: (member_expression) @name right: (class)) @class
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @function
[(comment) (decorator)] @lead
(call_expression function: [(identifier) (member_expression)] @call)
(new_expression constructor: [(identifier) (member_expression)] @call)
(import_statement) @import
(export_statement) @load
(call_expression function: [(identifier) (import)] @_load arguments: (arguments . (string))
  (#any-of? @_load "require" "import")) @load
((variable_declarator) @load (#match? @load "^[^=]*= *(await )?(require|import)[(]"))
((assignment_expression) @load (#match? @load "^(module[.])?exports[.A-Za-z0-9_$]* *= *([A-Za-z0-9_$]+$|require[(])"))
(program (_ (variable_declarator name: (identifier) @constant)))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @constant))))
(variable_declarator name: (identifier) @var value: (new_expression constructor: (identifier) @type))
(variable_declarator name: (identifier) @var)
(assignment_expression left: (member_expression object: (this)) @var right: (new_expression constructor: (identifier)
  @type))
"""
_JSX = """
(jsx_opening_element name: [(identifier) (member_expression)] @call)
(jsx_self_closing_element name: [(identifier) (member_expression)] @call)
"""
_JAVASCRIPT_ONLY = """
(variable_declarator name: (identifier) @name value: (class)) @class
(class_heritage [(identifier) (member_expression)] @base)
(formal_parameters (identifier) @var)
(field_definition property: (_) @name value: [(arrow_function) (function_expression)]) @function
"""
_TYPESCRIPT = """
[(abstract_class_declaration name: (_) @name) (interface_declaration name: (_) @name)
 (enum_declaration name: (_) @name) (type_alias_declaration name: (_) @name)] @class
(internal_module name: (_) @name) @scope
(function_signature name: (_) @name) @function
(public_field_definition name: (_) @name value: [(arrow_function) (function_expression)]) @function
(extends_clause value: (_) @base)
(implements_clause [(type_identifier) @base (generic_type name: (type_identifier) @base)])
(extends_type_clause type: [(type_identifier) @base (generic_type name: (type_identifier) @base)])
(required_parameter pattern: (identifier) @var type: (type_annotation (_) @type))
(required_parameter pattern: (identifier) @var)
(public_field_definition name: (property_identifier) @var type: (type_annotation (_) @type))
(required_parameter (accessibility_modifier) pattern: (identifier) @field type: (type_annotation (_) @type))
"""
_GO = """
(function_declaration name: (_) @name) @function
(method_declaration receiver: (parameter_list (parameter_declaration name: (identifier)? @self type: [
  (type_identifier) @owner (pointer_type [(type_identifier) @owner (generic_type type: (type_identifier) @owner)])
  (generic_type type: (type_identifier) @owner)])) name: (_) @name) @function
(type_declaration (type_spec name: (_) @name)) @class
(comment) @lead
(call_expression function: [(identifier) (selector_expression)] @call)
(composite_literal type: [(type_identifier) (qualified_type)] @call)
(field_declaration !name type: [(type_identifier) (qualified_type)] @base)
(import_spec) @import
(import_declaration) @skip
(source_file [(const_declaration (const_spec name: (_) @constant)) (var_declaration (var_spec name: (_) @constant))])
(source_file (var_declaration (var_spec_list (var_spec name: (_) @constant))))
(parameter_declaration name: (identifier) @var type: (_) @type)
(field_declaration name: (field_identifier) @field type: (_) @type)
(var_spec name: (identifier) @var type: (_) @type)
(short_var_declaration left: (expression_list . (identifier) @var .) right: (expression_list . [
  (composite_literal type: (_) @type) (unary_expression operand: (composite_literal type: (_) @type))] .))
(short_var_declaration left: (expression_list (identifier) @var))
"""
_JAVA = """
[(method_declaration name: (_) @name) (constructor_declaration name: (_) @name)] @function
[(class_declaration name: (_) @name) (interface_declaration name: (_) @name) (enum_declaration name: (_) @name)
 (record_declaration name: (_) @name) (annotation_type_declaration name: (_) @name)] @class
[(line_comment) (block_comment)] @lead
(method_invocation object: (_)? @object name: (_) @call)
(object_creation_expression type: [(type_identifier) @call (scoped_type_identifier) @call
  (generic_type [(type_identifier) (scoped_type_identifier)] @call)])
(superclass [(type_identifier) @base (generic_type (type_identifier) @base)])
(type_list [(type_identifier) @base (generic_type (type_identifier) @base)])
(import_declaration) @import
(field_declaration type: (_) @type declarator: (variable_declarator name: (_) @field))
(formal_parameter type: (_) @type name: (_) @var)
(local_variable_declaration type: (_) @type declarator: (variable_declarator name: (_) @var))
(enhanced_for_statement type: (_) @type name: (_) @var)
"""
_RUST = """
[(function_item name: (_) @name) (function_signature_item name: (_) @name) (macro_definition name: (_) @name)] @function
[(struct_item name: (_) @name) (enum_item name: (_) @name) (trait_item name: (_) @name) (union_item name: (_) @name)]
  @class
(impl_item type: [(type_identifier) @name (generic_type type: (type_identifier) @name)]) @class
(impl_item trait: [(type_identifier) @base (scoped_type_identifier) @base (generic_type type: (_) @base)])
(trait_item bounds: (trait_bounds [(type_identifier) (scoped_type_identifier)] @base))
(mod_item name: (_) @name body: (_)) @scope
[(line_comment) (block_comment) (attribute_item)] @lead
(call_expression function: [(identifier) (scoped_identifier) (field_expression) (generic_function)] @call)
(struct_expression name: [(type_identifier) (scoped_type_identifier)] @call)
(macro_invocation macro: [(identifier) (scoped_identifier)] @call)
(macro_invocation (token_tree) @tokens)
[(use_declaration) (extern_crate_declaration)] @import
(mod_item !body) @load
(source_file [(const_item name: (_) @constant) (static_item name: (_) @constant) (type_item name: (_) @constant)])
(parameter pattern: (identifier) @var type: (_) @type)
(field_declaration name: (_) @field type: (_) @type)
(let_declaration pattern: (identifier) @var type: (_) @type)
(let_declaration pattern: (identifier) @var value: (call_expression function: (scoped_identifier path: (_) @type name:
  (identifier) @_new (#match? @_new "^(new|default|with_.*|from_.*)$"))))
(let_declaration pattern: [(identifier) @var (mut_pattern (identifier) @var)])
"""
_C = """
(function_definition declarator: [(function_declarator declarator: (_) @name)
  (pointer_declarator declarator: (function_declarator declarator: (_) @name))
  (pointer_declarator declarator: (pointer_declarator declarator: (function_declarator declarator: (_) @name)))])
  @function
[(struct_specifier name: (_) @name body: (_)) (union_specifier name: (_) @name body: (_))
 (enum_specifier name: (_) @name body: (_))] @class
(type_definition type: [(struct_specifier body: (_)) (union_specifier body: (_)) (enum_specifier body: (_))]
  declarator: (type_identifier) @name) @class
(comment) @lead
(call_expression function: [(identifier) (field_expression)] @call)
(preproc_include path: (_)) @import
[(preproc_def name: (_) @constant) (preproc_function_def name: (_) @constant)]
(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @constant)))
(declaration declarator: [(function_declarator declarator: (identifier) @declared)
  (pointer_declarator declarator: (function_declarator declarator: (identifier) @declared))])
(parameter_declaration type: (_) @type
  declarator: [(identifier) @var (pointer_declarator declarator: (identifier) @var)])
(declaration type: (_) @type declarator: [(identifier) @var (pointer_declarator declarator: (identifier) @var)
  (init_declarator declarator: [(identifier) @var (pointer_declarator declarator: (identifier) @var)])])
(field_declaration type: (_) @type declarator: [(field_identifier) @field
  (pointer_declarator declarator: (field_identifier) @field)])
"""
_CPP = """
(function_definition declarator: (reference_declarator (function_declarator declarator: (_) @name))) @function
(class_specifier name: (_) @name body: (_)) @class
(namespace_definition name: (_) @name) @scope
(template_declaration "template" @lead)
(base_class_clause [(type_identifier) @base (qualified_identifier) @base (template_type name: (_) @base)])
(call_expression function: [(qualified_identifier) (template_function name: (_))] @call)
(new_expression type: [(type_identifier) (qualified_identifier)] @call)
(parameter_declaration type: (_) @type declarator: (reference_declarator (identifier) @var))
"""


class Imported(NamedTuple):
    """Name that an import statement binds.

    Attributes:
        local: Name in the file, ``*`` for all names of a module, or empty if no name is bound.
        target: Target, as in :class:`~graphrerank_documents.symbols.SymbolIndex`.
        is_link: Whether the import becomes a link.
    """

    local: str
    target: str
    is_link: bool


class _Grammar(NamedTuple):
    """How to build a :class:`CodeLanguage`.

    Attributes:
        package: Suffix of the package ``tree_sitter_PACKAGE``.
        dialect: Suffix of the package's function ``languageDIALECT``.
        query: Query of tree-sitter.
        options: Other arguments of :class:`CodeLanguage`.
    """

    package: str
    dialect: str
    query: str
    options: dict[str, Any]


@dataclass(frozen=True)
class CodeLanguage:
    """Grammar of a language, its query and its rules for names.

    Attributes:
        parser: Parser of tree-sitter.
        query: Query of tree-sitter for definitions and references.
        imports: Function that parses an import statement, given its text, the path of the file and the module.
        separator: Separator of qualified names.
        own: Names of the receiver in a method.
        is_package: Whether names in other files of the same folder, or in all files, are visible without an import.
    """

    parser: Any
    query: Any
    imports: Callable[[str, str, str], Iterator[Imported]]
    separator: str = "."
    own: tuple[str, ...] = ("this",)
    is_package: bool = False


def code_language(name: str, text: str) -> CodeLanguage:
    """Return the language of a file.

    Args:
        name: Path of the file.
        text: Text of the file, which distinguishes C++ from C in headers (``.h``).
    """
    suffix = name.rpartition(".")[2].lower()
    if suffix == "h" and re.search(
        r"^\s*(?:class\s+\w+\s*[:{\n]|namespace\b|template\s*<|public:)", text, re.MULTILINE
    ):
        suffix = "hpp"
    return _language(suffix)


@cache
def _language(suffix: str) -> CodeLanguage:
    script, typed = {"imports": _javascript_imports}, _JAVASCRIPT + _TYPESCRIPT
    grammars = {  # by file suffixes
        "py pyi": _Grammar("python", "", _PYTHON, {"imports": _python_imports, "own": ("self", "cls")}),
        "js jsx mjs cjs": _Grammar("javascript", "", _JAVASCRIPT + _JSX + _JAVASCRIPT_ONLY, script),
        "ts mts cts": _Grammar("typescript", "_typescript", typed, script),
        "tsx": _Grammar("typescript", "_tsx", typed + _JSX, script),
        "go": _Grammar("go", "", _GO, {"imports": _go_imports, "own": (), "is_package": True}),
        "java": _Grammar("java", "", _JAVA, {"imports": _java_imports, "is_package": True}),
        "rs": _Grammar("rust", "", _RUST, {"imports": _rust_imports, "separator": "::", "own": ("self", "Self")}),
        "c h": _Grammar("c", "", _C, {"imports": _c_imports, "is_package": True}),
    }
    cpp = _Grammar("cpp", "", _C + _CPP, {"imports": _c_imports, "separator": "::", "is_package": True})
    grammar = next((each for suffixes, each in grammars.items() if suffix in suffixes.split()), cpp)
    package = optional(f"tree_sitter_{grammar.package}", "code")
    tree_sitter = optional("tree_sitter", "code")
    language = tree_sitter.Language(getattr(package, f"language{grammar.dialect}")())
    return CodeLanguage(tree_sitter.Parser(language), tree_sitter.Query(language, grammar.query), **grammar.options)


def _python_imports(text: str, name: str, module: str) -> Iterator[Imported]:
    text = re.sub(r"#[^\n]*|[\\()\n]", " ", text)
    if (statement := re.match(r"(?:from\s+([.\s]*)([\w.]*)\s+)?import\s+(.*)", text)) is None:
        return
    dots_as_written, base, listed = statement.groups()
    aliases = []  # names with their aliases, or with an empty text
    for entry in listed.split(","):
        if entry.strip():
            imported, _, alias = entry.partition(" as ")
            aliases.append((imported.strip(), alias.strip()))
    if dots_as_written is None:  # import a.b
        for path, alias in aliases:
            root = path.partition(".")[0]
            if alias:
                yield Imported(alias, path, True)
            else:
                yield Imported(root, root, False)
                yield Imported("", path, True)
        return
    num_dots = dots_as_written.count(".")
    folders = name.split("/")[:-1]
    if num_dots > len(folders) + 1:  # outside the top folder
        return
    if num_dots:
        base = "/" + ".".join([*folders[: len(folders) + 1 - num_dots], base])
    for imported, alias in aliases:
        if imported == "*":
            yield Imported("*", base, True)
        else:
            yield Imported(alias or imported, f"{base}.{imported}", True)


_LOADED = re.compile(
    r"(?:(module\.exports|[\w$]+|\{[^{}]*\})\s*=\s*(?:await\s+)?)?"  # what is assigned
    r"\b(?:require|import)\s*\(\s*['\"]([^'\"\n]+)['\"]\s*\)"  # module
    r"(?:\.([\w$]+))?"  # name of the module
)
# names and module of an `import` or `export`
_FROM = re.compile(r"(?:import|export)\b(?:\s+type\b(?!\s*from))?([\w$\s*,{}]*?)\bfrom\s*['\"]([^'\"\n]+)")
_DEFAULT = re.compile(  # name of the default export
    r"(?:export\s+default\s+(?:abstract\s+)?(?:async\s+)?(?:class\b|function\b\s*\*?)?|module\.exports\s*=)\s*"
    r"(?!(?:extends|class|function|async|abstract)\b)([\w$]+)"
)


def _javascript_imports(text: str, name: str, module: str) -> Iterator[Imported]:
    text = re.sub(r"/\*.*?\*/|//[^\n'\"]*$", " ", text, flags=re.DOTALL | re.MULTILINE)
    if (found := _LOADED.search(text)) is not None:
        binding, target, member = found[1] or "", _script(found[2], name), found[3] or "default"
        yield Imported("", f"{target}#", True)
        if binding == "module.exports":
            yield Imported("*", f"{target}#", False)
            yield Imported("default", f"{target}#default", False)
        elif binding.startswith("{"):
            for local, alias in re.findall(r"([\w$]+)(?:\s*:\s*([\w$]+))?", binding):
                yield Imported(alias or local, f"{target}#{local}", True)
        elif binding:
            yield Imported(binding, f"{target}#{member}", True)
    elif (found := _FROM.match(text)) is not None:
        target, (outside, _, inside) = _script(found[2], name), found[1].partition("{")
        yield Imported("", f"{target}#", True)
        for local, alias in re.findall(r"(?<![\w$])([\w$]+)(?:\s+as\s+([\w$]+))?\s*(?=[,}])", inside):
            yield Imported(alias or local, f"{target}#{local}", True)
        if (star := re.search(r"\*(?:\s*as\s+([\w$]+))?", outside)) is not None:
            yield Imported(star[1] or "*", f"{target}#", False)
        if (default := re.match(r"\s*([\w$]+)", outside)) is not None:
            yield Imported(default[1], f"{target}#default", True)
    elif (found := re.match(r"import\s*['\"]([^'\"\n]+)", text)) is not None:
        yield Imported("", f"{_script(found[1], name)}#", True)
    elif (found := _DEFAULT.match(text)) is not None:
        yield Imported("default", f"/{module}.{found[1]}", False)
    elif (found := re.match(r"export\s*\{([^}]*)\}", text)) is not None:
        for local, alias in re.findall(r"([\w$]+)\s+as\s+([\w$]+)", found[1]):
            yield Imported(alias, f"/{module}.{local}", False)


def _script(path: str, name: str) -> str:
    """Return a module specifier, where a relative one becomes a path from the top folder that begins with ``/``."""
    if path.startswith("."):
        path = normpath(join(dirname(name), path))
        return path if path.startswith("..") else f"/{path.removeprefix('.')}"
    return path.lstrip("/")


def _go_imports(text: str, name: str, module: str) -> Iterator[Imported]:
    if (found := re.match(r'([\w.]*)\s*["`]([^"`\n]+)', text)) is not None:
        parts = found[2].split("/")
        last = parts[-2] if len(parts) > 1 and re.fullmatch(r"v\d+", parts[-1]) else parts[-1]
        local = {"": re.sub(r"^go-|\.v\d+$", "", last), "_": "", ".": "*"}.get(found[1], found[1])
        yield Imported(local, found[2], True)


def _java_imports(text: str, name: str, module: str) -> Iterator[Imported]:
    if (found := re.match(r"import\s+(?:static\s+)?([\w.]+?)(\.\*)?\s*;", text)) is not None:
        yield Imported(("*" if found[2] else found[1].rpartition(".")[2]), found[1], not found[2])


def _rust_imports(text: str, name: str, module: str) -> Iterator[Imported]:
    if (found := re.search(r"\bmod\s+(?:r#)?(\w+)\s*;", text)) is not None:
        file = re.search(r'\bpath\s*=\s*"([^"\n]+)"', text[: found.start()])
        target = module_of(normpath(join(dirname(name), file[1]))) if file else f"{module}.{found[1]}"
        yield Imported(found[1], f"/{target}", True)
        return
    if (found := re.match(r"(?:pub(?:\([^()]*\))?\s+)?extern\s+crate\s+(\w+)(?:\s+as\s+(\w+))?", text)) is not None:
        yield Imported(found[2] or found[1], found[1], True)
        return
    for path, alias in _uses(re.sub(r"//[^\n]*|\br#", " ", text)):
        target = rust_target(path, module)
        last = path[-1]
        if last == "*":
            yield Imported("*", target.removesuffix(".*"), True)
        else:
            names = [*path[:-1]] if last == "self" else path  # `use a::{self}` binds the name `a`
            yield Imported(alias or (names[-1] if names else ""), target.removesuffix(".self"), True)


def rust_target(path: list[str], module: str) -> str:
    """Return the target of a path in Rust.

    Args:
        path: Components of the path.
        module: Qualified name of the module that contains the path.

    Returns:
        Target with ``self`` and ``super`` resolved. Paths from ``crate`` are resolved later by the symbol index.
    """
    modules = module.split(".")
    num_up = next((index for index, name in enumerate(path) if name != "super"), len(path))
    if num_up == 0 and path[0] != "self":
        return ".".join(path)
    outer = modules[: max(len(modules) - num_up, 0)]
    names = path[max(num_up, 1) :]
    return "/" + ".".join([*outer, *names])


def _uses(text: str) -> Iterator[tuple[list[str], str]]:
    """Yield each path of a `use` declaration with its alias. Braces are expanded."""
    prefix: list[str] = []
    starts, alias = [0], ""  # length of the prefix at each enclosing brace
    for word in re.findall(r"\bas\s+\w+|\w+|\*|[{},;]", text.partition("use")[2]):
        if word == "{":
            if len(prefix) > 50:
                return
            starts.append(len(prefix))
        elif word in ",};":
            if len(prefix) > starts[-1]:
                yield list(prefix), alias
            if word == "}" and len(starts) > 1:
                starts.pop()
            alias = ""
            del prefix[starts[-1] :]
        elif len(words := word.split()) > 1:
            alias = words[1]
        else:
            prefix.append(word)


def _c_imports(text: str, name: str, module: str) -> Iterator[Imported]:
    if (found := re.search(r'(["<])([^">\n]+)[">]', text)) is not None and (found[1] == '"' or "/" in found[2]):
        path = found[2]
        yield Imported("", "/" + normpath(join(dirname(name), path)) if path.startswith("..") else path, True)
