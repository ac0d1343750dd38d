"""Chat in a real browser against a real server: what a user does, and what the user then sees."""

import json
import re

from playwright.sync_api import expect

LONG = {"max_tokens": 3000}  # an answer that goes on for a while, as the random model rarely ends one


def ask(page, text):
    page.fill("#draft", text)
    page.keyboard.press("Enter")


def answer(page):
    return page.locator(".turn.assistant").last


def wrote(page, characters):
    """Once an answer has more than so many."""
    expect(page.locator(".said")).to_have_text(re.compile(rf"[\s\S]{{{characters + 1}}}"))


def finished(page):
    """The last answer, once nothing is written any more."""
    expect(answer(page)).to_have_attribute("aria-busy", "false")
    return answer(page)


def kept(page):
    """The conversation as the browser's storage has it."""
    page.wait_for_timeout(600)
    return json.loads(
        page.evaluate("localStorage['mindnano.talk.' + JSON.parse(localStorage['mindnano.talks'])[0].id]")
    )


def test_an_answer_streams_and_its_cost_stands_beside_it(visit, server):
    page = visit(server)
    assert page.locator("#send").is_disabled()
    ask(page, "Where is the key?")
    expect(page.locator(".turn.user .body")).to_have_text("Where is the key?")
    last = finished(page)
    expect(last.locator(".ended")).to_contain_text("Cut off at the token limit")
    assert last.locator(".said").inner_text()
    for words in ("to first token", "tok/s", "tokens cached", "answer tokens12"):
        expect(last.locator(".cost")).to_contain_text(words)
    live = page.locator("#live")
    expect(live).to_contain_text("Ready")
    expect(live).to_contain_text("of 8,192 context")
    expect(live).to_contain_text("memory left")
    assert int(page.get_attribute("#rule", "aria-valuenow")) > 12
    expect(page.locator("#conversations .item")).to_have_text("Where is the key?")
    expect(page.locator("#draft")).to_be_focused()


def test_the_second_question_reuses_the_first_answer(visit, server):
    page = visit(server, {"temperature": 0})
    ask(page, "The lighthouse keeper lost the key to the lamp room on Tuesday.")
    finished(page)
    ask(page, "Where is it?")
    cost = finished(page).locator(".cost")
    expect(cost).to_contain_text("tokens cached")
    talk = kept(page)
    assert [one["role"] for one in talk["messages"]] == ["user", "assistant"] * 2
    assert talk["messages"][3]["timings"]["cached_tokens"] > 0


def test_stop_while_it_writes_keeps_the_text(visit, server):
    page = visit(server, LONG)
    ask(page, "Tell me everything.")
    wrote(page, 20)
    page.keyboard.press("Escape")
    last = finished(page)
    expect(last.locator(".ended")).to_contain_text("Stopped.")
    text = last.locator(".said").inner_text()
    assert len(text) > 10
    last.get_by_role("button", name="Continue").click()
    wrote(page, len(text) + 20)
    page.click("#send")
    finished(page)
    assert page.locator(".turn.assistant").count() == 1
    assert kept(page)["messages"][1]["content"].startswith(text[:10])


def test_stop_while_it_reads_frees_the_server(visit, server):
    page = visit(server)
    ask(page, "long ago " * 800)
    waiting = page.locator(".turn.assistant .waiting")
    expect(waiting).to_contain_text(re.compile(r"Reading [\d,]+ of 7,[\d,]+ tokens"))
    expect(page.locator("#live")).to_contain_text("Reading")
    expect(waiting.get_by_role("progressbar")).to_be_visible()
    page.get_by_role("button", name="Stop").click()
    last = finished(page)
    expect(last.locator(".ended")).to_contain_text("Stopped.")
    expect(last.get_by_role("button", name="Continue")).to_have_count(0)
    page.get_by_role("button", name="New chat").click()
    ask(page, "Short.")
    expect(finished(page).locator(".cost")).to_contain_text("answer tokens12", timeout=5000)


def test_reload_in_the_middle_of_an_answer(visit, server):
    page = visit(server, LONG)
    ask(page, "Tell me everything.")
    wrote(page, 60)
    page.reload()
    last = answer(page)
    expect(last.locator(".ended")).to_contain_text("Interrupted: the page was closed or reloaded.")
    before = last.locator(".said").inner_text()
    assert len(before) > 30
    last.get_by_role("button", name="Answer again").click()
    wrote(page, 5)
    page.keyboard.press("Escape")
    finished(page)
    assert page.locator(".turn").count() == 2


