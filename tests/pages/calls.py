#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the entries of a manual: each public call by itself, as mdoc.

An entry has the declaration, the comment, parameters, the answer, errors, threads
and an example. Declaration, comment, answer and errors come from the header;
threads from its conventions; the meaning of parameters from parameters.txt; the
example is the statement of a file in examples/ that makes the call, so it compiles
and runs. An entry that lacks a part is an error.

calls.py connector|reader
"""
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ("host.c", "pool.c", "calls.c")
LINE_MAX = 75  # of what is shown as it stands, so that a page has 80 columns
faults = []


def fault(text):
    faults.append(f"calls: {text}")


def escaped(line):
    line = line.replace("\\", "\\e")
    return "\\&" + line if line.startswith((".", "'")) else line


def display(lines):
    for line in lines:
        if len(line) > LINE_MAX:
            fault(f"a line of more than {LINE_MAX} columns: {line.strip()}")
    return [".Bd -literal", *map(escaped, lines), ".Ed"]


def sentences(text):
    """Running text: a sentence a line, as mdoc likes it."""
    return [escaped(line) for line in re.sub(r"([.?]) (?=[A-Z(])", r"\1\n", text).split("\n")]


def comment_of(text):
    """Return a comment without its stars."""
    lines = [re.sub(r"^\s*(?:/\*+|\*(?!/))? ?", "", line) for line in text.split("\n")]
    return re.sub(r"\s*\*/\s*$", "", "\n".join(lines)).strip("\n")


class Call:
    def __init__(self, page, table, comment, declaration):
        self.comment = comment
        flat = re.sub(r"\s+", " ", declaration).strip()
        kind, self.name, arguments = re.match(r"(.*?)\(\*(\w+)\)\((.*)\);", flat).groups()
        self.half = table if table in ("scheduler", "worker") else None
        self.title = f"{self.half}->{self.name}" if self.half else self.name
        self.kind = kind.strip()
        self.arguments = [row.strip() for row in arguments.split(",")]
        self.page = page

    def signature(self):
        head = f"{self.kind} {self.title}(".replace("* ", "*")
        one = head + ", ".join(self.arguments) + ");"
        if len(one) <= LINE_MAX:
            return [one]
        return [head, *("    " + row + "," for row in self.arguments[:-1]),
                "    " + self.arguments[-1] + ");"]

    def parts(self):
        """Return the comment's running text, and what it says of the answer."""
        found = re.search(r"(?:^|(?<=\s))Return(?=[: ])", self.comment)
        if not found:
            return self.comment, ""
        return self.comment[:found.start()].strip(), self.comment[found.start():].strip()


def calls_of(page):
    text = (ROOT / f"include/kvpull/{page}.h").read_text()
    for table, body in re.findall(r"^struct kvpull_(\w+)_ops \{\n(.*?)^\};", text, re.S | re.M):
        for comment, declaration in re.findall(
                r"(?:\t(/\*\*(?:(?!\*/).)*\*/)\n)?(\t[^\n]*\(\*\w+\)\([^;]*;)", body, re.S):
            yield Call(page, table, comment_of(comment), declaration)


def blocking(page):
    """Return the words of the sentence that names the calls which block."""
    text = comment_of((ROOT / f"include/kvpull/{page}.h").read_text().split("*/")[1])
    return re.findall(r"\w+", re.search(r"Nothing\s+blocks\s+but\s+([^.]*)\.", text)[1])


def meanings(page):
    """Return the rows of a page's section: name or call.name, meaning."""
    section = (ROOT / "tests/pages/parameters.txt").read_text().split(f"[{page}]\n")[1].split("\n[")[0]
    return dict(re.split(r" \| ", row) for row in section.split("\n") if row)


def errors():
    """Return name and text of each error of common.h."""
    text = (ROOT / "include/kvpull/common.h").read_text().replace("\\\n", " ")
    return dict(re.findall(r'X\((\w+), -\d+,\s*"([^"]*)"\)', text))


def paragraphs(text):
    """Running text as mdoc; an empty line begins a paragraph."""
    made = []
    for part in filter(str.strip, re.split(r"\n\n", text)):
        made += [".Pp"] if made else []
        made += sentences(re.sub(r"\s+", " ", part))
    return made


