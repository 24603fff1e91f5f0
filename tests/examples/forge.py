#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check .github: the workflow has each stage of .ci/run, forms ask for the doctor.

forge.py   prints the result line of the other test programs
"""
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
FORMS = ROOT / ".github/ISSUE_TEMPLATE"


def faults():
    stages = re.findall(r'^\t"([a-z0-9]+) \|', (ROOT / ".ci/run").read_text(), re.M)
    job = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["stage"]
    named = job["strategy"]["matrix"]["stage"]
    if named != stages:
        yield f"ci.yml has the stages {named}, .ci/run has {stages}"
    if not any(step.get("run", "").startswith(".ci/run ") for step in job["steps"]):
        yield "ci.yml does not run .ci/run"
    for path in sorted(FORMS.glob("*.yml")):
        form = yaml.safe_load(path.read_text())
        if path.name == "config.yml":
            continue
        asked = [row["attributes"]["label"] for row in form["body"]]
        if not form["name"] or not form["description"] or "kvpull_doctor --json" not in asked:
            yield f"{path.name} does not ask for kvpull_doctor --json"


def main():
    found = list(faults())
    for fault in found:
        print(f".github: {fault}")
    print(f"{0 if found else 1} passed, {len(found)} failed, 0 skipped")
    return len(found) > 0


sys.exit(main())
