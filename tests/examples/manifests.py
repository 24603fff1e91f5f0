#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check the manifests of examples/kubernetes against what is there.

Each file parses. Variables KVPULL_* and keys of kv_connector_extra_config are keys
of kvpull.conf(5), and the library accepts their values. Modules that a manifest
names are files of the package. A folder that a variable or a command names lies
below a mount. Engines have one image, which Containerfile says how to make, one
user and one folder.

manifests.py FILE...   prints the result line of the other test programs
"""
import json
import os
import re
import sys
from pathlib import Path

import yaml
from kvpull_vllm.abi import Library, ffi, new

ROOT = Path(__file__).resolve().parents[2]
KEYS = set(re.findall(r"^\.It Cm (\w+)$", (ROOT / "tools/kvpull.conf.5").read_text(), re.M))
IMAGE = re.search(r"--tag (\S+)", (ROOT / "examples/kubernetes/Containerfile").read_text())[1]
LIBRARY = Library()


def config_error(config, variables):
    """Return why the library refuses a configuration, or None."""
    before = dict(os.environ)
    detail = new("kvpull_error_detail")
    os.environ.update(variables)
    try:
        code = LIBRARY.ops.config_check(json.dumps(config).encode(), detail)
    finally:
        for name in variables:
            os.environ.pop(name)
        os.environ.update(before)
    return ffi.string(detail.message).decode() if code else None


def module_exists(name):
    package, *rest = name.split(".")
    return package != "kvpull_vllm" or (ROOT / "plugin/vllm" / package / f"{'/'.join(rest)}.py").exists()


def words(container):
    return [*container.get("command", []), *container.get("args", [])]


def transfer_config(container):
    """Return what follows --kv-transfer-config, or an empty object."""
    given = words(container)
    if "--kv-transfer-config" not in given:
        return {}
    return json.loads(given[given.index("--kv-transfer-config") + 1])


def container_faults(container):
    variables = {row["name"]: row["value"] for row in container.get("env", [])
                 if row["name"].startswith("KVPULL_")}
    config = transfer_config(container).get("kv_connector_extra_config", {})
    for name in [*config, *(name[len("KVPULL_"):].lower() for name in variables)]:
        if name not in KEYS:
            yield f"{name} is no key of kvpull.conf(5)"
    if error := config_error(config, variables):
        yield error
    modules = re.findall(r"\bkvpull_vllm(?:\.\w+)+", " ".join(words(container)))
    for name in modules:
        if not module_exists(name):
            yield f"there is no module {name}"
    mounts = [row["mountPath"] for row in container.get("volumeMounts", [])]
    named = re.findall(r"/run/[\w/]+", " ".join([*variables.values(), *words(container)]))
    for path in named:
        if not any(path == mount or path.startswith(mount + "/") for mount in mounts):
            yield f"{path} is below no mount"


def pods(documents):
    """Yield the pod specifications of a file."""
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] == "Pod":
            yield spec
        elif document["kind"] == "Deployment":
            yield spec["template"]["spec"]


def pod_faults(spec):
    volumes = {row["name"] for row in spec.get("volumes", [])}
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        yield from (f"{container['name']}: {fault}" for fault in container_faults(container))
        for mount in container.get("volumeMounts", []):
            if mount["name"] not in volumes:
                yield f"{container['name']}: there is no volume {mount['name']}"
        if "kvpull" in container.get("image", "") and container["image"] != IMAGE:
            yield f"{container['name']}: the image {container['image']} is not {IMAGE}"


def engines(spec):
    """Yield what P and D share, of each engine: user, folder of the node and of the pod."""
    for container in spec["containers"]:
        if transfer_config(container):
            folder = {row["name"]: row["value"] for row in container["env"]}["KVPULL_SOCKET_DIR"]
            paths = [row["hostPath"]["path"] for row in spec["volumes"]]
            yield spec["securityContext"]["runAsUser"], folder, *paths


def kustomization_faults(path, document):
    for row in document.get("images", []):
        if f"{row['newName']}:{row['newTag']}" != IMAGE:
            yield f"the image {row['newName']}:{row['newTag']} is not {IMAGE}"
    for row in document.get("patches", []):
        if not (path.parent / row["path"]).exists():
            yield f"{row['path']} is not there"


def main(paths):
    bad, shared = 0, {}
    for path in map(Path, paths):
        documents = [row for row in yaml.safe_load_all(path.read_text()) if row]
        faults = [] if documents else ["is empty"]
        for document in documents:
            if document["kind"] == "Kustomization":
                faults += kustomization_faults(path, document)
        for spec in pods(documents):
            faults += pod_faults(spec)
            shared.setdefault(path.parent, []).extend(engines(spec))
        for fault in faults:
            print(f"{path}: {fault}")
        bad += bool(faults)
    for folder, rows in shared.items():
        if len(rows) < 2 or len(set(rows)) != 1:
            bad += 1
            print(f"{folder}: engines share no user and folder: {rows}")
    print(f"{len(paths) + len(shared) - bad} passed, {bad} failed, 0 skipped")
    return bad != 0


sys.exit(main(sys.argv[1:]))
