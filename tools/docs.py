#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the documentation as a site: pages, manuals, headers, a search.

Pages keep their paths, so that their links hold. What a page links to is copied;
a manual becomes a page. The site loads nothing from other hosts. A link that leads
nowhere is an error, in a page and in what was built.

docs.py FOLDER   FOLDER gets src/, mkdocs.yml and site/; it has mkdocs in venv/
"""
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAV = (
    ("Start", (
        ("kvpull", "README.md"),
        ("Tutorial", "tools/pages/tutorial.md"),
        ("How it works", "tools/pages/how-it-works.md"),
        ("Examples", "examples/README.md"),
        ("vLLM", "plugin/vllm/README.md"))),
    ("Run it", (
        ("Deployment", "tools/pages/deployment.md"),
        ("My cluster", "tools/pages/cluster.md"),
        ("Troubleshooting", "tools/pages/troubleshooting.md"),
        ("Tuning", "tools/pages/tuning.md"),
        ("Metrics and alerts", "tools/pages/metrics.md"),
        ("Upgrades", "tools/pages/upgrade.md"),
        ("Security", "SECURITY.md"))),
    ("Manuals", (
        ("Calls: connector", "tools/kvpull_connector.3"),
        ("Calls: reader", "tools/kvpull_reader.3"),
        ("Keys", "tools/kvpull.conf.5"),
        ("Counters, limits", "tools/kvpull.7"),
        ("ib_pull", "tools/ib_pull.1"),
        ("kvpull_doctor", "tools/kvpull_doctor.1"),
        ("kvpull_top", "tools/kvpull_top.1"))),
    ("Develop", (
        ("Contributing", "CONTRIBUTING.md"),
        ("Changes", "CHANGELOG.md"),
        ("Tools", "tools/README.md"),
        ("Tests", "tests/README.md"),
        ("Headers", "include/README.md"),
        ("Library", "plugin/README.md"),
        ("One node", "shm/README.md"),
        ("Between machines", "verbs/README.md"),
        ("Device memory", "cuda/README.md"),
        ("Device thread", "include/base/device.md"))),
)
PAGES = [path for _, rows in NAV for _, path in rows]
CONFIG = """site_name: kvpull
docs_dir: src
site_dir: site
use_directory_urls: false
theme: {name: readthedocs, highlightjs: false}
plugins: [search]
markdown_extensions: [tables, toc]
validation: {links: {not_found: warn, anchors: warn, absolute_links: warn, unrecognized_links: warn}}
"""
LINK = re.compile(r"\]\(([^)\s]+)\)")


def is_manual(path):
    return path[-2:-1] == "." and path[-1:].isdigit()


def manual(path):
    """Return a manual as a page: mandoc's HTML, without a head."""
    made = subprocess.run(["mandoc", "-T", "html", "-O", "fragment", ROOT / path],
                          check=True, capture_output=True, text=True).stdout
    return f"# {pathlib.Path(path).stem}({path[-1]})\n\n<div>\n{made}</div>\n"


def relinked(page, text, wanted):
    """Let links to manuals lead to their pages; note what else a page links to."""
    def lead(match):
        target, _, anchor = match[1].partition("#")
        if not target or ":" in target:
            return match[0]
        path = os.path.normpath(os.path.join(os.path.dirname(page), target))
        if path in PAGES:
            return f"]({target}{'.md' if is_manual(target) else ''}{'#' + anchor if anchor else ''})"
        wanted.add(path)
        return match[0]
    # Links in code are text.
    parts = re.split(r"(^```.*?^```$|`[^`\n]*`(?!\]))", text, flags=re.S | re.M)
    return "".join(part if at % 2 else LINK.sub(lead, part) for at, part in enumerate(parts))


def sources(folder):
    """Write the pages and what they link to."""
    pages, wanted = list(PAGES), set()
    while pages:
        page = pages.pop()
        to = folder / (page + ".md" if is_manual(page) else page)
        to.parent.mkdir(parents=True, exist_ok=True)
        if is_manual(page):
            to.write_text(manual(page))
            continue
        found = set()
        to.write_text(relinked(page, (ROOT / page).read_text(), found))
        for path in sorted(found - wanted):
            if path.endswith(".md") and (ROOT / path).is_file():
                pages.append(path)
            elif (ROOT / path).is_file():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, folder / path)
        wanted |= found


class Links(html.parser.HTMLParser):
    """Collects what a built page loads and leads to, and its anchors."""

    def __init__(self):
        super().__init__()
        self.loads, self.leads, self.anchors = [], [], set()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.update(values[key] for key in ("id", "name") if values.get(key))
        if tag == "a" and values.get("href"):
            self.leads.append(values["href"])
        elif tag in ("script", "img", "iframe", "link") and values.get("rel") != "canonical":
            self.loads += [values[key] for key in ("src", "href") if values.get(key)]


def read(path):
    links = Links()
    links.feed(path.read_text())
    return links


def dead(site):
    """Yield each link of the site that leads nowhere, and what comes from elsewhere."""
    pages = {path: read(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    for path, links in pages.items():
        for link in links.loads:
            if urllib.parse.urlsplit(link).netloc:
                yield f"{path.relative_to(site)}: loads {link}"
        for link in links.loads + links.leads:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            to = path if not parts.path else (path.parent / urllib.parse.unquote(parts.path)).resolve()
            to = to / "index.html" if to.is_dir() else to
            if not to.exists():
                yield f"{path.relative_to(site)}: {link} is not there"
            elif parts.fragment and to in pages and parts.fragment not in pages[to].anchors:
                yield f"{path.relative_to(site)}: {link} has no such place"


def main(name):
    folder = pathlib.Path(name).resolve()
    for part in ("src", "site"):
        shutil.rmtree(folder / part, ignore_errors=True)
    sources(folder / "src")
    nav = ["nav:"]
    for title, rows in NAV:
        nav += [f"- {title}:"]
        nav += [f"  - '{label}': {path}{'.md' if is_manual(path) else ''}" for label, path in rows]
    (folder / "mkdocs.yml").write_text(CONFIG + "\n".join(nav) + "\n")
    built = subprocess.run([folder / "venv/bin/mkdocs", "build", "--strict", "--quiet",
                            "--config-file", folder / "mkdocs.yml"], check=False)
    faults = list(dead(folder / "site")) if built.returncode == 0 else []
    for fault in faults:
        print("docs:", fault)
    failed = len(faults) + (built.returncode != 0)
    print(f"{len(PAGES)} pages in {os.path.relpath(folder / 'site', ROOT)}")
    print(f"{0 if failed else 1} passed, {failed} failed, 0 skipped")
    return failed > 0


sys.exit(main(sys.argv[1]))
