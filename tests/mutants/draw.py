#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw mutants at random, over whole rooms of the product.

  draw.py SEED COUNT [ROOM...]     a table for tests/mutants.sh --table

A room is a folder's name (hold, shm ...); without one, the whole product is
drawn from. Each mutant changes one place:

  negate   a condition of if, while or ?: is negated
  bound    < and <=, > and >= are exchanged, or a `+ 1` or `- 1` is left out
  logic    && and || are exchanged
  term     one operand of && or || is left out
  drop     a statement that calls or assigns is left out
  swap     two neighbouring arguments of a call are exchanged
  zero     a function returns 0 in the place of what it computed

Each kind is drawn as often as the others, its places evenly over all files. A
mutant that does not compile, or whose machine code is that of the file as it is,
is drawn again. Log lines, probes and assertions are left alone. The tests of a row are
those of the room's folder, then all others.
"""

import collections
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import mutants  # pylint: disable=wrong-import-position

ROOT = mutants.ROOT
QUIET = re.compile(r"kvpull_(debug|info|warn|error|check|assert|log|detail_set)\b|KVPULL_PROBE\d")
OPEN = {"(": ")", "[": "]", "{": "}"}
FLAGS = (
    "-std=c11 -D_GNU_SOURCE -Iinclude -I. -O1 -DKVPULL_DEBUG -fPIC"
    " -Werror=incompatible-pointer-types -Werror=int-conversion"
    " -Werror=implicit-function-declaration"
).split() + ['-DKVPULL_VERSION="0"']

# kind, function, first and end of the tokens that are replaced, by which text
Place = collections.namedtuple("Place", "kind function first end new")


def closing(words, at):
    """The index of the bracket that closes the one at `at`."""
    depth = 0
    for end in range(at, len(words)):
        depth += words[end] in OPEN
        depth -= words[end] in OPEN.values()
        if depth == 0:
            return end
    raise ValueError("unbalanced")


def text_of(source, first, end):
    text = source.text[source.tokens[first].begin : source.tokens[end - 1].end]
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", text)


def operands(words, first, end):
    """[(first, end)] of && or || at the top of an expression, and the operator."""
    for operator in ("||", "&&"):
        parts = []
        begin = at = first
        while at < end:
            if words[at] in OPEN:
                at = closing(words, at)
            elif words[at] == operator:
                parts.append((begin, at))
                begin = at + 1
            at += 1
        if parts:
            return parts + [(begin, end)], operator
    return [], ""


def conditions(source, function, first, end):
    """negate, logic and term of the expression [first, end)."""
    words = source.words
    text = text_of(source, first, end)
    yield Place("negate", function, first, end, f"!({text})")
    parts, operator = operands(words, first, end)
    other = {"&&": "||", "||": "&&"}.get(operator)
    for left, right in zip(parts, parts[1:]):
        sides = [text_of(source, *left), text_of(source, *right)]
        yield Place(
            "logic", function, left[0], right[1], f" {other} ".join(sides)
        )
        yield Place("term", function, left[0], right[1], sides[1])
        yield Place("term", function, left[0], right[1], sides[0])


def of_call(source, function, at, limit):
    """swap: the name of a call is at `at`."""
    words = source.words
    end = closing(words, at + 1)
    commas = [at + 1]
    inner = at + 2
    while inner < end:
        if words[inner] in OPEN:
            inner = closing(words, inner)
        elif words[inner] == ",":
            commas.append(inner)
        inner += 1
    commas.append(end)
    for left, middle, right in zip(commas, commas[1:], commas[2:]):
        one = text_of(source, left + 1, middle)
        two = text_of(source, middle + 1, right)
        if one != two and right < limit:
            yield Place("swap", function, left + 1, right, f"{two}, {one}")


def of_statement(source, function, first, end):
    """drop and zero: the statement is [first, end), with its semicolon."""
    words = source.words[first:end]
    if words[0] == "return" and len(words) > 2 and words[1:] != ["0", ";"]:
        yield Place("zero", function, first, end, "return 0;")
    is_call = re.fullmatch(r"\w+", words[0]) and words[1] == "("
    if words[:3] == ["(", "void", ")"]:
        is_call = len(words) > 5 and "(" in words[4:]
    assigns = {"=", "+=", "-=", "|=", "&=", "++", "--"} & set(words)
    declares = len(words) > 1 and all(
        re.fullmatch(r"\w+|\*", word) for word in words[:2]
    )
    if is_call or (assigns and not declares):
        yield Place("drop", function, first, end, "(void)0;")


def of_function(source, function, first, end):
    words = source.words
    body = first
    while words[body] != "{":
        body += 1
    begin = body + 1  # of a statement
    at = body + 1
    while at < end - 1:
        word = words[at]
        if source.tokens[at].directive:
            at += 1
            begin = at
            continue
        if word in ("if", "while", "switch", "for") and words[at + 1] == "(":
            close = closing(words, at + 1)
            if word in ("if", "while"):
                yield from conditions(source, function, at + 2, close)
            yield from inside(source, function, at + 2, close)
            at = begin = close + 1
            continue
        if word in ("{", "}", "else", "do") or word == ":":
            begin = at + 1
        if word in ("(", "["):
            at = closing(words, at) + 1
            continue
        if word == ";":
            if at > begin and not QUIET.match(words[begin]):
                yield from of_statement(source, function, begin, at + 1)
                yield from inside(source, function, begin, at)
            begin = at + 1
        at += 1


def inside(source, function, first, end):
    """swap and bound of what stands in [first, end)."""
    words = source.words
    other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
    for at in range(first, end):
        if words[at] in other and at + 1 < end:
            yield Place("bound", function, at, at + 1, other[words[at]])
        if words[at] in ("+", "-") and words[at + 1 : at + 2] == ["1"]:
            yield Place("bound", function, at, at + 2, "")
        is_name = re.fullmatch(r"[a-z]\w*", words[at])
        if is_name and at + 1 < end and words[at + 1] == "(":
            if words[at] not in ("sizeof", "return", "if", "while", "for"):
                yield from of_call(source, function, at, end + 1)
        if words[at] == "return" and at == first:
            parts, _ = operands(words, at + 1, end)
            if parts:
                yield from conditions(source, function, at + 1, end)


def change_of(source, place, file):
    """The place as a change whose `old` stands once in the function."""
    first, end = place.first, place.end
    spans = source.spans[place.function]
    low, high = next(span for span in spans if span[0] <= first < span[1])
    while len(source.find(place.function, source.words[first:end])) != 1:
        first = max(first - 1, low)
        end = min(end + 1, high)
    before = text_of(source, first, place.first) if first < place.first else ""
    after = text_of(source, place.end, end) if end > place.end else ""
    new = " ".join(part for part in (before, place.new, after) if part)
    return mutants.Change(
        file, place.function, text_of(source, first, end), new, "drawn"
    )


def code_of(file, text):
    """The machine code of a text of that file; None: it does not compile."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "mutant.c"
        path.write_text(text)
        made = pathlib.Path(folder) / "mutant.o"
        command = ["gcc", *FLAGS, f"-iquote{(ROOT / file).parent}", "-c"]
        command += ["-o", str(made), str(path)]
        command += shlex.split(os.environ.get("CPPFLAGS", ""))
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
        return None if done.returncode else made.read_bytes()


