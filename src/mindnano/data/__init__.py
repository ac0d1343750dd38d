"""Files of the package: Ling-3.0-tiny's configuration, and the trained built-in model where one is shipped."""

from pathlib import Path

FOLDER = Path(__file__).parent
LING_TINY = FOLDER / "ling-3.0-tiny.config.json"
TRAINED = FOLDER / "builtin.safetensors"  # packed, recipe mixed
CHAPTERS = FOLDER / "moby-dick.txt"  # of 1851, public domain; held out from its training, for the demo
