// Recent and saved searches, which only this browser knows.

import { $, create } from "./dom.js";

const RECENT_MAX = 8;

const read = (name) => {
  try {
    const list = JSON.parse(localStorage.getItem(name) ?? "[]");
    return Array.isArray(list) ? list.filter((entry) => typeof entry?.url === "string" && entry.url.startsWith("/search?")) : [];
  } catch {
    return [];
  }
};
const write = (name, list) => localStorage.setItem(name, JSON.stringify(list));

export function wireSearch() {
  const box = $("[data-searches]");
  if (!box) return;
  const here = { url: location.pathname + location.search, text: box.dataset.searches };
  if (here.text) {
    write("recent-searches", [here, ...read("recent-searches").filter((entry) => entry.url !== here.url)].slice(0, RECENT_MAX));
  }
  show(box, here);
}

function show(box, here) {
  const saved = read("saved-searches");
  const isSaved = saved.some((entry) => entry.url === here.url);
  const parts = [];
  if (here.text) {
    const button = create("button", { type: "button" }, isSaved ? "Remove from saved" : "Save this search");
    button.addEventListener("click", () => {
      write("saved-searches", isSaved ? saved.filter((entry) => entry.url !== here.url) : [here, ...saved]);
      show(box, here);
    });
    parts.push(button);
  }
  const recent = here.text ? [] : read("recent-searches");
  for (const [title, list] of [["Saved", saved], ["Recent", recent]]) {
    if (!list.length) continue;
    const links = list.map((entry) => create("li", {}, create("a", { href: entry.url }, String(entry.text))));
    parts.push(create("h2", {}, title), create("ul", { className: "plain" }, ...links));
  }
  box.replaceChildren(...parts);
}