def tests_of(folder):
    """All unit tests, those of the folder first."""
    folder = {"progress": "worker"}.get(folder, folder)
    paths = sorted((ROOT / "tests" / "unit").glob("*/test_*.c"))
    paths.sort(key=lambda path: path.parent.name != folder)
    return [path.stem for path in paths]


def places_of(rooms):
    """[(file, source, place)] of these rooms, or of all."""
    found = []
    for path in sorted(ROOT.glob("*/*.c")) + sorted(ROOT.glob("*/*/*.c")):
        file = path.relative_to(ROOT)
        if file.parts[0] in ("examples", "tests", "tools"):
            continue
        if rooms and file.parent.name not in rooms:
            continue
        source = mutants.Source(path.read_text())
        for function, spans in source.spans.items():
            if function == mutants.OUTSIDE:
                continue
            for place in of_function(source, function, *spans[0]):
                found.append((str(file), source, place))
    return found


def row_of(name, file, source, place, change):
    line = source.text.count("\n", 0, source.tokens[place.first].begin) + 1
    tests = tests_of(pathlib.PurePath(file).parent.name)
    return (
        f"{name} | {place.kind} at {file}:{line} | {' '.join(tests)}\n"
        f"\t{change.file} | {change.function} | {change.old} => {change.new}\n"
    )


def draw(seed, count, rooms):
    generator = random.Random(seed)
    places = places_of(rooms)
    generator.shuffle(places)
    by_kind = collections.defaultdict(list)
    for place in places:
        by_kind[place[2].kind].append(place)
    print(f"# {count} of {len(places)} places of {' '.join(rooms) or 'all rooms'}, seed {seed}")
    plain = {}
    drawn = 0
    while drawn < count and by_kind:
        kind = generator.choice(sorted(by_kind))
        file, source, place = by_kind[kind].pop()
        if not by_kind[kind]:
            del by_kind[kind]
        if file not in plain:
            plain[file] = code_of(file, source.text)
        change = change_of(source, place, file)
        if " => " in change.old + change.new:
            continue
        code = code_of(file, mutants.changed(source, [change]))
        if code is None or code == plain[file]:
            continue
        drawn += 1
        print(row_of(f"drawn_{drawn:03}", file, source, place, change), end="")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    draw(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
