// The palette: sessions, turns, files and places, found while typing.

import { $, $$, fragment, made, toggleTheme } from "./small.js";

let dialog;
let asked;
let commands = [];

export function wirePalette(thread, replay) {
  commands = [
    ["Light or dark", "", toggleTheme],
    ["Keys", "?", () => $('[data-do="help"]').click()],
    ...(thread ? [
      ["Fork from this turn", "f", () => press("f")],
      ["Replay", "space", () => replay?.toggle()],
      ["Mark this turn to compare", "x", () => press("x")],
      ["Copy this turn", "c", () => press("c")],
      ["Inspector on or off", ".", () => press(".")],
      ["Prompts only", "1", () => thread.zoom("1")],
      ["Conversation", "2", () => thread.zoom("2")],
      ["With tools", "3", () => thread.zoom("3")],
      ["Everything", "4", () => thread.zoom("4")],
      ["Whole tree", "t", () => press("t")],
      ["Export this thread", "", () => $('.tools a[href^="/share/"]')?.click()],
    ] : []),
  ];
  const box = $(".find input");
  box?.addEventListener("keydown", (event) => {
    if (event.key === "Escape") box.blur();
  });
}

export function openPalette() {
  dialog ??= build();
  if (dialog.open) return;
  dialog.showModal();
  const input = $("input", dialog);
  input.value = "";
  ask("");
  input.focus();
}

function build() {
  const input = made("input", { type: "search", placeholder: "Find sessions, turns, files, pages", ariaLabel: "Find", autocomplete: "off", role: "combobox", "aria-controls": "palette-list", "aria-expanded": "true" });
  const list = made("div", { id: "palette-list", role: "listbox", ariaLabel: "Found" });
  const made_ = made("dialog", { id: "palette", ariaLabel: "Find anything" }, made("form", { method: "dialog" }, input), list);
  let timer;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => ask(input.value), 120);
  });
  made_.addEventListener("keydown", (event) => move(event, list));
  $("form", made_).addEventListener("submit", (event) => event.preventDefault());
  made_.addEventListener("click", (event) => { if (event.target === made_) made_.close(); });
  document.body.append(made_);
  return made_;
}

async function ask(text) {
  asked?.abort();
  asked = new AbortController();
  const list = $("#palette-list");
  try {
    list.replaceChildren(...await fragment(`/palette?q=${encodeURIComponent(text)}`, asked.signal));
  } catch (error) {
    if (error.name !== "AbortError") list.textContent = "Nothing could be found now.";
    return;
  }
  offerCommands(list, text.trim().toLowerCase());
  const first = $('[role="option"]', list);
  if (first) choose(list, first);
}

const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key }));

/** What can be done on this page, below what was found. */
function offerCommands(list, text) {
  const fitting = commands.filter(([name]) => name.toLowerCase().includes(text));
  if (!fitting.length) return;
  list.append(made("h3", {}, "Commands"), ...fitting.map(([name, key, act], number) => {
    const item = made("a", { role: "option", ariaSelected: "false", id: `command-${number}`, href: "#" },
      made("span", { className: "what" }, name), key ? made("kbd", {}, key) : "");
    item.addEventListener("click", (event) => {
      event.preventDefault();
      event.stopPropagation(); // what it opens would be closed by a click elsewhere
      dialog.close();
      act();
    });
    return item;
  }));
}

function choose(list, item) {
  for (const other of $$('[aria-selected="true"]', list)) other.setAttribute("aria-selected", "false");
  item.setAttribute("aria-selected", "true");
  $("input", dialog).setAttribute("aria-activedescendant", item.id);
  item.scrollIntoView({ block: "nearest" });
}

function move(event, list) {
  const items = $$('[role="option"]', list);
  const at = items.findIndex((item) => item.ariaSelected === "true");
  if (event.key === "Enter" && items[at]) {
    event.preventDefault();
    dialog.close();
    items[at].click();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const next = items[(at + (event.key === "ArrowDown" ? 1 : -1) + items.length) % items.length];
    if (next) choose(list, next);
  }
}
