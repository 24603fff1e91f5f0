#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draw ten sentences, comments or commit subjects, to be read as they stand.

The same seed draws the same ten of the same tree. Sentences are those of README,
pages and manuals, with a stop at their end.

draw.py SEED sentences
draw.py SEED comments
draw.py SEED subjects [RANGE]   commits of this range; all without it
"""
import itertools
import random
import re
import subprocess
import sys

import language

COUNT = 10
WORDS_MIN = 5  # a name, an option or a number is no sentence
PAGES = ("README.md", "SECURITY.md", "examples/README.md", "plugin/vllm/README.md", "tools/pages/")


def output_of(*command):
    return subprocess.run(command, cwd=language.ROOT, check=True, capture_output=True, text=True).stdout


def manual_paragraphs(path):
    """Join lines of the rendered manual that are indented alike, but for code."""
    text = re.sub(".\b", "", output_of("mandoc", "-T", "utf8", "-O", "width=1000", path))
    text = re.sub(r".*[;{}]( */\*.*)?$", "", text, flags=re.MULTILINE)
    for _, lines in itertools.groupby(text.splitlines(), lambda line: len(line) - len(line.lstrip())):
        yield 0, " ".join(line.strip().lstrip("/* ") for line in lines)


def sentences():
    for path in language.listed():
        if path.startswith("tools/") and path.endswith((".1", ".3", ".5", ".7")):
            paragraphs = manual_paragraphs(path)
        elif path.startswith(PAGES):
            text = re.sub("^#.*", "", (language.ROOT / path).read_text(), flags=re.MULTILINE)
            paragraphs = language.markdown_paragraphs(text)
        else:
            continue
        for _, sentence in language.sentences(paragraphs):
            if sentence.endswith((".", "?", ":")) and len(language.words(sentence)) >= WORDS_MIN:
                yield path, sentence.strip("| ")


def comments():
    for path in language.listed():
        if not language.is_page(path) or path.endswith(".h"):
            for block in language.blocks(path):
                yield f"{path}:{block.line}", " ".join(block.text.split())


def subjects(commits="HEAD"):
    for line in output_of("git", "log", "--no-merges", "--format=%h %s", commits).splitlines():
        yield line.split(" ", 1)


def main(seed, kind, *commits):
    drawn_from = {"sentences": sentences, "comments": comments, "subjects": subjects}[kind]
    found = list({text: (place, text) for place, text in drawn_from(*commits)}.values())
    for place, text in random.Random(int(seed)).sample(found, min(COUNT, len(found))):
        print(f"{place}: {text}")
    print(f"drawn of {len(found)} {kind}, seed {seed}")


if __name__ == "__main__":
    main(*sys.argv[1:])
