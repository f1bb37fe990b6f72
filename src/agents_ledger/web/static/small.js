// Small things that every page has.

export const $ = (selector, within = document) => within.querySelector(selector);
export const $$ = (selector, within = document) => [...within.querySelectorAll(selector)];

/** Say something to everybody, also to those who do not see it. */
export function say(text) {
  const status = $("#status");
  status.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { status.textContent = ""; }, 3000);
}

/** An element; text is text, never markup. */
export function made(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

/** A piece of a page, made by the server. */
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

export function wireCopy() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      say("Copied");
    } catch {
      const area = made("textarea", { value: button.dataset.copy, className: "visually-hidden" });
      document.body.append(area);
      area.select();
      say(document.execCommand("copy") ? "Copied" : "This browser does not let us copy");
      area.remove();
    }
  });
}

export function wireTheme() {
  $('[data-do="theme"]')?.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remember("theme", root.dataset.theme);
  });
}
