"""Phone, keyboard, light and dark, English and Chinese, and what axe-core finds."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.page.test_chat import ask, finished
from tests.page.test_safety import hostile_talk

PHONE = {
    "viewport": {"width": 360, "height": 740},
    "is_mobile": True,
    "has_touch": True,
    "device_scale_factor": 2,
}
VIEWS = ("chat", "memory", "speed")


def accessible(page):
    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]})
    return found.response["violations"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_no_violation_of_wcag_aa(visit, server, view, scheme):
    page = visit(server, talk=hostile_talk(), path=f"/#{view}", color_scheme=scheme, reduced_motion="reduce")
    page.wait_for_timeout(400)
    assert accessible(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_settings_have_no_violation_either(visit, server, scheme):
    page = visit(server, color_scheme=scheme, reduced_motion="reduce")
    page.click("#open-settings")
    page.wait_for_timeout(400)
    assert accessible(page) == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_shows_it_without_sideways_scrolling(visit, server, view):
    page = visit(server, talk=hostile_talk(), path=f"/#{view}", **PHONE)
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    wide = page.evaluate(
        """() => [...document.querySelectorAll('main *')].filter((one) => {
          const scrolls = one.closest('pre, .table, .table-frame');
          const { right, width } = one.getBoundingClientRect();
          return width && right > 361 && !scrolls;
        }).map((one) => one.className || one.localName)"""
    )
    assert wide == []


def test_a_conversation_on_a_phone(visit, server):
    page = visit(server, locale="zh-CN", **PHONE)
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    page.fill("#draft", "你好")
    page.click("#send")
    expect(finished(page).locator(".ended")).to_contain_text("达到 token 上限")
    page.click("#open-sidebar")
    expect(page.locator("#sidebar")).to_have_class(re.compile("open"))
    page.get_by_role("button", name="新对话").click()
    expect(page.locator(".start")).to_be_visible()
    expect(page.locator("#sidebar")).not_to_have_class(re.compile("open"))
    small = page.evaluate(
        """() => [...document.querySelectorAll('main button')].filter((one) => {
          const { width, height } = one.getBoundingClientRect();
          return width && (width < 40 || height < 40);
        }).map((one) => one.id || one.textContent)"""
    )
    assert small == []


def test_everything_by_keyboard(visit, server):
    page = visit(server)
    page.focus(".skip")
    page.keyboard.press("Enter")
    expect(page.locator("#draft")).to_be_focused()
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    expect(page.locator("#draft")).to_have_value("one\ntwo")
    page.keyboard.press("Enter")
    finished(page)
    page.keyboard.press("Alt+2")
    expect(page.locator("#view-memory")).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("#draft")).to_be_focused()
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Keyboard")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.focus("#open-settings")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#open-settings")).to_be_focused()
    page.keyboard.press("Tab")
    ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert ring == "solid"


def test_an_input_method_keeps_its_enter(visit, server):
    page = visit(server)
    page.fill("#draft", "ni hao")
    page.evaluate(
        """document.querySelector("#draft").dispatchEvent(
          new KeyboardEvent("keydown", { key: "Enter", isComposing: true, bubbles: true }))"""
    )
    expect(page.locator("#draft")).to_have_value("ni hao")
    assert page.locator(".turn").count() == 0


def test_settings_reach_the_request_and_last(visit, server):
    page = visit(server)
    page.click("#open-settings")
    page.get_by_label("Temperature").fill("0.3")
    page.get_by_label("Top p").fill("0.9")
    page.get_by_label("Tokens of an answer at most").fill("7")
    page.get_by_label("System prompt").fill("Be brief.")
    page.get_by_role("button", name="Done").click()
    sent = []
    page.on(
        "request", lambda request: sent.append(request.post_data_json) if "chat/" in request.url else None
    )
    ask(page, "Hello")
    expect(finished(page).locator(".cost")).to_contain_text("answer tokens7")
    body = sent[0]
    assert (body["temperature"], body["top_p"], body["max_tokens"]) == (0.3, 0.9, 7)
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    page.reload()
    page.click("#open-settings")
    expect(page.get_by_label("Temperature")).to_have_value("0.3")
    page.get_by_label("Temperature").fill("-1")
    page.get_by_role("button", name="Done").click()
    expect(page.get_by_role("dialog")).to_be_visible()


def test_theme_and_language_change_at_once(visit, server):
    page = visit(server, color_scheme="light")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.click("#open-settings")
    page.get_by_role("radio", name="Dark").check()
    assert page.evaluate(paper) != light
    page.get_by_role("radio", name="中文").check()
    expect(page.locator("#new-chat")).to_have_text("新对话")
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    page.reload()
    assert page.evaluate(paper) != light
    expect(page.locator("#new-chat")).to_have_text("新对话")


def test_both_languages_say_the_same_things(visit, server):
    page = visit(server)
    texts = page.evaluate(
        """async () => Promise.all(["en", "zh"].map(async (one) => (await import(`/js/i18n/${one}.js`)).default))"""
    )
    english, chinese = texts
    assert english.keys() == chinese.keys()

    def gaps(text):
        forms = text.values() if isinstance(text, dict) else [text]
        return {frozenset(re.findall(r"\{(\w+)\}", form)) for form in forms}

    for key in english:
        assert gaps(english[key]) == gaps(chinese[key]), key
        assert english[key] != "", key
