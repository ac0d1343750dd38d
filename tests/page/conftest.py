"""A headless Chromium on the page of a real server with the small random model."""

import importlib.util
import json
import shutil

import pytest

from mindnano.checkpoint import tiny
from tests.serving import Served

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# Only once: a reload must find what the page kept.
SEED = """if (!sessionStorage.seeded) {
  sessionStorage.seeded = 1;
  for (const [key, value] of Object.entries(%s)) localStorage.setItem(key, JSON.stringify(value));
}"""

if importlib.util.find_spec("playwright") is None:  # the extra `page`: without it these can't even be read
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    here = [item for item in items if "tests/page/" in item.nodeid]
    for item in here:
        item.add_marker(pytest.mark.page)
        if CHROMIUM is None:
            item.add_marker(pytest.mark.skip(reason="no Chromium (Debian: apt install chromium)"))


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.mn"
    tiny.build(path)
    return path


@pytest.fixture(scope="session")
def server(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    options = (model, "--ctx", "8K", "--slots", 2, "--session-dir", folder / "sessions")
    served = Served(folder / "log", *options).start()
    yield served
    served.stop()


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # as root in a container Chromium has no sandbox of its own
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def without_end(route):
    """A random model says its end token at any time; tests need answers of a known length."""
    route.continue_(post_data=route.request.post_data_json | {"ignore_eos": True})


@pytest.fixture
def visit(browser, request):
    """visit(server, settings={...}, talk={...}, **options of the browser's context) -> a page, loaded.

    Whatever the page says on its console is an error of ours, unless `page.forgiven` matches it.
    """
    contexts, pages = [], []

    def visited(server, settings=None, talk=None, path="/", locked=False, **options):
        context = browser.new_context(
            **({"locale": "en-GB", "viewport": {"width": 1280, "height": 800}} | options)
        )
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.said, page.forgiven = [], ("Failed to load resource", "net::ERR")
        page.on(
            "console", lambda said: page.said.append(said.text) if said.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: page.said.append(str(error)))
        kept = {"mindnano.settings": {"max_tokens": 12, "temperature": 0.7} | (settings or {})}
        if talk:
            kept["mindnano.talks"] = [{"id": talk["id"], "title": talk["title"], "updated": talk["updated"]}]
            kept[f"mindnano.talk.{talk['id']}"] = talk
        page.add_init_script(SEED % json.dumps(kept))
        page.route("**/v1/chat/completions", without_end)
        page.goto(server.url + path)
        page.wait_for_selector("html[lang]")
        if not locked:
            page.wait_for_selector("#facts dd", state="attached")
        pages.append(page)
        return page

    yield visited
    said = [text for page in pages for text in page.said if not any(part in text for part in page.forgiven)]
    for context in contexts:
        context.close()
    assert not said, said
