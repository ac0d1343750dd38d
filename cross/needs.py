"""The requirements of pyproject.toml that the tests under qemu need, one a line: an install's, and pytest's."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
tests = re.compile(r"pytest|hypothesis|ml_dtypes|safetensors")
print(*project["dependencies"], *filter(tests.match, project["optional-dependencies"]["test"]), sep="\n")
