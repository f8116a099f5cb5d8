"""Names of code are found where they are defined, by an independent reading of Python and by hand."""

import ast
import json
from pathlib import Path

from graphrerank_documents.document import SYMBOL, Document, Link
from graphrerank_documents.formats.code import read_code
from graphrerank_documents.symbols import SymbolIndex


def _edges(files: dict[str, str]) -> set[tuple[str, str, str]]:
    """Return the links that are found between two sections, each as `path#name`."""
    documents = [document for name, text in files.items() for document in read_code(text.encode(), name)]
    index = SymbolIndex(documents)
    edges = set()
    for number, document in enumerate(documents):
        for i, section in enumerate(document.sections):
            for link in (link for block in section.blocks for link in block.links):
                if (place := index.find(document, link)) is not None and place != (number, i):
                    ends = ((document, i), (documents[place[0]], place[1]))
                    source, target = (f"{each.name}#{each.sections[at].heading}" for each, at in ends)
                    edges.add((source, link.edge, target))
    return edges


def test_imports_against_ast():
    folder = Path(json.__file__).parent.parent
    files = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for package in ("json", "importlib", "concurrent", "wsgiref")
        for path in (folder / package).rglob("*.py")
    }
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in files}
    expected = set()
    for name, text in files.items():
        package = name.split("/")[:-1]
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imported = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                around = package[: len(package) + 1 - node.level] if node.level else []
                base = ".".join([*around, *([node.module] if node.module else [])])
                imported = [
                    f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base for alias in node.names
                ]
            else:
                continue
            expected |= {(name, modules[each]) for each in imported if modules.get(each, name) != name}
    edges = {(source, target) for source, edge, target in _edges(files) if edge == "import"}
    found = {(source.partition("#")[0], target.partition("#")[0]) for source, target in edges}
    reexported = {(name, other) for name, package in expected for of, other in expected if of == package}
    missed = {name for name, _ in expected - found}
    assert missed <= {name for name, _ in found & reexported}  # led to the definition, not to the module between
    assert {pair for pair in found - expected - reexported if pair[0] != pair[1]} == set()
    assert len(expected) > 40


def test_python():
    files = {
        "src/plant/__init__.py": "from .pump import Motor as Engine\nfrom .shapes import *\n",
        "src/plant/base.py": "class Machine:\n    def stop_now(self): ...\n    def run(self): ...\n",
        "src/plant/pump.py": "from plant.base import Machine\nclass Motor(Machine):\n    def go(self):\n"
        "        self.run()\n",
        "src/plant/shapes.py": "def round_off(): ...\n",
        "src/plant/types.py": "def get(): ...\n",
        "src/plant/use.py": "import types\nimport plant\nfrom plant import Engine, round_off\n"
        "def f(x, run):\n    Engine().go()\n    Engine.run(1)\n    round_off()\n    x.stop_now()\n    x.get()\n"
        "    run()\n"
        "    types.get()\n    plant.Engine()\n",
    }
    use, pump = "src/plant/use.py", "src/plant/pump.py"
    assert _edges(files) == {
        ("src/plant/__init__.py#", "import", f"{pump}#Motor"),
        ("src/plant/__init__.py#", "import", "src/plant/shapes.py#"),
        (f"{pump}#", "import", "src/plant/base.py#Machine"),
        (f"{pump}#Motor", "inherits", "src/plant/base.py#Machine"),
        (f"{pump}#Motor.go", "call", "src/plant/base.py#Machine.run"),
        (f"{use}#", "import", "src/plant/__init__.py#"),
        (f"{use}#", "import", f"{pump}#Motor"),
        (f"{use}#", "import", "src/plant/shapes.py#round_off"),
        (f"{use}#f", "call", f"{pump}#Motor"),
        (f"{use}#f", "call", "src/plant/base.py#Machine.run"),
        (f"{use}#f", "call", "src/plant/base.py#Machine.stop_now"),
        (f"{use}#f", "call", "src/plant/shapes.py#round_off"),
    }


def test_a_folder_that_is_a_package_learns_its_name():
    files = {
        "__init__.py": "from plant.pump import Motor\n",
        "pump.py": "import requests\nfrom requests.pump import x\nclass Motor: ...\n",
        "sub/use.py": "import plant\nfrom plant.pump import Motor\nplant.Motor()\n",
        "sub/other.py": "import plant.pump as p\np.Motor()\n",
    }
    assert _edges(files) == {
        ("__init__.py#", "import", "pump.py#Motor"),
        ("sub/use.py#", "import", "__init__.py#"),
        ("sub/use.py#", "import", "pump.py#Motor"),
        ("sub/use.py#", "call", "pump.py#Motor"),
        ("sub/other.py#", "import", "pump.py#"),
        ("sub/other.py#", "call", "pump.py#Motor"),
    }


