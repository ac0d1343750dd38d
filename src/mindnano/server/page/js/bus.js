// Who wants to know what: a few named events between the page's parts.
const target = new EventTarget();

export const emit = (name, detail) => target.dispatchEvent(new CustomEvent(name, { detail }));
export const on = (name, handler) => target.addEventListener(name, (event) => handler(event.detail));
