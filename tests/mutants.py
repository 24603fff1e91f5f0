#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutants of the product: tables of changes that a test must notice.

A table tests/mutants/ROOM.txt has the mutants of one folder. A row:

    name | what breaks | tests that must fail, the fastest first
    	file | function | old => new

The lines below the name are indented by one tab; a mutant has one or more of
them, and all are applied or none. A line that is indented by two tabs goes on
with the line above. `old` is matched by C tokens, so blanks, line breaks and
comments do not count; it must stand exactly once in the function. An empty `new`
deletes. The function `-` stands for all that is outside of functions.

  mutants.py list [NAME...]        name, tests and what breaks, tabs between them
  mutants.py check [--match-only]  each row matches once, and compiles
  mutants.py apply NAME TREE       change the files of TREE; print their names
  mutants.py --table FILE ...      the rows of that file, not of tests/mutants/

`check` compiles with the words of $FLAGS. Mutants of one file that touch
different functions are compiled at once, and one by one if that fails.
"""

import collections
import concurrent.futures
import functools
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ROOT / "tests" / "mutants"
OUTSIDE = "-"
ROW_CHARACTERS_MAX = 120
FLAGS = """-std=c11 -D_GNU_SOURCE -Iinclude -I. -DKVPULL_VERSION='"0"'"""

TOKEN = re.compile(
    r"""(?P<blank>(?:[ \t\r\f\v]|\\\n)+)
    |(?P<newline>\n)
    |(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<token>"(?:[^"\\\n]|\\.)*"
        |'(?:[^'\\\n]|\\.)*'
        |\.?[0-9](?:[eEpP][+-]|[\w.])*
        |\w+
        |\.\.\.|<<=|>>=|->|\+\+|--|<<|>>|[<>=!+\-*/%&|^]=|&&|\|\||\#\#
        |.)""",
    re.VERBOSE | re.DOTALL,
)

Token = collections.namedtuple("Token", "text begin end directive")
# words and columns of one line below a mutant's name
Change = collections.namedtuple("Change", "file function old new where")
Mutant = collections.namedtuple("Mutant", "name broken tests changes where")


class Stale(Exception):
    """A row that does not fit the sources, or no row at all."""


def tokens_of(text):
    """The tokens of C text; `directive` is set in lines of the preprocessor."""
    tokens = []
    directive = False
    line_begins = True
    for match in TOKEN.finditer(text):
        if match.lastgroup == "newline":
            directive = False
            line_begins = True
        elif match.lastgroup == "token":
            if line_begins and match.group() == "#":
                directive = True
            line_begins = False
            tokens.append(Token(match.group(), *match.span(), directive))
    return tokens


class Source:
    """A C file, cut into its functions and what is between them."""

    def __init__(self, text):
        self.text = text
        self.tokens = tokens_of(text)
        self.words = [token.text for token in self.tokens]
        self.spans = collections.defaultdict(list)  # function -> [(first, end)]
        self._cut()

    def _cut(self):
        first = 0  # of the declaration that we are in
        between = 0  # where what is outside of functions began
        depth = 0
        depths = []  # at each #if that is open
        function = None
        at = 0
        while at < len(self.tokens):
            if self.tokens[at].directive:
                begin = at
                at = self._directive(at, depths, depth)
                depth = self._depth_after(begin, depths, depth)
                if first == begin:
                    first = at
                continue
            word = self.words[at]
            if word == "{":
                if depth == 0:
                    if at and self.words[at - 1] == '"C"':
                        depth -= 1
                    else:
                        function = self._name_before(first, at)
                depth += 1
            elif word == "}" and depth > 0:
                depth -= 1
                if depth == 0 and function:
                    self.spans[OUTSIDE].append((between, first))
                    self.spans[function].append((first, at + 1))
                    function = None
                    between = first = at + 1
            if depth == 0 and word in (";", "}"):
                first = at + 1
            if depth == 0 and word == "{":
                first = at + 1
            at += 1
        self.spans[OUTSIDE].append((between, len(self.tokens)))

    def _directive(self, at, depths, depth):
        """Return the first token after the line that begins at `at`."""
        kind = self.words[at + 1] if at + 1 < len(self.words) else ""
        if kind in ("if", "ifdef", "ifndef"):
            depths.append(depth)
        end = at + 1
        while end < len(self.tokens) and self.tokens[end].directive:
            gap = self.text[self.tokens[end - 1].end : self.tokens[end].begin]
            if "\n" in gap.replace("\\\n", ""):
                break
            end += 1
        return end

    def _depth_after(self, at, depths, depth):
        """Each branch of an #if begins at the depth of the #if."""
        kind = self.words[at + 1] if at + 1 < len(self.words) else ""
        if kind in ("else", "elif") and depths:
            return depths[-1]
        if kind == "endif" and depths:
            depths.pop()
        return depth

    def _name_before(self, first, brace):
        """The function whose body opens at `brace`, or None."""
        if brace == first or self.words[brace - 1] != ")":
            return None
        open_brackets = 0
        for at in range(brace - 1, first, -1):
            open_brackets += (self.words[at] == ")") - (self.words[at] == "(")
            if open_brackets == 0:
                name = self.words[at - 1]
                return name if re.fullmatch(r"\w+", name) else None
        return None

    def find(self, function, words):
        """Where `words` stand in the function: [(first, end)] of tokens."""
        found = []
        for begin, end in self.spans.get(function, []):
            for at in range(begin, end - len(words) + 1):
                if self.words[at : at + len(words)] == words:
                    found.append((at, at + len(words)))
        return found


