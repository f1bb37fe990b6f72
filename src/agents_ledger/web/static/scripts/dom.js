// Elements, fragments, messages, the clipboard and the theme: what all pages share.

export const $ = (selector, within = document) => within.querySelector(selector);
export const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

/** Show a short message, which screen readers announce too. */
export function announce(text) {
  const status = $("#status");
  status.textContent = text;
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => { status.textContent = ""; }, 3000);
}

/** Create an element. Strings become text, never markup. */
export function create(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/** Nodes of a page fragment, rendered by the server. */
export async function fragment(url, signal) {
  const answer = await fetch(url, { headers: { Accept: "text/html" }, signal });
  if (!answer.ok) throw new Error(`${answer.status} for ${url}`);
  const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
  return [...parsed.body.childNodes];
}

export const csrf = () => $('meta[name="csrf"]')?.content ?? "";

export function remember(name, value) {
  document.cookie = `${name}=${value}; path=/; max-age=31536000; SameSite=Strict`;
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    announce("Copied");
  } catch {
    const area = create("textarea", { value: text, className: "visually-hidden" });
    document.body.append(area);
    area.select();
    announce(document.execCommand("copy") ? "Copied" : "The browser refused to copy");
    area.remove();
  }
}

export function wireCopy() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button.dataset.copy);
  });
}

export function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  remember("theme", root.dataset.theme);
}

export function wireTheme() {
  $('[data-do="theme"]')?.addEventListener("click", toggleTheme);
}
