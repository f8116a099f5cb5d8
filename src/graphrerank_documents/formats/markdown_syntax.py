"""Markdown parser: CommonMark with tables and extensions of GitHub, Hugo, Jekyll, MkDocs, MyST and Obsidian."""

import re
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.deflist import deflist_plugin

_PIECE = re.compile(r".{1,5000}(?:(?<=\s)|\Z)|.{5000}", re.DOTALL)  # parsing unclosed brackets takes quadratic time
_MAX_NESTING = 60
# first line of an indented block of MkDocs: an admonition, a collapsible block or a tab
_INDENTED = re.compile(r"(?:!!!|\?\?\?\+?|===[!+]?)(?= *\S)[\w \t+-]*(?:\"(?P<title>[^\"]*)\")?[ \t]*")
# first line of a container, `:::note Title`, or of a directive with attributes, `:::{note} Title`
_COLONS = re.compile(r"(?P<fence>:{3,})[ \t]*(?:\{(?P<attrs>[^{}]*)\}|(?P<kind>[\w.-]+))?[ \t]*(?P<title>.*)")
# start tag of code in Hugo or Jekyll; a tag that ends with `/` has no end tag
_CODE_START = re.compile(r"\{(?:%-?|\{[<%])\s*([\w-]{0,50}(?:code|highlight)[\w-]{0,50}).*[^/][%>]\}.*")
# wiki link: page, which may contain single closing brackets, and label
_WIKI = re.compile(r"\[\[((?:[^\[\]|\n]|\](?=[^\[\]|\n]{1,200}\]\])){1,500})(?:\|([^\[\]\n]{0,500}))?\]\](?![(\[])")
# role of MyST: name, backticks and content
_ROLE = re.compile(r"\{([a-z][\w:.+-]{0,50})\}(`+)([^`]{1,1000})\2(?!`)")
#: Pattern of fenced code (group ``fence``) and of inline code (group ``span``), with the flags MULTILINE and DOTALL.
FENCED = (
    r"^[ \t]*(?P<fence>`{3,}|~{3,})[^\n]*\n(?:.*?^[ \t]*(?P=fence)[`~]*[ \t]*$|.*)"
    r"|(?P<span>`{1,2})[^`\n]{1,300}(?P=span)"
)
#: Pattern of attributes in braces, which start with a class, an id or a key with a value.
ATTRIBUTES = r"\{:?[ \t]*(?:[#.][^{}\n]{0,300}|[\w-]{1,50}=[^{}\n]{0,300})\}"
_DIALECTS = re.compile(  # the first alternative that matches decides
    r"(?P<code>(`+)[^`]{1,300}\2)"  # inline code, which is unchanged
    # link in Hugo: {{< ref "page.md" >}} or {{< relref path="page.md" >}}
    r"|\{\{[<%]\s*(?:rel)?ref\s+(?:path\s*=\s*)?(?P<ref>\"[^\"\n]{0,500}\"|[^\s\"}]{1,500}+)[^}\n]{0,200}[%>]\}\}"
    # links in Jekyll: {% link page.md %}, {% post_url 2024-01-01-title %} and {{ "/page" | relative_url }}
    r"|\{%-?\s*link\s+(?P<link>[^%\n]{1,500}?)\s*-?%\}"
    r"|\{%-?\s*post_url\s+(?P<post>[^%\n]{1,500}?)\s*-?%\}"
    r"|\{\{\s*(?:[\"'](?P<url>[^\"'\n]{0,500})[\"']\s*\|\s*(?:relative|absolute)_url|site\.(?:base)?url)[^}\n]{0,100}\}\}"
    r"|(?P<tag>\{\{[<%][^}]{0,500}[%>]\}\}|\{%[^%\n]{0,500}%\})"  # other tags of Hugo and Jekyll
    r"|\{[!*][^{}\n]{0,500}[!*]\}"  # inclusion of a file in MkDocs
    r"|\[\^[^\]\s]{1,50}\](?!\():?"  # mark of a footnote
    r"|\{\{\s*(?P<variable>[\w.]{1,100})\s*\}\}"  # variable, such as {{ version }}
    # attributes behind an element, and on a line without other text
    rf"|(?<=[\])`*_])(?P<attributes>{ATTRIBUTES})"
    rf"|(?:^|\n)(?P<line>{ATTRIBUTES})(?=\n|$)"
)
_TAG_TITLE = re.compile(r"\b(?:text|title|label|header|name|caption)\s*=\s*\"([^\"\[\]]{1,300})\"")
_TAG_LINK = re.compile(r"\b(?:link|href)\s*=\s*\"([^\"<>\n]{1,500})\"")
_ALERT = re.compile(r"\[![\w-]{1,50}\][+-]?[ \t]*([^\n]*)\n?")  # first line of an alert or callout
_SYNTAX = re.compile(r"[\\`*_~\[\]!<&\n{]")  # characters of inline markup
_BREAK = re.compile(r"\s")


