"""Pictures of the page for README.md: `python -m tests.page.make_images MODEL` (the extra `page`, and Chromium).

A real server with MODEL, which may be synthetic: the pictures show progress and memory, no answers.
"""

import json
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.page.conftest import CHROMIUM, SEED
from tests.serving import Served

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PICTURES = (("reading", "light", 1100, 640), ("phone", "dark", 390, 700), ("memory", "light", 1100, 860))
SETTINGS = {"mindnano.settings": {"max_tokens": 8, "temperature": 0}}


def main(model: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    text = " ".join(path.read_text() for path in sorted(IMAGES.parent.glob("*.md")))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        options = (model, "--ctx", "32K", "--kv", "int8", "--slots", 2)
        served = Served(Path(folder) / "log", *options, "--session-dir", Path(folder) / "sessions").start()
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            for name, theme, width, height in PICTURES:
                page = chromium.new_page(
                    viewport={"width": width, "height": height}, color_scheme=theme, locale="en-GB"
                )
                page.add_init_script(SEED % json.dumps(SETTINGS))
                page.goto(served.url + ("#memory" if name == "memory" else ""))
                if name == "memory":
                    page.locator(".figures").wait_for()
                else:
                    page.fill("#draft", "What do these pages promise?\n\n" + text[:16000])
                    page.keyboard.press("Enter")
                    page.get_by_text("Reading").first.wait_for()
                    page.wait_for_timeout(6000)  # so that a speed and a time left are known
                page.screenshot(path=IMAGES / f"{name}.png")
                page.close()
        finally:
            chromium.close()
            served.stop()


if __name__ == "__main__":
    main(sys.argv[1])
