// Markdown to nodes. A model's text is hostile: its HTML is shown as text, its images as links, and what marked
// makes of the rest goes through DOMPurify with a short list of what may be there.
import { Marked } from "../vendor/marked.esm.js";
import { button, copyText, el } from "./dom.js";
import { t } from "./i18n.js";

const ALLOWED = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "input", "li", "ol", "p",
    "pre", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["href", "title", "class", "align", "start", "type", "checked", "disabled"],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ADD_URI_SAFE_ATTR: ["align", "start", "type"], // whose values are no addresses
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

const escaped = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
  },
});

/** A document fragment of one or more of marked's tokens. */
function fragment(tokens) {
  const made = globalThis.DOMPurify.sanitize(marked.parser(tokens), ALLOWED);
  for (const link of made.querySelectorAll("a")) {
    if (!link.hasAttribute("href")) link.replaceWith(...link.childNodes);
    else Object.assign(link, { target: "_blank", rel: "noopener noreferrer nofollow" });
  }
  for (const box of made.querySelectorAll("input")) {
    if (box.type !== "checkbox") box.remove();
    else box.setAttribute("aria-label", t(box.checked ? "taskDone" : "taskOpen"));
  }
  for (const node of made.querySelectorAll("[class]")) {
    if (!(node.localName === "code" && /^language-[\w+#.-]{1,30}$/.test(node.className))) node.removeAttribute("class");
  }
  for (const pre of made.querySelectorAll("pre")) pre.replaceWith(codeBlock(pre));
  for (const table of made.querySelectorAll("table")) {
    const frame = el("div", { class: "table", tabindex: "0", role: "region", "aria-label": t("table") });
    table.replaceWith(frame);
    frame.append(table);
  }
  return made;
}

function codeBlock(pre) {
  const code = pre.querySelector("code") ?? pre;
  const language = (code.className.match(/^language-(.+)$/) ?? [])[1] ?? "";
  const copy = button({ name: "copy", text: t("copy"), on: () => copied(copy, code.textContent) });
  code.removeAttribute("class");
  pre.tabIndex = 0;
  return el("figure", { class: "code" }, el("figcaption", {}, el("span", {}, language), copy), pre.cloneNode(true));
}

/** Copies, and says so in the button for a moment. */
export async function copied(node, text) {
  const label = node.querySelector("span"), use = node.querySelector("use");
  try {
    await copyText(text);
  } catch {
    return;
  }
  const before = label.textContent;
  label.textContent = t("copied");
  use.setAttribute("href", "icons.svg#check");
  setTimeout(() => { label.textContent = before; use.setAttribute("href", "icons.svg#copy"); }, 1500);
}

/** A node that follows a growing text; only blocks that changed are made again. */
export class MarkdownView {
  constructor() {
    this.node = el("div", { class: "md" });
    this.blocks = [];
  }

  update(text, writing = false) {
    const tokens = marked.lexer(text), links = tokens.links;
    const blocks = tokens.filter((token) => token.type !== "space" && token.type !== "def");
    const signature = JSON.stringify(links);
    if (signature !== this.links) this.blocks.length = 0; // a link's target came later than its use
    this.links = signature;
    let same = 0;
    while (same < this.blocks.length && this.blocks[same] === blocks[same]?.raw) same += 1;
    while (this.node.childElementCount > same) this.node.lastElementChild.remove();
    for (const token of blocks.slice(same)) {
      this.node.append(el("div", {}, fragment(Object.assign([token], { links }))));
    }
    this.blocks = blocks.map((token) => token.raw);
    this.node.classList.toggle("writing", writing);
  }
}