def changed(source, changes):
    """The text of `source` after all changes; Stale if one does not fit."""
    edits = []
    for change in changes:
        words = [token.text for token in tokens_of(change.old)]
        found = source.find(change.function, words)
        if len(found) != 1:
            raise Stale(fault(source, change, len(found)))
        first, end = found[0]
        edits.append(
            (source.tokens[first].begin, source.tokens[end - 1].end, change)
        )
    edits.sort(key=lambda edit: edit[0])
    text = ""
    done = 0
    for begin, end, change in edits:
        if begin < done:
            raise Stale(f"{change.where}: two changes of one mutant overlap")
        text += source.text[done:begin] + change.new
        done = end
    return text + source.text[done:]


def fault(source, change, count):
    """Why a change that was found `count` times does not fit."""
    where = f"{change.where}: {change.file}"
    if change.function != OUTSIDE and change.function not in source.spans:
        return f"{where} has no function {change.function}"
    place = f"{where}, {change.function}"
    if count == 0:
        return f"{place}: nowhere: {change.old}"
    return f"{place}: {count} times, write more of the statement: {change.old}"


def lines_of(path):
    """Pairs of (where, line) without comments; continued lines are joined."""
    joined = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{os.path.relpath(path, ROOT)}:{number}"
        is_ours = path.parent == TABLES
        if is_ours and len(line.expandtabs(8)) > ROW_CHARACTERS_MAX:
            raise Stale(
                f"{where}: over {ROW_CHARACTERS_MAX} characters: go on in the"
                " next line, two tabs"
            )
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("\t\t"):
            if not joined:
                raise Stale(f"{where}: goes on with nothing")
            joined[-1] = (joined[-1][0], joined[-1][1] + " " + line.strip())
        else:
            joined.append((where, line))
    return joined


def change_of(where, line):
    fields = [field.strip() for field in line.strip().split(" | ", 2)]
    if len(fields) != 3:
        raise Stale(f"{where}: wanted file | function | old => new")
    sides = (fields[2] + " ").split(" => ")
    if len(sides) != 2 or not sides[0].strip():
        raise Stale(f"{where}: wanted one old => new, and an old")
    return Change(fields[0], fields[1], sides[0].strip(), sides[1].strip(), where)


def table(path):
    """The mutants of one table."""
    mutants = []
    for where, line in lines_of(path):
        if line.startswith("\t"):
            if not mutants:
                raise Stale(f"{where}: no mutant above this change")
            mutants[-1].changes.append(change_of(where, line))
            continue
        fields = [field.strip() for field in line.split(" | ")]
        if len(fields) != 3 or not all(fields):
            raise Stale(f"{where}: wanted name | what breaks | tests")
        if not re.fullmatch(r"[a-z][a-z0-9_]*", fields[0]):
            raise Stale(f"{where}: a name is of a-z, 0-9 and _: {fields[0]}")
        mutants.append(
            Mutant(fields[0], fields[1], fields[2].split(), [], where)
        )
    return mutants


@functools.lru_cache(maxsize=None)
def all_mutants(other=None):
    """name -> mutant, of all tables, or of one other file."""
    mutants = {}
    for path in [other] if other else sorted(TABLES.glob("*.txt")):
        for mutant in table(path):
            if mutant.name in mutants:
                raise Stale(
                    f"{mutant.where}: {mutant.name} stands also at"
                    f" {mutants[mutant.name].where}"
                )
            if not mutant.changes:
                raise Stale(f"{mutant.where}: {mutant.name} changes nothing")
            room = pathlib.PurePath(mutant.changes[0].file).parent.name
            if room != path.stem and not other:
                raise Stale(
                    f"{mutant.where}: {mutant.name} is of the room {room}"
                )
            mutants[mutant.name] = mutant
    if not mutants:
        raise Stale(f"no mutants in {other or TABLES}")
    return mutants


