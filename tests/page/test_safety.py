"""A model's text can't become markup, and nothing on the page comes from elsewhere."""

import pytest
from playwright.sync_api import expect

HOSTILE = """<script>window.hit = 1</script>
<img src=x onerror="window.hit = 2">

<svg onload="window.hit = 3"><a xlink:href="javascript:window.hit=4">svg</a></svg>

[link](javascript:window.hit=5) [data](data:text/html,<script>window.hit=6</script>) 
[ok](https://example.org "a&quot;b")

![picture](https://example.org/leak.png?secret)

<a href="#" onclick="window.hit = 7">click</a> <form action="https://example.org"><input name=q></form>

```html" onmouseover="window.hit = 8
<b>code</b>
```

- [x] done
- [ ] open

| a | b |
|--:|:--|
| 1 | <style>* { display: none }</style> |

[ref]: javascript:window.hit=9 "t"
[ref]

<iframe srcdoc="<script>parent.hit = 10</script>"></iframe> `<u>` <math><mtext></mtext></math>
"""


def hostile_talk():
    messages = [
        {"id": "m1", "role": "user", "content": "<img src=x onerror='window.hit = 11'>"},
        {"id": "m2", "role": "assistant", "content": HOSTILE, "reasoning": HOSTILE, "status": "done"},
    ]
    title = "<img src=x onerror='window.hit = 12'>"
    return {"id": "hostile", "title": title, "named": True, "updated": 1, "draft": "", "messages": messages}


def test_hostile_text_stays_text(visit, server):
    page = visit(server, talk=hostile_talk())
    page.locator(".thinking summary").click()
    expect(page.locator(".thoughts")).to_be_visible()
    for place in (".said", ".thoughts .md"):
        text = page.locator(place).inner_text()
        for literal in (
            "<script>window.hit = 1</script>",
            "<img src=x",
            "<form action",
            "<iframe srcdoc",
            "<style>",
        ):
            assert literal in text
        tags = set(
            page.locator(place).evaluate("node => [...node.querySelectorAll('*')].map(one => one.localName)")
        )
        assert not tags & {
            "script",
            "img",
            "iframe",
            "form",
            "style",
            "math",
            "object",
            "embed",
            "video",
            "link",
        }
        attributes = page.locator(place).evaluate(
            "node => [...node.querySelectorAll('*')].flatMap(one => [...one.attributes].map(a => a.name))"
        )
        assert not [
            name for name in attributes if name.startswith("on") or name in ("style", "srcdoc", "action")
        ]
        links = page.locator(place).evaluate("node => [...node.querySelectorAll('a')].map(one => one.href)")
        assert links == ["https://example.org/", "https://example.org/leak.png?secret"]
        assert page.locator(f"{place} input[type=checkbox]").count() == 2
        assert page.locator(f"{place} td").first.get_attribute("align") == "right"
    page.mouse.move(400, 300)
    page.wait_for_timeout(300)
    assert page.evaluate("window.hit") is None


def test_links_open_elsewhere_without_a_way_back(visit, server):
    page = visit(server, talk=hostile_talk())
    link = page.locator(".said a").first
    expect(link).to_have_attribute("target", "_blank")
    expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")


def test_code_can_be_copied(visit, server):
    page = visit(server, talk=hostile_talk(), permissions=["clipboard-read", "clipboard-write"])
    page.locator(".said .code").get_by_role("button", name="Copy").click()
    expect(page.locator(".said .code button")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "<b>code</b>\n"


def test_everything_comes_from_the_server_itself(visit, server):
    page = visit(server)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    page.wait_for_selector("#facts dd")
    for view in ("memory", "speed"):
        page.click(f"[data-view={view}]")
        page.wait_for_timeout(300)
    assert len(asked) > 30
    assert {url for url in asked if not url.startswith(server.url)} == set()


def test_the_policy_forbids_inline_scripts_and_other_places(server):
    headers, body = server.get("/")
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy or "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    text = body.decode()
    assert "style=" not in text
    assert " onclick" not in text
    assert "<script>" not in text


@pytest.mark.parametrize(
    "value", ["{", "[]", '"x"', '{"messages": 3}', '{"messages": [{"role": "root"}, null, 5]}', "null"]
)
def test_damaged_storage_does_not_break_the_page(visit, server, value):
    page = visit(server)
    page.evaluate(
        """value => {
          localStorage["mindnano.talks"] = '[{"id": "broken", "title": "b", "updated": 1}, 5, {"id": 7}]';
          localStorage["mindnano.talk.broken"] = value;
          localStorage["mindnano.settings"] = value;
        }""",
        value,
    )
    page.evaluate("sessionStorage.removeItem('mindnano.open')")
    page.reload()
    page.wait_for_selector("#facts dd")
    page.fill("#draft", "still here")
    expect(page.locator("#send")).to_be_enabled()
