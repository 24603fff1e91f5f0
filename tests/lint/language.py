#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check how comments and pages are worded.

A comment that stands alone on its lines names its subject. A comment that
begins with a pronoun or a relative ("who", "what", "of those") refers to a
sentence that the reader has not seen. At most 2 % of an area's comments may
begin so: tests/lint/language.limits lists the areas that still have more.
Sentences of public headers and pages have at most 35 words.

language.py [FILE...]   check these files, each against the limit of 2 %
language.py --counts    print the share of each area and end
language.py --list      print each comment that begins so
"""
import ast
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMITS = ROOT / "tests/lint/language.limits"
SHARE_MAX = 2.0  # per cent of an area's comments
WORDS_MAX = 35  # of a sentence in public headers and pages

ANAPHOR = re.compile(
    r"(?:what|one|ones|of|its|it|who|whose|whom|whoever|whatever|which|that|those"
    r"|else|nobody|somebody|they|them|their|theirs|he|his|others?|the others|the other (?:one|is|has|was|may|can)"
    r"|as long|all that|all of (?:it|them))\b(?!-)",
    re.IGNORECASE)


class Block:
    def __init__(self, path, line, text):
        self.path = path
        self.line = line
        self.text = text


def c_blocks(path, text):
    """Comments that begin a line of their own. Notes behind code do not."""
    for match in re.finditer(r"^[ \t]*(/\*.*?\*/)", text, re.S | re.M):
        body = match.group(1)[2:-2]
        lines = [re.sub(r"^\s*\*+ ?", "", line).strip() for line in body.split("\n")]
        yield Block(path, text.count("\n", 0, match.start(1)) + 1,
                    "\n".join(lines).strip("* \n"))


def hash_blocks(path, text):
    """Runs of lines that begin with a hash sign."""
    run, began = [], 0
    for number, line in enumerate(text.split("\n") + [""], 1):
        stripped = line.strip()
        if stripped.startswith("#") and not stripped.startswith("#!"):
            if not run:
                began = number
            run.append(stripped.lstrip("#").strip())
            if run[0].startswith("SPDX-License-Identifier"):
                run = []
        elif run:
            yield Block(path, began, "\n".join(run))
            run = []


def docstrings(path, text):
    documented = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node):
            yield Block(path, node.body[0].lineno, ast.get_docstring(node))


def blocks(path):
    text = (ROOT / path).read_text(errors="replace")
    if path.endswith((".c", ".h", ".cpp", ".cu")):
        found = c_blocks(path, text)
    elif path.endswith(".py"):
        found = list(hash_blocks(path, text)) + list(docstrings(path, text))
    else:
        found = hash_blocks(path, text)
    return [block for block in found
            if re.search(r"[A-Za-z]", block.text) and
            not block.text.startswith(("SPDX", "clang-format", "shellcheck"))]


def is_anaphoric(block):
    return ANAPHOR.match(block.text.lstrip("( ")) is not None


def prose(path):
    """Sentences of a page or of a public header, each with its line."""
    text = (ROOT / path).read_text(errors="replace")
    paragraphs = []
    if path.endswith(".h"):
        for block in blocks(path):
            at, lines = block.line, block.text.split("\n")
            paragraphs += split_paragraphs(lines, at, r"^(?:@|\.\w|\s*[-*|]|\s*$)")
    elif path.endswith(".md"):
        paragraphs = markdown_paragraphs(text)
    else:
        lines = list(mdoc_lines(text))
        paragraphs = split_paragraphs(lines, 1, r"^\s*$")
    yield from sentences(paragraphs)


def markdown_paragraphs(text):
    return split_paragraphs(markdown_lines(text), 1, r"^\s*(?:[-*|#>]|\d+\.|$)")


def sentences(paragraphs):
    """Split paragraphs, and cells of a table's row, into sentences."""
    for line, paragraph in paragraphs:
        for cell in re.split(r"\s\|\s|\s·\s", paragraph):
            for sentence in re.split(r"(?<=[.!?])[\"')*`]*\s+", cell):
                yield line, sentence