def test_scripts():
    files = {
        "src/base.ts": "export default class Base { stopNow() {} }\nexport class Gauge {}\n",
        "src/index.ts": 'export { Gauge as Meter } from "./base";\nexport * from "./motor";\n',
        "src/motor.ts": 'import Base from "./base.js";\nexport class Motor extends Base { go() { this.stopNow(); } }\n',
        "lib/old.js": "function start() {}\nmodule.exports = start;\n",
        "view.js": "export default connect(1)(View);\n",
        "app.jsx": 'import View from "./view";\n'
        'import { Meter, Motor } from "./src";\nconst start = require("./lib/old");\n'
        'import x from "motor";\nexport function App() { start(); x(); new Meter(); return <View><Motor/></View>; }\n',
    }
    assert _edges(files) == {
        ("src/index.ts#", "import", "src/base.ts#"),
        ("src/index.ts#", "import", "src/base.ts#Gauge"),
        ("src/index.ts#", "import", "src/motor.ts#"),
        ("src/motor.ts#", "import", "src/base.ts#"),
        ("src/motor.ts#", "import", "src/base.ts#Base"),
        ("src/motor.ts#Motor", "inherits", "src/base.ts#Base"),
        ("src/motor.ts#Motor", "call", "src/base.ts#Base"),
        ("app.jsx#", "import", "view.js#"),
        ("app.jsx#App", "call", "view.js#"),
        ("app.jsx#", "import", "src/index.ts#"),
        ("app.jsx#", "import", "src/base.ts#Gauge"),
        ("app.jsx#", "import", "src/motor.ts#Motor"),
        ("app.jsx#", "import", "lib/old.js#"),
        ("app.jsx#", "import", "lib/old.js#start"),
        ("app.jsx#App", "call", "lib/old.js#start"),
        ("app.jsx#App", "call", "src/base.ts#Gauge"),
        ("app.jsx#App", "call", "src/motor.ts#Motor"),
    }


def test_go():
    files = {
        "main.go": 'package main\nimport (\n\t"fmt"\n\t"example.com/plant/pump"\n\t"example.org/other/pump"\n)\n'
        "func main() { pump.New().Start(); fmt.Println(helper()) }\n",
        "other.go": "package main\nfunc helper() int { return 1 }\n",
        "pump/pump.go": "package pump\n// Motor turns.\ntype Motor struct{ Base }\n"
        "func New() *Motor { return &Motor{} }\n",
        "pump/base.go": "package pump\ntype Base struct{}\nfunc (b *Base) Start() { b.check() }\n"
        "func (b Base) check() {}\n",
        "pump/pump_test.go": 'package pump\nfunc TestNew() { m := Motor{}; m.Start() }\nfunc pump() { println("") }\n',
    }
    assert _edges(files) == {
        ("main.go#", "import", "pump/pump.go#"),
        ("main.go#main", "call", "pump/pump.go#New"),
        ("main.go#main", "call", "other.go#helper"),
        ("pump/pump.go#Motor", "inherits", "pump/base.go#Base"),
        ("pump/pump.go#New", "call", "pump/pump.go#Motor"),
        ("pump/base.go#Base.Start", "call", "pump/base.go#Base.check"),
        ("pump/pump_test.go#TestNew", "tests", "pump/pump.go#New"),
        ("pump/pump_test.go#TestNew", "tests", "pump/pump.go#Motor"),
        ("pump/pump_test.go#TestNew", "tests", "pump/base.go#Base.Start"),
    }


def test_java():
    files = {
        "src/main/java/com/acme/Base.java": "package com.acme;\nclass Base {\n  void stop() {}\n}\n",
        "src/main/java/com/acme/Motor.java": "package com.acme;\nimport com.acme.util.*;\n"
        "class Motor extends Base {\n  void run() { stop(); Checks.notNull(this); String.valueOf(1); }\n}\n",
        "src/main/java/com/acme/util/Checks.java": "package com.acme.util;\nclass Checks {\n"
        "  static void notNull(Object o) {}\n}\n",
        "src/test/java/com/acme/MotorTest.java": "package com.acme;\nclass MotorTest {\n"
        "  void runs() { Motor m = make(); m.run(); }\n}\n",
    }
    main = "src/main/java/com/acme"
    assert _edges(files) == {
        (f"{main}/Motor.java#Motor", "inherits", f"{main}/Base.java#Base"),
        (f"{main}/Motor.java#Motor.run", "call", f"{main}/Base.java#Base.stop"),
        (f"{main}/Motor.java#Motor.run", "call", f"{main}/util/Checks.java#Checks.notNull"),
        ("src/test/java/com/acme/MotorTest.java#MotorTest", "tests", f"{main}/Motor.java#Motor"),
        ("src/test/java/com/acme/MotorTest.java#MotorTest.runs", "tests", f"{main}/Motor.java#Motor.run"),
    }