def test_what_was_typed_survives_a_reload(visit, server):
    page = visit(server)
    page.fill("#draft", "not sent yet")
    page.wait_for_timeout(600)
    page.reload()
    expect(page.locator("#draft")).to_have_value("not sent yet")


def test_edit_and_answer_again_replace_what_followed(visit, server):
    page = visit(server)
    for text in ("first", "second"):
        ask(page, text)
        finished(page)
    page.locator(".turn.user").first.hover()
    page.locator(".turn.user").first.get_by_role("button", name="Edit").click()
    field = page.get_by_role("textbox", name="Edit message")
    expect(field).to_have_value("first")
    field.fill("first, but better")
    field.press("Enter")
    finished(page)
    assert page.locator(".turn.user .body").all_inner_texts() == ["first, but better"]
    old = kept(page)["messages"][1]["id"]
    answer(page).get_by_role("button", name="Answer again").click()
    finished(page)
    assert kept(page)["messages"][1]["id"] != old
    assert page.locator(".turn").count() == 2


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers(visit, server):
    page = visit(server)
    text = "x" * 9000
    page.fill("#draft", text)
    page.keyboard.press("Enter")
    ended = finished(page).locator(".ended")
    expect(ended).to_contain_text("Too long for this context")
    expect(ended).to_contain_text(re.compile(r"9,\d\d\d tokens, it holds 8,192"))
    assert kept(page)["messages"][0]["content"] == text
    page.locator(".turn.user").get_by_role("button", name="Edit").click()
    field = page.get_by_role("textbox", name="Edit message")
    field.fill("shorter")
    field.press("Enter")
    expect(finished(page).locator(".cost")).to_contain_text("answer tokens")


def test_thoughts_are_folded(visit, server):
    page = visit(server, {"thinking": True, "max_tokens": 40})
    expect(page.locator("#think")).to_have_attribute("aria-pressed", "true")
    ask(page, "Think about it.")
    last = finished(page)
    thinking = last.locator(".thinking")
    expect(thinking).to_be_visible()
    expect(thinking.locator(".thoughts")).to_be_hidden()
    thinking.locator("summary").click()
    expect(thinking.locator(".thoughts")).to_be_visible()
    assert thinking.locator(".thoughts").inner_text()


def test_files_are_sent_with_the_message(visit, server):
    page = visit(server)
    files = [
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"the key is ``` here"},
        {"name": "photo.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n\0\xff"},
    ]
    page.set_input_files("#file", files)
    expect(page.locator(".file")).to_have_text("notes.txt")
    expect(page.locator(".toast")).to_contain_text("photo.png is not a text file")
    ask(page, "Where?")
    finished(page)
    assert kept(page)["messages"][0]["content"] == "notes.txt\n````\nthe key is ``` here\n````\n\nWhere?"
    expect(page.locator(".file")).to_have_count(0)


def test_a_deleted_conversation_can_be_brought_back(visit, server):
    page = visit(server)
    ask(page, "Keep me.")
    finished(page)
    page.locator("#conversations .item").hover()
    page.get_by_role("button", name="Delete: Keep me.").click()
    expect(page.locator("#conversations .item")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".turn.user .body")).to_have_text("Keep me.")
    page.locator("#conversations .item").hover()
    page.get_by_role("button", name="Rename: Keep me.").click()
    page.get_by_role("textbox", name="Name").fill("Kept")
    page.keyboard.press("Enter")
    expect(page.locator("#conversations .item")).to_have_text("Kept")


def test_two_conversations_are_answered_at_once(visit, server):
    page = visit(server, LONG)
    ask(page, "one")
    wrote(page, 5)
    page.keyboard.press("Alt+n")
    expect(page.locator(".start")).to_be_visible()
    ask(page, "two")
    wrote(page, 5)
    expect(page.locator("#conversations .busy")).to_have_count(2)
    page.keyboard.press("Escape")
    finished(page)
    page.locator("#conversations .item", has_text="one").locator(".open").click()
    expect(answer(page)).to_have_attribute("aria-busy", "true")
    page.keyboard.press("Escape")
    expect(finished(page).locator(".ended")).to_contain_text("Stopped.")
