# SPDX-License-Identifier: Apache-2.0
"""Prints what is in build/dist as SPDX 2.3: sbom.py VERSION FOLDER.

Libraries of others are those of this machine's Debian, which the wheel carries
and the packages depend on. The time is that of SOURCE_DATE_EPOCH.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

# Debian's package, and its licence as SPDX spells it.
LIBRARIES = {
    "libjansson4": "MIT",
    "libsodium23": "ISC",
    "liburing2": "LGPL-2.1-or-later OR MIT",
}


def installed(name: str) -> str:
    """Return the version of one of Debian's packages."""
    asked = ["dpkg-query", "-W", "-f", "${Version}", name]
    return subprocess.run(
        asked, check=True, capture_output=True, text=True
    ).stdout


def package(name: str, version: str, licence: str, **more: object) -> dict:
    """Return a package as SPDX has it."""
    return {
        "SPDXID": f"SPDXRef-{name}",
        "name": name,
        "versionInfo": version,
        "licenseConcluded": licence,
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        **more,
    }


def main() -> None:
    """Print the document."""
    version, folder = sys.argv[1], Path(sys.argv[2])
    made = sorted(
        path
        for path in folder.iterdir()
        if path.name.endswith((".deb", ".whl", ".tar.gz"))
    )
    if not made:
        sys.exit(f"{folder} is empty: make dist, wheel or deb first")
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in made}
    packages = [package("kvpull", version, "Apache-2.0")]
    packages += [
        package(name, installed(name), licence)
        for name, licence in LIBRARIES.items()
    ]
    packages += [
        package(
            f"file-{number}",
            version,
            "Apache-2.0",
            packageFileName=name,
            checksums=[{"algorithm": "SHA256", "checksumValue": digest}],
        )
        for number, (name, digest) in enumerate(sums.items())
    ]
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    digest = hashlib.sha256("".join(sums.values()).encode()).hexdigest()
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-kvpull")]
    relations += [
        ("SPDXRef-kvpull", "DEPENDS_ON", f"SPDXRef-{name}")
        for name in LIBRARIES
    ]
    relations += [
        (f"SPDXRef-file-{number}", "GENERATED_FROM", "SPDXRef-kvpull")
        for number in range(len(made))
    ]
    json.dump(
        {
            "spdxVersion": "SPDX-2.3",
            "dataLicense": "CC0-1.0",
            "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"kvpull-{version}",
            "documentNamespace": f"urn:kvpull:{version}:{digest}",
            "creationInfo": {
                "created": time.strftime(
                    "%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)
                ),
                "creators": ["Tool: kvpull tools/sbom.py"],
            },
            "packages": packages,
            "relationships": [
                {
                    "spdxElementId": one,
                    "relationshipType": kind,
                    "relatedSpdxElement": other,
                }
                for one, kind, other in relations
            ],
        },
        sys.stdout,
        indent=2,
    )
    print()


if __name__ == "__main__":
    main()
