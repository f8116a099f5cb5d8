"""Small folders as users have them: code of each language with its manifests, and sites and notes of each tool.

Each case has the files of a folder and the edges between its files, which were worked out by hand. No other edge may
exist.
"""

import json
from pathlib import Path

import pytest

from graphrerank_documents.index_folder import index_folder

CASES: dict[str, tuple[dict[str, str], set[tuple[str, str]]]] = {
    "py_namespace_src": (
        {
            "pyproject.toml": ('[project]\nname="acme-pump"\n[tool.setuptools.packages.find]\nwhere=["src"]\n'),
            "src/acme/pump/core.py": ("def run():\n    return 1\n"),
            "src/acme/pump/cli.py": (
                "from acme.pump.core import run\n"
                "from .core import run as r\n"
                "from acme.pump import core\n"
                "\n"
                "def main():\n"
                "    run()\n"
            ),
            "src/acme/tank/__init__.py": ("from acme.pump import core\nX=core.run()\n"),
        },
        {
            ("src/acme/pump/cli.py", "src/acme/pump/core.py"),
            ("src/acme/tank/__init__.py", "src/acme/pump/core.py"),
        },
    ),
    "py_two_namespaces": (
        {
            "pkg-a/pyproject.toml": ('[project]\nname="acme-a"\n'),
            "pkg-a/src/acme/a.py": "def fa(): return 1\n",
            "pkg-b/pyproject.toml": ('[project]\nname="acme-b"\n'),
            "pkg-b/src/acme/b.py": ("from acme.a import fa\n\ndef fb():\n    return fa()\n"),
        },
        {
            ("pkg-b/src/acme/b.py", "pkg-a/src/acme/a.py"),
        },
    ),
    "py_relative_dots": (
        {
            "p/__init__.py": "",
            "p/a/__init__.py": "",
            "p/a/x.py": ("from ..b import y\nfrom ... import z\nfrom .. import b\n\ndef f():\n    return y.go()\n"),
            "p/b/__init__.py": "B=1\n",
            "p/b/y.py": "def go(): return 1\n",
        },
        {
            ("p/a/x.py", "p/b/__init__.py"),
            ("p/a/x.py", "p/b/y.py"),
        },
    ),
    "ts_paths_extends": (
        {
            "tsconfig.base.json": (
                '{"compilerOptions":{"baseUrl":".","paths":{"@lib/*":["libs/*/src"],"@app/*":["apps/web/src/*"]}}}'
            ),
            "apps/web/tsconfig.json": ('{"extends":"../../tsconfig.base.json", // c\n}'),
            "apps/web/src/main.ts": (
                "import {tank} from '@lib/tank';\n"
                "import {u} from '@app/util';\n"
                "import type {V} from '../src/v';\n"
                "export const x = tank(u);\n"
            ),
            "apps/web/src/util.ts": "export const u = 1;\n",
            "apps/web/src/v.d.ts": "export interface V {a: number}\n",
            "libs/tank/src/index.ts": "export function tank(n: number) { return n; }\n",
        },
        {
            ("apps/web/src/main.ts", "apps/web/src/util.ts"),
            ("apps/web/src/main.ts", "apps/web/src/v.d.ts"),
            ("apps/web/src/main.ts", "libs/tank/src/index.ts"),
        },
    ),
    "ts_extends_array_and_package": (
        {
            "package.json": '{"workspaces":["packages/*"]}',
            "packages/config/package.json": '{"name":"@o/config"}',
            "packages/config/tsconfig.json": '{"compilerOptions":{"strict":true}}',
            "packages/app/tsconfig.json": '{"extends":["@o/config/tsconfig.json","./paths.json"]}',
            "packages/app/package.json": '{"name":"@o/app"}',
            "packages/app/paths.json": '{"compilerOptions":{"paths":{"~/*":["./src/*"]}}}',
            "packages/app/src/a.ts": ("import {b} from '~/b.js';\nimport {c} from '@o/lib/c';\nb(c);\n"),
            "packages/app/src/b.ts": "export const b = (x) => x;\n",
            "packages/lib/package.json": '{"name":"@o/lib","exports":{"./c":"./src/c.ts"}}',
            "packages/lib/src/c.ts": "export const c = 1;\n",
        },
        {
            ("packages/app/src/a.ts", "packages/app/src/b.ts"),
            ("packages/app/src/a.ts", "packages/lib/src/c.ts"),
        },
    ),
    "go_work": (
        {
            "go.work": ("go 1.22\nuse (\n\t./app\n\t./lib\n)\n"),
            "app/go.mod": "module example.com/app\n",
            "app/main.go": (
                "package main\n"
                "import (\n"
                ' l "example.com/lib/pump"\n'
                ' "example.com/app/internal/x"\n'
                ")\n"
                "func main() { l.Run(); x.Y() }\n"
            ),
            "app/internal/x/x.go": ("package x\nfunc Y() {}\n"),
            "lib/go.mod": "module example.com/lib\n",
            "lib/pump/pump.go": ("package pump\n// Run runs.\nfunc Run() {}\n"),
        },
        {
            ("app/main.go", "app/internal/x/x.go"),
            ("app/main.go", "lib/pump/pump.go"),
        },
    ),
    "rust_renamed": (
        {
            "Cargo.toml": (
                "[workspace]\n"
                'members=["crates/*"]\n'
                "[workspace.dependencies]\n"
                'pump = {package="acme-pump", path="crates/pump"}\n'
            ),
            "crates/pump/Cargo.toml": ('[package]\nname="acme-pump"\n[lib]\nname="acme_pump_core"\n'),
            "crates/pump/src/lib.rs": ("pub mod valve;\npub fn run() {}\n"),
            "crates/pump/src/valve.rs": "pub fn close() {}\n",
            "crates/app/Cargo.toml": ('[package]\nname="app"\n[dependencies]\npump = {workspace=true}\n'),
            "crates/app/src/main.rs": ("use pump::valve::close;\nfn main() { close(); pump::run(); }\n"),
        },
        {
            ("crates/app/src/main.rs", "crates/pump/src/lib.rs"),
            ("crates/app/src/main.rs", "crates/pump/src/valve.rs"),
            ("crates/pump/src/lib.rs", "crates/pump/src/valve.rs"),
        },
    ),
    "java_pkgs": (
        {
            "src/main/java/org/acme/Pump.java": (
                "package org.acme;\n"
                "import org.acme.util.Valve;\n"
                "import static org.acme.util.Tools.max;\n"
                "public class Pump extends Base { void run() { new Valve().close(); max(1); } }\n"
            ),
            "src/main/java/org/acme/Base.java": ("package org.acme;\nclass Base {}\n"),
            "src/main/java/org/acme/util/Valve.java": (
                "package org.acme.util;\npublic class Valve { public void close() {} }\n"
            ),
            "src/main/java/org/acme/util/Tools.java": (
                "package org.acme.util;\npublic class Tools { public static int max(int a) { return a; } }\n"
            ),
        },
        {
            ("src/main/java/org/acme/Pump.java", "src/main/java/org/acme/Base.java"),
            ("src/main/java/org/acme/Pump.java", "src/main/java/org/acme/util/Tools.java"),
            ("src/main/java/org/acme/Pump.java", "src/main/java/org/acme/util/Valve.java"),
        },
    ),
    "kotlin": (
        {
            "src/main/kotlin/org/acme/Pump.kt": (
                "package org.acme\n"
                "\n"
                "import org.acme.util.Valve\n"
                "import java.util.List\n"
                "\n"
                "class Pump(val motor: Motor, val tank: Tank) { fun run() = Valve().close() }\n"
            ),
            "src/main/kotlin/org/acme/util/Valve.kt": ("package org.acme.util\nclass Valve { fun close() {} }\n"),
            "src/main/kotlin/org/acme/Motor.kt": (
                "package org.acme\n\ndata class Motor(val a: Int)\n\nfun Pump.start() = 1\n"
            ),
            "src/main/java/org/acme/Tank.java": ("package org.acme;\npublic class Tank {}\n"),
        },
        {
            ("src/main/kotlin/org/acme/Pump.kt", "src/main/java/org/acme/Tank.java"),
            ("src/main/kotlin/org/acme/Pump.kt", "src/main/kotlin/org/acme/Motor.kt"),
            ("src/main/kotlin/org/acme/Pump.kt", "src/main/kotlin/org/acme/util/Valve.kt"),
        },
    ),
    "csharp": (
        {
            "App/Program.cs": (
                "using Acme.Pumps;\nnamespace App;\nclass Program { static void Main() { new Pump().Run(); } }\n"
            ),
            "Pumps/Pump.cs": (
                "using System;\n"
                "namespace Acme.Pumps;\n"
                "/* Other.Pump */\n"
                "public class Pump { public Valve V; public void Run() {} }\n"
            ),
            "Other/Pump.cs": ("namespace Other\n{\n    public class Pump { }\n}\n"),
            "Pumps/Valve.cs": ("namespace Acme.Pumps;\ninternal sealed record Valve(int A);\n"),
        },
        {
            ("App/Program.cs", "Pumps/Pump.cs"),
            ("Pumps/Pump.cs", "Pumps/Valve.cs"),
        },
    ),
    "ruby": (
        {
            "lib/acme/pump.rb": (
                "require 'json'\nrequire_relative 'valve'\nrequire 'acme/tank'\nrequire 'absent/gem'\nclass Pump; end\n"
            ),
            "lib/acme/valve.rb": "class Valve; end\n",
            "lib/acme/tank.rb": "class Tank; end\n",
            "tools/json.rb": "X = 1\n",
        },
        {
            ("lib/acme/pump.rb", "lib/acme/tank.rb"),
            ("lib/acme/pump.rb", "lib/acme/valve.rb"),
        },
    ),
    "php_psr4": (
        {
            "composer.json": '{"autoload":{"psr-4":{"Acme\\\\Pump\\\\":"src/"}}}',
            "src/Motor.php": (
                "<?php\n"
                "namespace Acme\\Pump;\n"
                "use Acme\\Pump\\Valve\\{Ball, Gate as G};\n"
                "use Vendor\\Ball as V;\n"
                "require __DIR__ . '/old.php';\n"
                "class Motor extends Base { function f() { return new Ball(); } }\n"
            ),
            "src/Valve/Ball.php": ("<?php\nnamespace Acme\\Pump\\Valve;\nclass Ball {}\n"),
            "src/Valve/Gate.php": ("<?php\nnamespace Acme\\Pump\\Valve;\nfinal class Gate {}\n"),
            "src/Base.php": ("<?php namespace Acme\\Pump;\nabstract class Base {}\n"),
            "src/old.php": ("<?php\nfunction old() {}\n"),
            "other/Ball.php": ("<?php\nnamespace Other;\nclass Ball {}\n"),
        },
        {
            ("src/Motor.php", "src/Base.php"),
            ("src/Motor.php", "src/Valve/Ball.php"),
            ("src/Motor.php", "src/Valve/Gate.php"),
            ("src/Motor.php", "src/old.php"),
        },
    ),
    "obsidian": (
        {
            ".obsidian/app.json": "{}",
            "Pump.md": ("---\naliases: [Water pump]\n---\n# Pump\n\nText para. ^blk1\n\n## Use\n\nu\n"),
            "a.md": "[[Water pump]] ![[Pump#Use]] [[Pump#^blk1|b]] ![[img.png|300]]",
            "b.md": "[[Pump|p]] [m](Pump.md#Use)",
            "c.canvas": (
                '{"nodes":[{"id":"1","type":"file","file":"Pump.md"},{"id":"2","type":"text","text":"s'
                'ee [[a]]"}],"edges":[{"id":"e","fromNode":"1","toNode":"2"}]}'
            ),
        },
        {
            ("a.md", "Pump.md"),
            ("b.md", "Pump.md"),
            ("c.canvas", "Pump.md"),
            ("c.canvas", "a.md"),
        },
    ),
    "notion": (
        {
            "Export/Home 0123456789abcdef0123456789abcdef.md": (
                "# Home\n"
                "\n"
                "[Pump"
                " Room](Home%200123456789abcdef0123456789abcdef/Pump%20Room%20abcdefabcdefabcdefabcdef"
                "abcdefab.md)\n"
                "[u](https://www.notion.so/team/Pump-Room-abcdefabcdefabcdefabcdefabcdefab?pvs=4)\n"
                "[db](Home%200123456789abcdef0123456789abcdef/Tasks%20aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.csv)"
            ),
            "Export/Home 0123456789abcdef0123456789abcdef/Pump Room abcdefabcdefabcdefabcdefabcdefab.md": (
                "# Pump Room\n\n[Home](../Home%200123456789abcdef0123456789abcdef.md)"
            ),
            "Export/Home 0123456789abcdef0123456789abcdef/Tasks aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.csv": (
                "Name,Done\nfix,yes\n"
            ),
        },
        {
            (
                "Export/Home 0123456789abcdef0123456789abcdef.md",
                "Export/Home 0123456789abcdef0123456789abcdef/Pump Room abcdefabcdefabcdefabcdefabcdefab.md",
            ),
            (
                "Export/Home 0123456789abcdef0123456789abcdef.md",
                "Export/Home 0123456789abcdef0123456789abcdef/Tasks aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.csv",
            ),
            (
                "Export/Home 0123456789abcdef0123456789abcdef/Pump Room abcdefabcdefabcdefabcdefabcdefab.md",
                "Export/Home 0123456789abcdef0123456789abcdef.md",
            ),
        },
    ),
    "confluence": (
        {
            "SP/index.html": (
                "<html><body><div id='main'><h1>Space</h1><ul><li><a"
                " href='Pump-Room_123456.html'>Pump Room</a></li></ul></div></body></html>"
            ),
            "SP/Pump-Room_123456.html": (
                "<html><body><div id='main-content'><h1>Pump</h1><p>see <a"
                " href='/pages/viewpage.action?pageId=654321'>valve</a> and <a"
                " href='https://x.atlassian.net/wiki/spaces/SP/pages/654321/Valve'>v</a></p></div></bo"
                "dy></html>"
            ),
            "SP/Valve_654321.html": (
                "<html><body><div id='main-content'><h1>Valve</h1><p>text</p></div></body></html>"
            ),
        },
        {
            ("SP/Pump-Room_123456.html", "SP/Valve_654321.html"),
            ("SP/index.html", "SP/Pump-Room_123456.html"),
        },
    ),
    "asciidoc": (
        {
            "a.adoc": (
                "= A\n\nxref:b.adoc#use[use] <<b.adoc#,B>> <<local>> xref:sub/c.adoc[]\n\n[[local]]\n== Local\n\nt\n"
            ),
            "b.adoc": ("= B\n\n[#use]\n== How to use\n\nt <<How to use>>\n"),
            "sub/c.adoc": ("= C\n\nlink:../a.adoc[a]\n"),
        },
        {
            ("a.adoc", "b.adoc"),
            ("a.adoc", "sub/c.adoc"),
            ("sub/c.adoc", "a.adoc"),
        },
    ),
    "antora": (
        {
            "antora.yml": ("name: acme\nversion: '1'\n"),
            "modules/ROOT/pages/index.adoc": (
                "= Home\n\nxref:ops:pump.adoc#use[p] xref:acme:ops:pump.adoc[q] include::partial$note.adoc[]\n"
            ),
            "modules/ops/pages/pump.adoc": ("= Pump\n\n== Use\n\nxref:ROOT:index.adoc[h]\n"),
            "modules/ROOT/partials/note.adoc": "A note.\n",
        },
        {
            ("modules/ROOT/pages/index.adoc", "modules/ops/pages/pump.adoc"),
            ("modules/ops/pages/pump.adoc", "modules/ROOT/pages/index.adoc"),
        },
    ),
    "rst": (
        {
            "conf.py": "intersphinx_mapping={}\n",
            "index.rst": (
                "Home\n"
                "====\n"
                "\n"
                ".. toctree::\n"
                "   :glob:\n"
                "\n"
                "   guide/*\n"
                "\n"
                ":ref:`set-up` :doc:`/guide/pump` :ref:`text <set-up>` :external+python:ref:`x`"
                " :py:func:`os.path.join`\n"
            ),
            "guide/pump.rst": (
                ".. _set-up:\n"
                "\n"
                "Pump\n"
                "====\n"
                "\n"
                "text :doc:`tank` :numref:`fig-1`\n"
                "\n"
                ".. _fig-1:\n"
                "\n"
                ".. figure:: x.png\n"
                "\n"
                "   Cap\n"
            ),
            "guide/tank.rst": (
                "Tank\n====\n\n:download:`x <../data.csv>` :term:`bar`\n\n.. glossary::\n\n   bar\n      unit\n"
            ),
            "data.csv": ("a\n1\n"),
        },
        {
            ("guide/pump.rst", "guide/tank.rst"),
            ("guide/tank.rst", "data.csv"),
            ("index.rst", "guide/pump.rst"),
            ("index.rst", "guide/tank.rst"),
        },
    ),
    "docusaurus": (
        {
            "docusaurus.config.js": "module.exports={url:'https://x.org',baseUrl:'/'}",
            "docs/01-intro.md": (
                "---\n"
                "id: start\n"
                "slug: /begin\n"
                "---\n"
                "# Intro\n"
                "\n"
                "[a](./guides/pump.md) [b](/docs/guides/the-pump) [c](guides/the-pump#use)\n"
            ),
            "docs/guides/pump.md": (
                "---\n"
                "id: the-pump\n"
                "---\n"
                "# Pump\n"
                "\n"
                "## Use {#use}\n"
                "\n"
                "[i](/docs/begin) [j](../01-intro.md) [k](pathname:///docs/begin)\n"
            ),
        },
        {
            ("docs/01-intro.md", "docs/guides/pump.md"),
            ("docs/guides/pump.md", "docs/01-intro.md"),
        },
    ),
    "hugo": (
        {
            "hugo.toml": 'baseURL="https://x.org/"\n',
            "content/docs/a.md": (
                "---\n"
                "title: A\n"
                "---\n"
                '[b]({{< ref "b.md#use" >}}) [c]({{< relref "/blog/c" >}}) [d]({{% relref path="d" %}})'
            ),
            "content/docs/b.md": ("# B\n\n## Use\n\nt"),
            "content/blog/c/index.md": ('# C\n\n[a]({{< ref "/docs/a" >}})'),
            "content/docs/d/_index.md": ("# D\n\nt"),
        },
        {
            ("content/blog/c/index.md", "content/docs/a.md"),
            ("content/docs/a.md", "content/blog/c/index.md"),
            ("content/docs/a.md", "content/docs/b.md"),
            ("content/docs/a.md", "content/docs/d/_index.md"),
        },
    ),
    "jekyll": (
        {
            "_config.yml": ("baseurl: /site\ncollections:\n  tutorials:\n    output: true\n"),
            "_posts/2024-01-02-pump.md": (
                "# Pump\n"
                "\n"
                "[a]({% link _tutorials/tank.md %}) [b]({{ site.baseurl }}{% post_url"
                " 2024-02-03-valve %}) [c]({{ '/about/' | relative_url }})"
            ),
            "_posts/2024-02-03-valve.md": ("# Valve\n\n[p](/site/2024/01/02/pump.html) [t](/tutorials/tank)"),
            "_tutorials/tank.md": ("# Tank\n\nt"),
            "about.md": ("---\npermalink: /about/\n---\n# About\n\nt"),
        },
        {
            ("_posts/2024-01-02-pump.md", "_posts/2024-02-03-valve.md"),
            ("_posts/2024-01-02-pump.md", "_tutorials/tank.md"),
            ("_posts/2024-01-02-pump.md", "about.md"),
            ("_posts/2024-02-03-valve.md", "_posts/2024-01-02-pump.md"),
            ("_posts/2024-02-03-valve.md", "_tutorials/tank.md"),
        },
    ),
    "quarto": (
        {
            "_quarto.yml": ("project:\n  type: book\nbook:\n  chapters: [index.qmd, pump.qmd]\n"),
            "index.qmd": (
                "# Intro {#sec-intro}\n"
                "\n"
                "See @sec-use and [-@fig-curve] and [p](pump.qmd#sec-use).\n"
                "\n"
                "And @fig-plot, `@sec-none`, me@sec-x.org.\n"
            ),
            "pump.qmd": (
                "# Pump\n"
                "\n"
                "## Use {#sec-use}\n"
                "\n"
                "![Curve](x.png){#fig-curve}\n"
                "\n"
                "Back to @sec-intro.\n"
                "\n"
                "{{< include _part.qmd >}}\n"
                "\n"
                "```{r}\n"
                "#| label: fig-plot\n"
                "plot(x)\n"
                "```\n"
            ),
            "_part.qmd": "part text\n",
        },
        {
            ("index.qmd", "pump.qmd"),
            ("pump.qmd", "_part.qmd"),
            ("pump.qmd", "index.qmd"),
        },
    ),
    "myst": (
        {
            "myst.yml": "version: 1\n",
            "a.md": ("(lab)=\n# A\n\n{ref}`tgt` {numref}`fig` [](#tgt) [](./b.md) {doc}`b` [text](b.md#use)\n"),
            "b.md": ("# B\n\n(tgt)=\n## Use\n\n```{figure} x.png\n:name: fig\nCaption\n```\n\n[](lab)\n"),
        },
        {
            ("a.md", "b.md"),
            ("b.md", "a.md"),
        },
    ),
    "org_roam": (
        {
            "a.org": (
                ":PROPERTIES:\n"
                ":ID: 11111111-2222-3333-4444-555555555555\n"
                ':ROAM_ALIASES: "Water pump"\n'
                ":END:\n"
                "#+title: Pump\n"
                "\n"
                "text [[file:b.org::*Use][u]] [[id:aaaaaaaa-2222-3333-4444-555555555555][b]]\n"
            ),
            "b.org": (
                ":PROPERTIES:\n"
                ":ID: aaaaaaaa-2222-3333-4444-555555555555\n"
                ":END:\n"
                "#+title: Tank\n"
                "\n"
                "* Use\n"
                "[[id:11111111-2222-3333-4444-555555555555]]\n"
            ),
        },
        {
            ("a.org", "b.org"),
            ("b.org", "a.org"),
        },
    ),
    "mkdocs_nav": (
        {
            "mkdocs.yml": ("site_name: x\nplugins: [autorefs]\n"),
            "docs/index.md": (
                '# Home\n\n[Pump][] [x][pump.Motor] [ab](guide/) --8<-- "inc.md"\n\n[Pump]: guide/pump.md\n'
            ),
            "docs/guide/index.md": ("# Guide\n\ng"),
            "docs/guide/pump.md": ("# Pump\n\n[h](../) [h2](../index.md) [q](tank/)"),
            "docs/guide/tank.md": ("# Tank\n\nt"),
        },
        {
            ("docs/guide/pump.md", "docs/guide/tank.md"),
            ("docs/guide/pump.md", "docs/index.md"),
            ("docs/index.md", "docs/guide/index.md"),
            ("docs/index.md", "docs/guide/pump.md"),
        },
    ),
    "c_include": (
        {
            "include/pump/pump.h": ("#pragma once\nvoid run(void);\n"),
            "src/pump.c": ('#include <pump/pump.h>\n#include "local.h"\nvoid run(void) { helper(); }\n'),
            "src/local.h": "void helper(void);\n",
        },
        {
            ("src/pump.c", "include/pump/pump.h"),
            ("src/pump.c", "src/local.h"),
        },
    ),
    "vitepress": (
        {
            "docs/.vitepress/config.ts": "export default {base:'/x/', rewrites: {}}",
            "docs/index.md": "[g](./guide/start) [h](/guide/start#use) [i](guide/)",
            "docs/guide/start.md": ("# Start\n\n## Use\n\n[i](../index.md) <!--@include: ./_part.md-->"),
            "docs/guide/index.md": ("# Guide\n\ng"),
            "docs/guide/_part.md": "part",
        },
        {
            ("docs/guide/start.md", "docs/guide/_part.md"),
            ("docs/guide/start.md", "docs/index.md"),
            ("docs/index.md", "docs/guide/index.md"),
            ("docs/index.md", "docs/guide/start.md"),
        },
    ),
    "mdbook": (
        {
            "book.toml": ("[book]\ntitle='x'\n"),
            "src/SUMMARY.md": ("# Summary\n\n- [One](ch1.md)\n  - [Two](sub/ch2.md)\n"),
            "src/ch1.md": ("# One\n\n[two](sub/ch2.html#use) {{#include ../listing.rs:5:9}}"),
            "src/sub/ch2.md": ("# Two\n\n## Use\n\n[one](../ch1.md)"),
            "listing.rs": "fn main() {}\n",
        },
        {
            ("src/SUMMARY.md", "src/ch1.md"),
            ("src/SUMMARY.md", "src/sub/ch2.md"),
            ("src/ch1.md", "listing.rs"),
            ("src/ch1.md", "src/sub/ch2.md"),
            ("src/sub/ch2.md", "src/ch1.md"),
        },
    ),
    "docusaurus_versioned": (
        {
            "docusaurus.config.js": "module.exports={url:'https://x.org',baseUrl:'/'}",
            "docs/a.md": ("# A\n\n[b](./b.md) [n](next)"),
            "docs/b.md": ("# B\n\nnew"),
            "docs/next.mdx": ("# Next\n\nt"),
            "versioned_docs/version-1.0/a.md": ("# A\n\n[b](./b.md) [c](/docs/1.0/b)"),
            "versioned_docs/version-1.0/b.md": ("# B\n\nold"),
        },
        {
            ("docs/a.md", "docs/b.md"),
            ("docs/a.md", "docs/next.mdx"),
            ("versioned_docs/version-1.0/a.md", "versioned_docs/version-1.0/b.md"),
        },
    ),
    "dendron": (
        {
            "dendron.yml": "version: 5",
            "vault/lang.python.md": (
                "---\nid: abc123\ntitle: Python\n---\n[[lang.rust]] [[Rust|lang.rust]] ![[lang.rust#use]]"
            ),
            "vault/lang.rust.md": ("---\nid: def\ntitle: Rust\n---\n## Use\n\nu"),
        },
        {
            ("vault/lang.python.md", "vault/lang.rust.md"),
        },
    ),
    "logseq": (
        {
            "logseq/config.edn": "{}",
            "pages/Pump.md": ("alias:: water pump\n\n- text\n  id:: 64f1c0de-1111-2222-3333-444455556666"),
            "pages/a___b.md": "- [[Pump]] and [[water pump]]",
            "journals/2024_05_01.md": (
                "- ((64f1c0de-1111-2222-3333-444455556666)) {{embed [[a/b]]}} [[May 1st, 2024]]"
            ),
        },
        {
            ("journals/2024_05_01.md", "pages/Pump.md"),
            ("journals/2024_05_01.md", "pages/a___b.md"),
            ("pages/a___b.md", "pages/Pump.md"),
        },
    ),
    "foam": (
        {
            "a.md": ('[[b]] [[sub/c]] [x][b]\n\n[b]: b.md "B"\n[sub/c]: sub/c.md "C"'),
            "b.md": ("# B\n\nt"),
            "sub/c.md": ("# C\n\n[[a|A]]"),
        },
        {
            ("a.md", "b.md"),
            ("a.md", "sub/c.md"),
            ("sub/c.md", "a.md"),
        },
    ),
    "sphinx_autosection": (
        {
            "conf.py": ("extensions=['sphinx.ext.autosectionlabel']\nautosectionlabel_prefix_document=True\n"),
            "index.rst": (
                "Home\n====\n\n:ref:`guide/a:Set up` :ref:`x <guide/a:Set up>`\n\n.. include:: guide/inc.txt\n"
            ),
            "guide/a.rst": ("A\n=\n\nSet up\n------\n\ntext |v|\n\n.. |v| replace:: 1\n"),
            "guide/inc.txt": "See :doc:`/guide/a`.\n",
        },
        {
            ("guide/inc.txt", "guide/a.rst"),
            ("index.rst", "guide/a.rst"),
            ("index.rst", "guide/inc.txt"),
        },
    ),
    "jupyterbook": (
        {
            "_toc.yml": ("format: jb-book\nroot: intro\n"),
            "intro.md": ("# Intro\n\n{doc}`ch/one` {ref}`my-eq` [](ch/one.md) [n](ch/nb.ipynb)"),
            "ch/one.md": ("# One\n\n```{math}\n:label: my-eq\na\n```\n\ntext"),
            "ch/nb.ipynb": ('{"cells":[{"cell_type":"markdown","source":"# NB\\n\\n[one](one.md)"}],"metadata":{}}'),
        },
        {
            ("ch/nb.ipynb", "ch/one.md"),
            ("intro.md", "ch/nb.ipynb"),
            ("intro.md", "ch/one.md"),
        },
    ),
    "bookdown": (
        {
            "_bookdown.yml": "book_filename: x\n",
            "01-a.Rmd": ("# A {#a}\n\nSee \\@ref(fig:plot) and \\@ref(b) and [B].\n"),
            "02-b.Rmd": ('# B {#b}\n\n```{r plot, fig.cap="x"}\nplot(1)\n```\n'),
        },
        {
            ("01-a.Rmd", "02-b.Rmd"),
        },
    ),
    "html_site": (
        {
            "index.html": (
                "<nav><a href='about.html'>About</a></nav><main><h1>Home</h1><p><a"
                " href='/guide/'>g</a> <a href='guide/setup.html?x=1#s'>s</a></p></main>"
            ),
            "about.html": "<main><h1>About</h1><p>t</p></main>",
            "guide/index.html": ("<base href='/guide/'><main><h1>Guide</h1><p><a href='setup.html'>s</a></p></main>"),
            "guide/setup.html": ("<main><h1>Setup</h1><h2 id='s'>S</h2><p><a href='../index.html'>h</a></p></main>"),
        },
        {
            ("guide/index.html", "guide/setup.html"),
            ("guide/setup.html", "index.html"),
            ("index.html", "guide/index.html"),
            ("index.html", "guide/setup.html"),
        },
    ),
    "latex_book": (
        {
            "main.tex": (
                "\\documentclass{book}\n"
                "\\begin{document}\n"
                "\\include{ch/one}\n"
                "\\input{ch/two.tex}\n"
                "\\bibliography{refs}\n"
                "\\end{document}"
            ),
            "ch/one.tex": ("\\chapter{One}\\label{ch:one}\nSee \\cref{sec:two} \\cite{knuth}."),
            "ch/two.tex": ("\\section{Two}\\label{sec:two}\nText \\autoref{ch:one}."),
            "refs.bib": "@book{knuth, title={Art}, author={K}}",
        },
        {
            ("ch/one.tex", "ch/two.tex"),
            ("ch/one.tex", "refs.bib"),
            ("ch/two.tex", "ch/one.tex"),
            ("main.tex", "ch/one.tex"),
            ("main.tex", "ch/two.tex"),
        },
    ),
    "monorepo_py_uv": (
        {
            "pyproject.toml": ('[tool.uv.workspace]\nmembers=["packages/*"]\n'),
            "packages/core/pyproject.toml": (
                '[project]\nname="acme-core"\n[tool.hatch.build.targets.wheel]\npackages=["src/acme_core"]\n'
            ),
            "packages/core/src/acme_core/__init__.py": "from ._impl import run as run\n",
            "packages/core/src/acme_core/_impl.py": "def run(): return 1\n",
            "packages/app/pyproject.toml": ('[project]\nname="acme-app"\n'),
            "packages/app/src/acme_app/main.py": (
                "import acme_core\nfrom acme_core import run\n\ndef go():\n    return run()\n"
            ),
            "tests/test_go.py": ("from acme_app.main import go\n\ndef test_go():\n    assert go()\n"),
        },
        {
            ("packages/app/src/acme_app/main.py", "packages/core/src/acme_core/__init__.py"),
            ("packages/app/src/acme_app/main.py", "packages/core/src/acme_core/_impl.py"),
            ("packages/core/src/acme_core/__init__.py", "packages/core/src/acme_core/_impl.py"),
            ("tests/test_go.py", "packages/app/src/acme_app/main.py"),
        },
    ),
    "py_conditional": (
        {
            "p/__init__.py": ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import A\n"),
            "p/a.py": "class A: ...\n",
            "p/b.py": (
                "import importlib\n"
                "try:\n"
                "    import p.a as aa\n"
                "except ImportError:\n"
                "    aa = None\n"
                "\n"
                "def f():\n"
                "    from p import a\n"
                "    return a.A()\n"
            ),
        },
        {
            ("p/__init__.py", "p/a.py"),
            ("p/b.py", "p/a.py"),
        },
    ),
    "js_cjs": (
        {
            "package.json": ('{"name":"x","imports":{"#lib/*":"./lib/*.js"},"exports":{".":"./index.js"}}'),
            "index.js": (
                "const {a} = require('./lib/a');\n"
                "const b = require('#lib/b');\n"
                "module.exports = {...require('./lib'), a};\n"
                "a(); b();\n"
            ),
            "lib/a.js": "exports.a = function () {};\n",
            "lib/b.js": "module.exports = function b() {};\n",
            "lib/index.js": "exports.c = 1;\n",
            "test/x.test.js": ("import {a} from 'x';\nimport('../lib/a.js');\ntest('x', () => a());\n"),
        },
        {
            ("index.js", "lib/a.js"),
            ("index.js", "lib/b.js"),
            ("index.js", "lib/index.js"),
            ("test/x.test.js", "index.js"),
            ("test/x.test.js", "lib/a.js"),
        },
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_edges_of_a_folder(name: str, tmp_path: Path) -> None:
    files, expected = CASES[name]
    for file, text in files.items():
        path = tmp_path / "source" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    index_folder(tmp_path / "source", tmp_path / "out", workers=1)
    rows = map(json.loads, (tmp_path / "out" / "corpus.jsonl").read_text().splitlines())
    document_of = {row["_id"]: row["metadata"]["doc_id"] for row in rows}
    file_of = {id_: name if name in files else name.partition("#")[0] for id_, name in document_of.items()}
    edges = tmp_path / "out" / "edges.tsv"
    lines = edges.read_text().splitlines()[1:] if edges.exists() else []
    pairs = {(file_of[row.split("\t")[0]], file_of[row.split("\t")[1]]) for row in lines}
    assert {pair for pair in pairs if pair[0] != pair[1]} == expected
