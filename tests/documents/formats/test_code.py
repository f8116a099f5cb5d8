"""Sections, blocks and links of code in each language."""

import random

import pytest

from graphrerank_documents.document import Document, UnreadableError
from graphrerank_documents.formats.code import MAX_BLOCK_LINES, read_code
from graphrerank_documents.readers import READERS

PYTHON = '''"""Pumps."""
from . import valves
from .base import Machine as Base, check

SPEED = 3


# Starts a motor.
@check
def start(motor: "Motor"):
    """Start it."""
    motor.run()


class Motor(Base, valves.Valve):
    """Turns."""

    speed = SPEED

    def run(self):
        self.stop()
        print(self.speed)

    def stop(self): ...
'''
GO = """// Package pump drives.
package pump

import "example.com/plant/store"

// Motor turns.
type Motor struct {
	Base
	store *store.Store
}

// Start starts.
func (m *Motor) Start() error {
	m.stop()
	return m.store.Save(helper())
}
"""
JAVA = """package com.acme;
import com.acme.store.Store;
/** Turns. */
@Deprecated
public class Motor extends Base implements Runnable {
    private Store store;
    /** Runs. */
    @Override
    public void run() {
        store.save();
        helper();
        new Gauge();
    }
    void helper() {}
}
"""
RUST = """//! Motors.
use crate::store::{self, Store as Shop};
mod gear;
/// Turns.
#[derive(Debug)]
pub struct Motor { shop: Shop }
impl Motor {
    /// Starts.
    pub fn start(&self) {
        self.stop();
        gear::turn(1);
        store::open();
    }
}
impl store::Open for Motor {
    fn open(&self) {}
}
#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn starts() { Motor::new(); }
}
"""
CPP = """#include "pump/motor.h"
#include <vector>
namespace pump {
// Starts.
template <typename T>
void Motor::start(T count) {
  stop();
  util::log(count);
}
class Local : public Motor {
  void go() { new Gauge(); }
};
}
"""
TYPESCRIPT = """import Base, { Gauge as G } from "./base";
import * as util from "../util/index.js";
/** Turns. */
@Injectable()
export class Motor extends Base implements Thing {
  private gauge: G;
  /** Starts. */
  start(): void {
    this.stop();
    this.gauge.read();
    util.log(1);
  }
  stop = () => { helper(); };
}
export const helper = async () => {
  return new G();
};
export default Motor;
"""
JAVASCRIPT = """'use strict';
const { open, close: shut } = require('./lib/doors');
const Store = require('./store');
/** Uses. */
app.use = function use(door) {
  open(door); shut(door);
  return <Store.View door={door}/>;
};
exports.create = () => new Store();
"""


def _read(name: str, text: str) -> Document:
    (document,) = read_code(text.encode(), name)
    return document


def _links(document: Document) -> set[tuple[str, str, str]]:
    return {
        (section.heading, link.edge, link.target)
        for section in document.sections
        for block in section.blocks
        for link in block.links
    }


def test_python():
    document = _read("src/plant/pump.py", PYTHON)
    assert document.title == "plant.pump"
    assert [(section.heading, section.line, section.end) for section in document.sections] == [
        ("", 1, 7),
        ("start", 8, 12),
        ("Motor", 15, 19),
        ("Motor.run", 20, 22),
        ("Motor.stop", 24, 24),
    ]
    top, start, motor, run, _ = document.sections
    assert [block.text for block in top.blocks] == ['"""Pumps."""', "SPEED = 3"]
    assert [block.text for block in start.blocks] == [
        '# Starts a motor.\n@check\ndef start(motor: "Motor"):\n    """Start it."""',
        "    motor.run()",
    ]
    assert [block.text.split("\n")[-1] for block in motor.blocks] == ['    """Turns."""', "    speed = SPEED"]
    assert (run.anchors, run.symbols, top.symbols) == (("Motor.run",), ("Motor.run",), ("SPEED",))
    assert all(block.is_whole for section in document.sections for block in section.blocks)
    assert _links(document) == {
        ("", "import", "/src.plant..valves"),
        ("", "import", "/src.plant.base.Machine"),
        ("", "import", "/src.plant.base.check"),
        ("start", "call", "/src.plant.base.check"),
        ("start", "call", "/src.plant.pump.Motor.run"),
        ("Motor", "inherits", "/src.plant.base.Machine"),
        ("Motor", "inherits", "/src.plant..valves.Valve"),
        ("Motor.run", "call", "/src.plant.pump.Motor.stop"),
    }


