"""Jars after a pom.xml, those of Apache Kafka above all: fetched once with Maven, then kept in a cache.

The cache is `$HORARIUM_CACHE`, or `.cache` in the checkout; with jars in it nothing is fetched again.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
POM = ROOT / "pom.xml"

FETCH_SEC = 600.0  # about 90 MB, from a slow mirror too

INSTALL_HINT = (
    "Horarium needs a Kafka broker and can use, in this order: one you name in HORARIUM_KAFKA=host:port; "
    "a Docker engine that runs; or Java 17+ together with Maven, to run Kafka from jars "
    "(Debian: apt-get install openjdk-17-jre-headless maven)."
)


class JarsMissing(Exception):
    """The jars can be neither found nor fetched, or Java is missing; the message says what to do."""


def kafka_version() -> str:
    """The version of Kafka that pom.xml names."""
    found = ElementTree.parse(POM).findtext(".//{*}kafka.version")
    if not found:
        raise JarsMissing(f"{POM} names no kafka.version")
    return found


def cache() -> Path:
    """The folder in which downloads are kept from run to run."""
    return Path(os.environ.get("HORARIUM_CACHE") or ROOT / ".cache").resolve()


def java() -> str:
    """The Java program: that of JAVA_HOME, or the one on the path."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None) or shutil.which("java")
    if found is None:
        raise JarsMissing(f"Java was not found. {INSTALL_HINT}")
    return found


def kafka_jars() -> Path:
    """The folder with Kafka's jars, fetched now if need be."""
    return fetched(POM, f"kafka-{kafka_version()}")


def fetched(pom: Path, name: str) -> Path:
    """The folder `name` of the cache with the jars that `pom` lists, fetched now if need be."""
    folder = cache() / name
    # The copy of pom.xml says that the folder is complete, and after which list it was made.
    made_after = folder / "pom.xml"
    if made_after.exists() and made_after.read_bytes() == pom.read_bytes():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissing(f"Maven was not found. {INSTALL_HINT}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        fresh = Path(scratch) / "jars"
        _copy_dependencies(maven, pom, fresh)
        shutil.copy(pom, fresh / "pom.xml")
        if folder.exists():
            folder.rename(Path(scratch) / "old")
        fresh.rename(folder)
    return folder


def _copy_dependencies(maven: str, pom: Path, folder: Path) -> None:
    command = [
        maven,
        "--batch-mode",
        "--quiet",
        f"--file={pom}",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={folder}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_SEC)
    if done.returncode != 0:
        raise JarsMissing(
            f"Maven could not fetch the jars of {pom}:\n{done.stdout}{done.stderr}\n{INSTALL_HINT}"
        )
