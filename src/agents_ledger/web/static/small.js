// Small things that every page has.

const AGAIN_MS = 2500;

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

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
  } catch {
    const area = made("textarea", { value: text, className: "visually-hidden" });
    document.body.append(area);
    area.select();
    say(document.execCommand("copy") ? "Copied" : "This browser does not let us copy");
    area.remove();
  }
}

export function wireCopy() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button.dataset.copy);
  });
}

/** What is still being made is looked at again until it is there. */
export function wireAgain() {
  const waiting = $("[data-again]");
  if (waiting) setTimeout(() => location.replace(waiting.dataset.again), AGAIN_MS);
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