def answer(call, texts):
    """What is returned, then each error with its meaning."""
    _, says = call.parts()
    if call.kind == "void":
        return ["nothing."]
    if not says:
        if call.name == "error_text":
            return ["the text."]
        fault(f"{call.title} does not say what it returns")
        return []
    own = dict((name, re.sub(r"\s+", " ", text)) for name, text in re.findall(
        r"^ +KVPULL_(\w+) +((?:.|\n(?!\n|\Z))*)", says, re.M))
    running = re.sub(r"^ +KVPULL_(?:.|\n(?!\n|\Z))*", "", says, flags=re.M)
    running = re.sub(r"^Return:? ", "", running)
    made = paragraphs(re.sub(r"\n{3,}", "\n\n", running).strip())
    named = [name for name in dict.fromkeys(re.findall(r"KVPULL_(E[A-Z]+)", says)) if name in texts]
    if named:
        made.append(".Bl -tag -width Ds -compact")
        for name in named:
            made += [f".It Er KVPULL_{name}", *sentences(own.get(name, texts[name] + "."))]
        made.append(".El")
    return made


def statement(lines, at):
    """Return the statement that begins at a line, with a comment before it."""
    end, depth = at, 0
    while True:
        line = re.sub(r"/\*.*?\*/", "", lines[end])
        depth += sum(line.count(c) for c in "({") - sum(line.count(c) for c in ")}")
        if depth <= 0 and line.rstrip().endswith((";", "}")):
            break
        end += 1
    begin = at
    while re.match(r"\s*(/\*|\*)", lines[begin - 1]):
        begin -= 1
    return lines[begin:end + 1]


def example(call):
    half = f"{call.half}->" if call.half else ""
    table = "pool_ops|ops" if call.page == "reader" else "ops"
    wanted = re.compile(rf"\b(?:{table})->{half}{call.name}\(")
    other = re.compile(r"include <kvpull/" + ("reader" if call.page == "reader" else "connector"))
    for name in EXAMPLES:
        text = (ROOT / "examples" / name).read_text()
        lines = text.split("\n")
        for at, line in enumerate(lines):
            if other.search(text) and wanted.search(line):
                while not re.match(r"\t+\S", lines[at]) or re.search(r"[,(|&?:=]$|\|\|$", lines[at - 1].rstrip()):
                    at -= 1
                found = "\n".join(statement(lines, at)).replace("\t", "    ")
                return textwrap.dedent(found).split("\n")
    fault(f"{call.title} has no example in examples/{{{','.join(EXAMPLES)}}}")
    return []


def entry(call, texts, rows, used, blocks):
    text, _ = call.parts()
    if not call.comment:
        fault(f"{call.title} has no comment")
    made = [f".Ss {call.title}", *display(call.signature())]
    made += paragraphs(text)
    made += [".Pp", ".Sy Parameters:", ".Bl -tag -width Ds -compact"]
    for argument in call.arguments:
        name = re.search(r"\w+$", argument)[0]
        row = next((key for key in (f"{call.title}.{name}", name) if key in rows), None)
        if row is None:
            fault(f"{call.title}: no row of parameters.txt says what {name} is")
            continue
        used.add(row)
        made += [f".It Va {name}", escaped(rows[row]) + "."]
    made += [".El", ".Pp", ".Sy Returns:", *answer(call, texts)]
    made += [".Pp", ".Sy Threads:"]
    if call.arguments[0].startswith("struct kvpull_") or call.name == "open":
        made.append("one at a time for a handle.")
        made.append("May block." if call.name in blocks else "Never blocks.")
    else:
        made.append("any.\nNever blocks.")
    return made + [".Pp", ".Sy Example:", *display(example(call))]


def main(page):
    rows, used, texts, blocks = meanings(page), set(), errors(), blocking(page)
    made = [line for call in calls_of(page) for line in entry(call, texts, rows, used, blocks)]
    for row in sorted(rows.keys() - used):
        fault(f"parameters.txt: no call of {page}.h has {row}")
    print("\n".join(made))
    print("\n".join(faults), file=sys.stderr)
    return len(faults) > 0


sys.exit(main(sys.argv[1]))