@lru_cache(maxsize=2)
def markdown_parser(is_mdx: bool) -> MarkdownIt:
    """Return the Markdown parser.

    In addition to the tokens of CommonMark, there are tokens for wiki links (``wiki``), roles (``role``) and containers
    (``container_open``). Directives are represented as fences.

    Args:
        is_mdx: Whether to parse MDX, which has no indented code.
    """
    md = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).enable(["table", "strikethrough"]).use(deflist_plugin)
    md.disable(["text_join", *(["code"] if is_mdx else [])])
    md.validateLink = lambda url: True  # type: ignore[method-assign]
    md.normalizeLink = lambda url: url  # type: ignore[method-assign]  # targets stay as written
    starts: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    md.block.ruler.before("fence", "indented", _indented, starts)
    md.block.ruler.before("fence", "colons", _colons, starts)
    md.block.ruler.before("fence", "code_tags", _code_tags, starts)
    md.inline.ruler.before("link", "wiki", _wiki)
    md.inline.ruler.before("backticks", "role", _role)
    md.core.ruler.at("inline", _inline)
    return md


def written_target(text: str) -> str:
    """Replace template syntax by Markdown, in particular links in Hugo and Jekyll.

    Args:
        text: Markdown text.

    Returns:
        Text in which links have plain targets and other template tags are removed.
    """
    return _DIALECTS.sub(_replacement, text)


def _replacement(found: re.Match[str]) -> str:
    if found["code"]:
        return found["code"]
    if found["tag"]:
        title, link = _TAG_TITLE.search(found["tag"]), _TAG_LINK.search(found["tag"])
        if title is None:
            return ""
        return title[1] if link is None else f"[{title[1]}](<{link[1]}>)"
    if found["variable"]:
        return f"{{{{{found['variable']}}}}}"  # a space would end the target of a link
    if attributes := found["attributes"] or found["line"]:
        return "".join(f'<a id="{name}"></a>' for name in re.findall(r"[\s{:]#([^\s{}\"<>]+)", attributes))
    if found["link"]:
        target = f"/{found['link']}"
    elif found["post"]:
        target = f"/_posts/{found['post']}"
    else:
        target = found["ref"] or found["url"] or ""
    return _BREAK.sub("%20", target.strip('"').strip())


def _inline(state: StateCore) -> None:
    """Parse the inline markup of paragraphs, headings and cells. Long texts are parsed in pieces."""
    for token in (token for token in state.tokens if token.type == "inline"):
        text = token.content
        if "{" in text or "[^" in text:
            text = written_target(text)
        if alert := _ALERT.match(text):
            title = f"{alert[1]}  \n" if alert[1] else ""
            text = title + text[alert.end() :]
        token.children = [] if _SYNTAX.search(text) else [Token("text", "", 0, content=text)]
        for piece in _PIECE.findall(text) if not token.children else ():
            children: list[Token] = []  # the parser visits all tokens of its list after each piece
            state.md.inline.parse(piece, state.md, state.env, children)
            token.children += children