def test_rust():
    files = {
        "crates/my-pump/src/lib.rs": "mod motor;\npub use motor::Motor;\n",
        "crates/my-pump/src/motor.rs": "use std::error::Error;\npub struct Motor;\nimpl Motor {\n"
        "    pub fn new() -> Self { Motor }\n    pub fn start(&self) { helper(); }\n}\nfn helper() {}\n",
        "crates/my-pump/src/error.rs": "pub struct Error;\n",
        "crates/my-pump/src/deep/mod.rs": "use crate::motor::Motor;\nuse super::error::Error as E;\n",
        "crates/gear/src/lib.rs": "pub trait Turn {}\n",
        "crates/app/main.rs": "use my_pump::Motor;\nuse plant_gear::Turn;\nuse serde::Deserialize;\n"
        "fn main() {\n    let m = Motor::new();\n    m.start();\n}\n",
    }
    pump, main = "crates/my-pump/src", "crates/app/main.rs"
    assert _edges(files) == {
        (f"{pump}/lib.rs#", "import", f"{pump}/motor.rs#"),
        (f"{pump}/lib.rs#", "import", f"{pump}/motor.rs#Motor"),
        (f"{pump}/motor.rs#Motor::start", "call", f"{pump}/motor.rs#helper"),
        (f"{pump}/deep/mod.rs#", "import", f"{pump}/motor.rs#Motor"),
        (f"{pump}/deep/mod.rs#", "import", f"{pump}/error.rs#Error"),
        (f"{main}#", "import", f"{pump}/motor.rs#Motor"),
        (f"{main}#", "import", "crates/gear/src/lib.rs#Turn"),
        (f"{main}#main", "call", f"{pump}/motor.rs#Motor::new"),
        (f"{main}#main", "call", f"{pump}/motor.rs#Motor::start"),
    }


def test_c():
    files = {
        "include/pump/motor.h": "int start_motor(int n);\nint only_declared(void);\nnamespace pump {\nclass Motor {\n"
        " public:\n  void start(int n);\n};\n}\n",
        "src/motor.cpp": '#include "pump/motor.h"\n#include <string.h>\nint start_motor(int n) { return helper(n); }\n'
        "namespace pump {\nvoid Motor::start(int n) {\n  start_motor(n);\n  check(n);\n}\n"
        "void Motor::check(int n) {}\n}\n",
        "src/main.c": '#include "pump/motor.h"\nstatic int helper(int n) { return n; }\n'
        "int main(void) { only_declared(); return helper(start_motor(1)); }\n",
        "src/other.c": "static int helper(int n) { return n; }\n",
        "test/motor_test.cc": "TEST(MotorTest, Starts) {\n  start_motor(1);\n}\n",
    }
    header = "include/pump/motor.h#"
    assert _edges(files) == {
        ("src/motor.cpp#", "import", header),
        ("src/motor.cpp#pump::Motor::start", "call", "src/motor.cpp#start_motor"),
        ("src/motor.cpp#pump::Motor::start", "call", "src/motor.cpp#pump::Motor::check"),
        ("src/main.c#", "import", header),
        ("test/motor_test.cc#MotorTest::Starts", "tests", "src/motor.cpp#start_motor"),
        ("src/main.c#main", "call", header),
        ("src/main.c#main", "call", "src/main.c#helper"),
        ("src/main.c#main", "call", "src/motor.cpp#start_motor"),
    }


def test_documents_name_code():
    files = {
        "src/plant/__init__.py": "from .pump import Motor\n",
        "src/plant/pump.py": "class Base:\n    def run(self): ...\n\nclass Motor(Base):\n    def go(self): ...\n\n"
        "def open_all(): ...\n\nclass Door:\n    def open_all(self): ...\n",
    }
    files["src/plant/_impl.py"] = "def open_all(): ...\n"
    documents = [document for name, text in files.items() for document in read_code(text.encode(), name)]
    index, guide = SymbolIndex(documents), Document("guide.rst", "Guide", ())
    headings = {
        **{"plant.pump.Motor": "Motor", "plant.Motor": "Motor", "Motor.go": "Motor.go", "plant.Motor.go()": "Motor.go"},
        **{"plant.pump": "", "Motor.run": "Base.run", "Motor.speed": "Motor", "_impl.open_all": "open_all"},
        **{"Door.open_all": "Door.open_all", "os.path": None, "go.Motor": None, "sys.Motors.go": None},
    }
    assert index.find(guide, Link("open_all", kind=SYMBOL)) == (1, 5)
    for name, heading in headings.items():
        place = index.find(guide, Link(name, kind=SYMBOL))
        assert (name, None if place is None else documents[place[0]].sections[place[1]].heading) == (name, heading)