@pytest.mark.parametrize(
    ("name", "text", "title", "headings", "links"),  # of these some that test_symbols.py does not resolve
    [
        (
            "pump/motor.go",
            GO,
            "pump/motor.go",
            {"": 1, "Motor": 6, "Motor.Start": 12},
            {("Motor.Start", "example.com/plant/store.Store.Save"), ("Motor", "/pump~Motor~Base")},
        ),
        (
            "src/com/acme/Motor.java",
            JAVA,
            "com.acme.Motor",
            {"": 1, "Motor": 3, "Motor.run": 7, "Motor.helper": 14},
            {("Motor.run", "com.acme.store.Store.save"), ("Motor.run", "/com.acme~Motor~Gauge")},
        ),
        (
            "crates/my-pump/src/motor.rs",
            RUST,
            "crates::my_pump::motor",
            {"": 1, "Motor": 4, "Motor::start": 8, "Motor::open": 16, "tests::starts": 21},
            {
                ("", "crate.store"),
                ("", "crate.store.Store"),
                ("Motor", "crate.store.Open"),
                ("Motor::start", "/crates.my_pump.motor.gear.turn"),
                ("Motor::start", "crate.store.open"),
                ("tests::starts", "/crates.my_pump.motor.Motor.new"),
            },
        ),
        (
            "src/motor.cc",
            CPP,
            "src/motor.cc",
            {"": 1, "pump::Motor::start": 4, "pump::Local": 10, "pump::Local::go": 11},
            {
                ("pump::Motor::start", "/~pump::Motor~util.log"),
                ("pump::Local", "/~pump::Local~Motor"),
                ("pump::Local::go", "/~pump::Local~Gauge"),
            },
        ),
        (
            "src/pump/motor.ts",
            TYPESCRIPT,
            "src/pump/motor.ts",
            {"": 1, "Motor": 3, "Motor.start": 7, "Motor.stop": 13, "helper": 15},
            {
                ("Motor.start", "/src/pump/base#Gauge.read"),
                ("Motor.start", "/src/util/index.js#.log"),
                ("Motor.stop", "/src.pump.motor.helper"),
                ("helper", "/src/pump/base#Gauge"),
            },
        ),
        (
            "app.jsx",
            JAVASCRIPT,
            "app.jsx",
            {"": 1, "app.use": 4, "create": 9},
            {
                ("", "/lib/doors#close"),
                ("app.use", "/lib/doors#open"),
                ("app.use", "/lib/doors#close"),
                ("app.use", "/store#default.View"),
                ("create", "/store#default"),
            },
        ),
    ],
)
def test_languages(name, text, title, headings, links):
    document = _read(name, text)
    assert document.title == title
    assert {section.heading: section.line for section in document.sections} == headings
    assert links <= {(heading, target) for heading, _, target in _links(document)}


def test_tests_link_to_what_they_test():
    text = "from pump import Motor\n\ndef make(): ...\n\ndef test_fast_start():\n    make()\n    Motor().start()\n"
    assert _links(_read("tests/test_pump.py", text)) == {
        ("", "import", "pump.Motor"),
        ("test_fast_start", "call", "/tests.test_pump.make"),
        ("test_fast_start", "tests", "pump.Motor"),
        ("test_fast_start", "tests", ".start"),
        ("test_fast_start", "tests", "..fast_start"),
    }


def test_long_functions_are_cut_at_statements_and_no_line_is_lost():
    body = "".join(f"    if x > {i}:\n        y = {i}\n        z = (\n            {i},\n        )\n" for i in range(50))
    document = _read("a.py", f"def f(x):\n{body}    return y\n")
    blocks = document.sections[1].blocks
    assert "\n".join(block.text for block in blocks) == f"def f(x):\n{body}    return y"
    assert max(block.text.count("\n") + 1 for block in blocks) <= MAX_BLOCK_LINES
    assert {block.text.split("\n")[0][:8] for block in blocks[1:]} == {"    if x"}


def test_the_same_name_twice():
    text = "class A:\n    @property\n    def x(self): ...\n    @x.setter\n    def x(self, y): ...\n    z = 1\n"
    "    def x(self): ...\n"
    document = _read("a.py", text)
    anchors = [section.anchors for section in document.sections]
    assert anchors == [(), ("A",), ("A.x",)]
    document = _read("a.py", "def f(): ...\ndef g(): ...\ndef f(): ...\n")
    assert [section.anchors for section in document.sections] == [(), ("f",), ("g",), ("f-1",)]


def test_a_file_of_imports_alone_shows_them():
    (section,) = _read("pump/__init__.py", "from .motor import Motor\n").sections
    assert section.blocks[0].text == "from .motor import Motor"
    assert section.blocks[0].links


def test_minified_and_generated_files_are_dropped():
    assert _read("a.js", "var a=1;" * 1000).dropped == {"minified files": 1}
    document = _read("a.go", "// Code generated by x. DO NOT EDIT.\npackage a\nfunc F() {}\n")
    assert (document.dropped, document.sections) == ({"generated files": 1}, ())


@pytest.mark.parametrize("suffix", sorted(suffix for suffix, reader in READERS.items() if reader.startswith("code.")))
def test_no_bytes_are_an_error(suffix):
    choose = random.Random(suffix)
    whole = "\n".join((PYTHON, GO, JAVA, RUST, CPP, TYPESCRIPT, JAVASCRIPT)).encode()
    texts = [whole[choose.randrange(3000) :][: choose.randrange(3000)] for _ in range(20)]
    for text in texts[:10]:
        changed = bytearray(text)
        for _ in range(30 if changed else 0):
            changed[choose.randrange(len(changed))] = choose.choice(b"(){}[]<>\"'`:;,\n\xff")
        texts.append(bytes(changed))
    deep = 5000
    texts += [b"(" * deep, b"f(" * deep + b")" * deep, b"a" + b".b()" * deep, b"a<\n" * deep, b"{\n" * deep]
    texts.append(b"x" * 10**6)
    for text in (*texts, b"", b"\n", b"\0" * 100, choose.randbytes(1000)):
        try:
            documents = read_code(text, f"a/b{suffix}")
        except UnreadableError:
            continue
        for section in (section for document in documents for section in document.sections):
            assert all(block.text.strip() and 1 <= block.line <= text.count(b"\n") + 1 for block in section.blocks)
            assert 1 <= section.line <= section.end <= text.count(b"\n") + 1
