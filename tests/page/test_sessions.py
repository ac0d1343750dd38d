"""Sessions on the server, from the page: save, load, rename, delete, and what is said where they are off."""

import pytest
from playwright.sync_api import expect

from tests.page.test_chat import ask, finished, kept
from tests.serving import Served

TOLD = "The lighthouse keeper lost the key to the lamp room on Tuesday."


def save(page, name):
    page.click("#save-session")
    page.get_by_role("textbox", name="Name").fill(name)
    page.get_by_role("button", name="Save", exact=True).last.click()
    expect(page.locator(".toast")).to_contain_text(f"Saved “{name}”")


def saved(page, name):
    return page.locator("#sessions .item", has_text=name)


def test_a_session_round_trip(visit, server):
    page = visit(server, {"system": "You keep a diary.", "temperature": 0})
    ask(page, TOLD)
    finished(page)
    messages = [(one["role"], one["content"]) for one in kept(page)["messages"]]
    page.click("#save-session")
    expect(page.get_by_role("textbox", name="Name")).to_have_value("The lighthouse keeper lost the key to")
    page.keyboard.press("Escape")
    save(page, "diary one")
    expect(saved(page, "diary one")).to_contain_text("tokens")

    other = visit(server, {"temperature": 0})  # another browser: nothing of it is known here
    saved(other, "diary one").locator(".open").click()
    expect(other.locator(".toast")).to_contain_text("won’t be computed again")
    expect(other.locator(".turn.user .body")).to_have_text(TOLD)
    expect(other.locator("#title")).to_have_text("diary one")
    expect(other.locator(".turn.system")).to_contain_text("System prompt")
    assert [(one["role"], one["content"]) for one in kept(other)["messages"]] == messages
    assert kept(other)["system"] == "You keep a diary."
    assert int(other.get_attribute("#rule", "aria-valuenow")) > 50
    ask(other, "Where is it?")
    finished(other)
    assert kept(other)["messages"][3]["timings"]["cached_tokens"] > 50

    saved(page, "diary one").hover()
    page.get_by_role("button", name="Rename: diary one").click()
    page.get_by_role("textbox", name="Name").fill("diary two")
    page.keyboard.press("Enter")
    expect(saved(page, "diary two")).to_be_visible()
    expect(saved(page, "diary one")).to_have_count(0)
    saved(page, "diary two").hover()
    page.get_by_role("button", name="Delete: diary two").click()
    expect(page.get_by_role("dialog")).to_contain_text("can’t be brought back")
    page.get_by_role("button", name="Delete", exact=True).last.click()
    expect(saved(page, "diary two")).to_have_count(0)
    saved(other, "diary one").locator(".open").click()  # gone meanwhile: this page still lists it
    expect(other.locator(".toast").last).to_contain_text("there is none of that name")


def test_a_name_that_is_taken_is_said_before_it_is_replaced(visit, server):
    page = visit(server)
    ask(page, TOLD)
    finished(page)
    save(page, "same")
    page.click("#save-session")
    expect(page.get_by_role("textbox", name="Name")).to_have_value("same")
    expect(page.get_by_role("dialog")).to_contain_text("saving replaces it")
    page.get_by_role("textbox", name="Name").fill("a/b")
    page.get_by_role("button", name="Save", exact=True).last.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_role("textbox", name="Name").fill("same")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(saved(page, "same")).to_have_count(1)
    saved(page, "same").locator(".open").click()
    expect(page.locator(".toast").last).to_contain_text("won’t be computed again")
    expect(page.locator("#conversations .item")).to_have_count(1)  # unchanged, so it isn't there twice


def test_a_session_of_hostile_names_and_text(visit, server):
    page = visit(server)
    ask(page, "x")
    finished(page)
    name = "<img src=x onerror='window.hit = 1'> ” 会话 ?#%2e"
    save(page, name)
    expect(saved(page, name)).to_be_visible()
    page = visit(server)
    saved(page, name).locator(".open").click()
    expect(page.locator("#title")).to_have_text(name)
    saved(page, name).hover()
    saved(page, name).get_by_role("button", name=f"Delete: {name}").click()
    page.get_by_role("button", name="Delete", exact=True).last.click()
    expect(saved(page, name)).to_have_count(0)
    assert page.evaluate("window.hit") is None


@pytest.fixture(scope="module")
def closed(model, tmp_path_factory):
    """With a key, and without sessions."""
    served = Served(
        tmp_path_factory.mktemp("log") / "log",
        model,
        "--ctx",
        "4K",
        "--api-key",
        "open sesame",
        "--session-dir",
        "none",
    ).start()
    yield served
    served.stop()


def test_a_server_with_a_key_asks_for_it(visit, closed):
    page = visit(closed, locked=True)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("wants a key")
    page.get_by_label("API key").last.fill("wrong")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("refused that key")
    page.get_by_label("API key").last.fill("open sesame")
    page.keyboard.press("Enter")
    expect(page.locator("#facts dd").first).to_be_visible()
    expect(page.locator("#sessions")).to_contain_text("keeps none")
    expect(page.locator("#save-session")).to_be_hidden()
    ask(page, "Hello")
    expect(finished(page).locator(".cost")).to_contain_text("answer tokens")
    page.reload()
    expect(page.locator("#facts dd").first).to_be_visible()  # kept for this tab
    assert "sesame" not in page.evaluate("JSON.stringify(localStorage)")