def mdoc_lines(text):
    """Lines of prose: macros and literal displays are blank."""
    literal = False
    for line in text.split("\n"):
        literal = line.startswith((".Bd -literal", ".Bd -unfilled")) or (
            literal and not line.startswith(".Ed"))
        yield "" if literal or line.startswith((".", "'")) else line


def markdown_lines(text):
    """Lines of prose: code, tables and pictures are blank."""
    fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            yield ""
        elif fenced or line.startswith(("    ", "\t")):
            yield ""
        else:
            yield line


def split_paragraphs(lines, first, begins):
    """Join lines; one that matches `begins` starts another paragraph."""
    found, run, at = [], [], first
    for number, line in enumerate(lines, first):
        if re.match(begins, line) and run:
            found.append((at, " ".join(run)))
            run = []
        if line.strip():
            if not run:
                at = number
            run.append(line.strip())
    if run:
        found.append((at, " ".join(run)))
    return found


def words(sentence):
    return [word for word in sentence.split() if re.search(r"[A-Za-z]", word)]


def is_page(path):
    return (path.endswith((".md", ".1", ".3", ".5", ".7")) or
            path.startswith("include/kvpull/"))


def area(path):
    parts = path.split("/")
    if parts[0] in ("plugin", "tests", "include") and len(parts) > 2:
        return "/".join(parts[:2])
    return parts[0] if len(parts) > 1 else "top"


def listed():
    suffixes = ["c", "h", "cpp", "cu", "py", "sh", "md", "1", "3", "5", "7"]
    output = subprocess.run([ROOT / "tests/lint/files.sh", *suffixes], check=True,
                            capture_output=True, text=True).stdout
    return [path for path in output.split()
            if not path.startswith(("tests/compat/previous", "tests/fuzz/corpus/"))]


def limits():
    found = {}
    if LIMITS.exists():
        for line in LIMITS.read_text().split("\n"):
            fields = line.split()
            if len(fields) == 3 and not line.startswith("#"):
                found[fields[0], fields[1]] = float(fields[2])
    return found


def main(arguments):
    flags = {argument for argument in arguments if argument.startswith("--")}
    named = [argument for argument in arguments if argument not in flags]
    known = {} if named else limits()
    by_area, bad = {}, []
    for path in named or listed():
        place = area(path)
        counts = by_area.setdefault(place, [0, 0, 0])
        if not path.endswith((".md", ".1", ".3", ".5", ".7")):
            for block in blocks(path):
                counts[0] += 1
                if is_anaphoric(block):
                    counts[1] += 1
                    bad.append((place, path, block.line, "comment", block.text.split("\n")[0]))
        if is_page(path):
            for line, sentence in prose(path):
                if len(words(sentence)) > WORDS_MAX:
                    counts[2] += 1
                    bad.append((place, path, line, "sentence",
                                f"{len(words(sentence))} words: {sentence[:90]}"))
    failures = 0
    for place, (total, vague, long) in sorted(by_area.items()):
        share = 100.0 * vague / total if total else 0.0
        too_vague = share > known.get((place, "comments"), SHARE_MAX) and vague > 1
        too_long = long > known.get((place, "sentences"), 0)
        if "--counts" in flags:
            print(f"{place:<22} {total:5d} comments, {vague:4d} vague ({share:4.1f} %), {long:3d} long sentences")
        elif too_vague or too_long:
            failures += 1
            for _, path, line, kind, text in [row for row in bad if row[0] == place]:
                if (kind == "comment" and too_vague) or (kind == "sentence" and too_long):
                    print(f"language: {path}:{line} {kind}: {text}")
            if too_vague:
                print(f"language: {place}: {share:.1f} % of {total} comments begin without naming their subject")
            if too_long:
                print(f"language: {place}: {long} sentences of more than {WORDS_MAX} words")
    if "--list" in flags:
        for _, path, line, kind, text in bad:
            print(f"{path}:{line}: {kind}: {text}")
    if "--counts" in flags:
        total = sum(row[0] for row in by_area.values())
        vague = sum(row[1] for row in by_area.values())
        print(f"all: {total} comments, {vague} vague ({100.0 * vague / max(total, 1):.1f} %), "
              f"{sum(row[2] for row in by_area.values())} long sentences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
