"""The server goes away and comes back; the page says so, and nothing is lost."""

import pytest
from playwright.sync_api import expect

from tests.page.test_chat import answer, ask, finished, wrote
from tests.serving import Served


@pytest.fixture
def fragile(model, tmp_path):
    served = Served(tmp_path / "log", model, "--ctx", "8K").start()
    yield served
    served.stop()


def test_server_gone_and_back(visit, fragile):
    page = visit(fragile, {"max_tokens": 3000})
    ask(page, "Tell me everything.")
    wrote(page, 20)
    fragile.kill()
    last = finished(page)
    expect(last.locator(".ended")).to_contain_text("the connection to the server was lost")
    text = last.locator(".said").inner_text()
    assert text
    expect(page.locator(".notice")).to_contain_text("The server is not reachable")
    expect(page.locator("#live")).to_contain_text("Server not reachable")
    page.fill("#draft", "typed meanwhile")
    page.keyboard.press("Enter")
    expect(page.locator("#draft")).to_have_value("typed meanwhile")
    fragile.start()
    page.goto(fragile.url)
    expect(answer(page).locator(".ended")).to_contain_text("Interrupted")
    expect(page.locator("#draft")).to_have_value("typed meanwhile")


def test_back_without_a_reload(visit, fragile):
    page = visit(fragile)
    fragile.kill()
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(page.locator(".notice")).to_contain_text("The server is not reachable")
    fragile.start()
    expect(page.locator(".notice")).to_have_count(0)
    expect(page.locator(".toast")).to_contain_text("The server is back.")
    ask(page, "Are you there?")
    expect(finished(page).locator(".cost")).to_contain_text("answer tokens")