def named(names, other):
    mutants = all_mutants(other)
    for name in names:
        if name not in mutants:
            raise Stale(f"{name}: no such mutant in tests/mutants/*.txt")
    return [mutants[name] for name in names] or list(mutants.values())


@functools.lru_cache(maxsize=None)
def source_of(tree, file):
    path = pathlib.Path(tree) / file
    if not path.is_file():
        return None
    return Source(path.read_text())


def files_after(mutant, tree):
    """file -> text: what the mutant makes of the files of a tree."""
    by_file = collections.defaultdict(list)
    for change in mutant.changes:
        by_file[change.file].append(change)
    texts = {}
    for file, changes in by_file.items():
        source = source_of(str(tree), file)
        if source is None:
            raise Stale(f"{changes[0].where}: there is no {file}")
        texts[file] = changed(source, changes)
        if tokens_of(texts[file]) == source.tokens:
            raise Stale(f"{changes[0].where}: {mutant.name} changes nothing")
    return texts


def batches_of(mutants):
    """Mutants of one C file each that do not touch the same function, together;
    all others alone."""
    batches = []
    open_batches = collections.defaultdict(list)
    for mutant in mutants:
        files = {change.file for change in mutant.changes}
        places = {change.function for change in mutant.changes}
        file = next(iter(files))
        if len(files) > 1 or OUTSIDE in places or not file.endswith(".c"):
            batches.append([mutant])
            continue
        for batch, taken in open_batches[file]:
            if not taken & places:
                batch.append(mutant)
                taken |= places
                break
        else:
            batch = [mutant]
            batches.append(batch)
            open_batches[file].append((batch, set(places)))
    return batches


def compiles(mutants):
    """Do the sources compile with all of these mutants in them?"""
    together = Mutant(
        mutants[0].name,
        "",
        [],
        [change for mutant in mutants for change in mutant.changes],
        mutants[0].where,
    )
    texts = files_after(together, ROOT)
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for file, text in texts.items():
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            (copy / file).write_text(text)
        for file in texts:
            if not file.endswith(".c"):
                continue
            command = ["gcc", f"-I{copy}", f"-I{copy}/include"]
            command += [f"-iquote{(ROOT / file).parent}"]
            command += shlex.split(os.environ.get("FLAGS", FLAGS))
            command += ["-w", "-fsyntax-only", str(copy / file)]
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                return done.stderr
    return ""


def compile_faults(batch):
    """What does not compile, one text a mutant."""
    if not compiles(batch):
        return []
    faults = []
    for mutant in batch:
        said = compiles([mutant])
        if said:
            faults.append(f"{mutant.where}: {mutant.name} does not compile\n{said}")
    return faults


def check(match_only, other):
    faults = []
    fitting = []
    for mutant in all_mutants(other).values():
        try:
            files_after(mutant, ROOT)
            fitting.append(mutant)
        except Stale as stale:
            faults.append(str(stale))
    for name in survivors():
        if name not in all_mutants(other) and not other:
            faults.append(f"tests/mutants/survivors: there is no mutant {name}")
    if not match_only:
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for found in pool.map(compile_faults, batches_of(fitting)):
                faults += found
    for line in faults:
        print(f"mutants: {line}")
    print(f"mutants: {len(all_mutants(other))} rows, {len(faults)} to renew")
    return 1 if faults else 0


def survivors():
    """Names of those whose survival is accepted."""
    lines = (TABLES / "survivors").read_text().splitlines()
    return [line.split()[0] for line in lines if line and line[0] != "#"]


def main(words):
    other = None
    if words[:1] == ["--table"] and len(words) > 1:
        other = pathlib.Path(words[1]).resolve()
        words = words[2:]
    try:
        if words[:1] == ["list"]:
            for mutant in named(words[1:], other):
                print(mutant.name, " ".join(mutant.tests), mutant.broken, sep="\t")
            return 0
        if words[:1] == ["check"] and words[1:] in ([], ["--match-only"]):
            return check(words[1:] == ["--match-only"], other)
        if words[:1] == ["apply"] and len(words) == 3:
            (mutant,) = named(words[1:2], other)
            for file, text in files_after(mutant, pathlib.Path(words[2])).items():
                (pathlib.Path(words[2]) / file).write_text(text)
                print(file)
            return 0
    except Stale as stale:
        print(f"mutants: {stale}")
        return 1
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
