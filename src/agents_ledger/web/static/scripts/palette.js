// The palette finds sessions, turns, files, pages and commands while typing.

import { $, $$, create, fragment, toggleTheme } from "./dom.js";
import { morphChildren } from "./morph.js";

let dialog;
let pending;
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
      ["Share this thread", "", () => $('.tools a[href^="/share/"]')?.click()],
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
  const input = create("input", {
    type: "search",
    placeholder: "Find sessions, turns, files, pages",
    ariaLabel: "Find",
    autocomplete: "off",
    role: "combobox",
    "aria-controls": "palette-list",
    "aria-expanded": "true",
  });
  const list = create("div", { id: "palette-list", role: "listbox", ariaLabel: "Results" });
  const form = create("form", { method: "dialog" }, input);
  const palette = create("dialog", { id: "palette", ariaLabel: "Find anything" }, form, list);
  let timer;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => ask(input.value), 120);
  });
  palette.addEventListener("keydown", (event) => move(event, list));
  form.addEventListener("submit", (event) => event.preventDefault());
  palette.addEventListener("click", (event) => { if (event.target === palette) palette.close(); });
  list.addEventListener("click", runCommand);
  document.body.append(palette);
  return palette;
}

async function ask(text) {
  pending?.abort();
  pending = new AbortController();
  const list = $("#palette-list");
  try {
    const results = await fragment(`/palette?q=${encodeURIComponent(text)}`, pending.signal);
    morphChildren(list, [...results, ...matchingCommands(text.trim().toLowerCase())]);
  } catch (error) {
    if (error.name !== "AbortError") list.textContent = "The search failed.";
    return;
  }
  const first = $('[role="option"]', list);
  if (first) choose(list, first);
}

const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key }));

/** The commands of this page, below the results. */
function matchingCommands(text) {
  const matching = commands.filter(([name]) => name.toLowerCase().includes(text));
  if (!matching.length) return [];
  return [create("h3", {}, "Commands"), ...matching.map(([name, key]) =>
    create("a", { role: "option", ariaSelected: "false", id: `command-${commandNumber(name)}`, href: "#" },
      create("span", { className: "what" }, name), key ? create("kbd", {}, key) : ""))];
}

const commandNumber = (wanted) => commands.findIndex(([name]) => name === wanted);

function runCommand(event) {
  const item = event.target.closest("[id^=command-]");
  if (!item) return;
  event.preventDefault();
  event.stopPropagation(); // what it opens would be closed by a click elsewhere
  dialog.close();
  const [, , act] = commands[Number(item.id.slice("command-".length))];
  act();
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
  if (event.key === "Escape") {
    event.preventDefault(); // a search field would first take the key to clear itself
    dialog.close();
  } else if (event.key === "Enter" && items[at]) {
    event.preventDefault();
    dialog.close();
    items[at].click();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    const next = items[(at + (event.key === "ArrowDown" ? 1 : -1) + items.length) % items.length];
    if (next) choose(list, next);
  }
}