def _wiki(state: StateInline, silent: bool) -> bool:
    """Parse a wiki link, `[[page|label]]`, or a transclusion, `![[page]]`."""
    is_shown = state.src.startswith("![[", state.pos)
    found = _WIKI.match(state.src, state.pos + is_shown)
    if not found or normalizeReference(found[0][2:-2]) in state.env["references"]:
        return False
    if not silent and found[1].strip("_").lower() != "toc":
        token = state.push("wiki", "", 0)
        token.content, token.info = found[1].strip(), (found[2] or found[1]).strip()
    state.pos = found.end()
    return True


def _role(state: StateInline, silent: bool) -> bool:
    """Parse a MyST role, such as `{ref}`text <label>``."""
    found = _ROLE.match(state.src, state.pos)
    if not found:
        return False
    if not silent:
        token = state.push("role", "", 0)
        token.info, token.content = found[1], found[3].strip()
    state.pos = found.end()
    return True


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _matched(state: StateBlock, line: int, pattern: re.Pattern[str]) -> re.Match[str] | None:
    return None if state.is_code_block(line) else pattern.fullmatch(_line(state, line))


def _push_title(state: StateBlock, line: int, title: str) -> None:
    if title:
        state.push("paragraph_open", "p", 1).map = [line, line + 1]
        token = state.push("inline", "", 0)
        token.content, token.map, token.children = title, [line, line + 1], []
        state.push("paragraph_close", "p", -1)


def _indented(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse an MkDocs block with indented content: `!!! note "Title"`, `??? note` or `=== "Tab"`."""
    found = _matched(state, start, _INDENTED)
    if not found or silent:
        return bool(found)
    after = start + 1
    while after < end and (state.isEmpty(after) or state.sCount[after] >= state.blkIndent + 4):
        after += 1
    state.push("container_open", "div", 1).map = [start, after]
    _push_title(state, start, found["title"] or "")
    before = (state.lineMax, state.parentType)
    state.lineMax, state.parentType = after, "container"
    state.blkIndent += 4
    state.md.block.tokenize(state, start + 1, after)
    state.blkIndent -= 4
    state.lineMax, state.parentType = before
    state.push("container_close", "div", -1)
    state.line = after
    return True


def _colons(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse `:::note Title` of Docusaurus and VuePress as a title, and a MyST directive with colons as a fence."""
    found = _matched(state, start, _COLONS)
    if not found or silent:
        return bool(found)
    if found["attrs"] and found["attrs"][0].isalpha():
        info = _line(state, start).lstrip(": \t")
        if _code_until(state, start, end, re.compile(rf"{found['fence']}:*\s*"), info):
            return True
    title = found["title"].strip()
    if "." in (symbol := found["kind"] or ""):  # symbol documented by mkdocstrings
        title = f'<a id="{symbol}"></a>{{obj}}`{symbol}`'
    _push_title(state, start, title[1:-1] if title.startswith("[") and title.endswith("]") else title)
    state.line = start + 1
    return True


def _code_tags(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse `{{< highlight >}}` and `{{< code-toggle >}}` of Hugo and `{% highlight %}` of Jekyll as fences."""
    found = _matched(state, start, _CODE_START)
    if found and start + 1 < end and _line(state, start + 1).startswith(("```", "~~~")):
        return False
    if not found or silent:
        return bool(found)
    return _code_until(state, start, end, re.compile(rf".*\{{(?:%-?|\{{[<%])\s*(?:/\s*|end){found[1]}\b.*"), "")


def _code_until(state: StateBlock, start: int, end: int, last: re.Pattern[str], info: str) -> bool:
    """Push a fence that ends before the next line that matches a pattern. Return False if there is no such line."""
    after = start + 1
    while after < end and not last.fullmatch(_line(state, after)):
        after += 1
    if after >= end:
        return False
    token = state.push("fence", "code", 0)
    token.info, token.map = info, [start, after + 1]
    token.content = state.getLines(start + 1, after, state.blkIndent, True)
    state.line = after + 1
    return True
