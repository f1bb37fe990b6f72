// Keyboard shortcuts: everything can be reached without a mouse.

import { $, $$, create } from "./dom.js";
import { markToCompare, marked } from "./marks.js";
import { openPalette } from "./palette.js";

const CALLS_OPENED_MAX = 20;
const HELP = [
  ["Ctrl K", "find anything"],
  ["/", "find in this session; elsewhere: find anything"],
  ["n  N", "next, previous match"],
  ["j  k", "next, previous turn; in lists: the next, previous line"],
  ["Enter", "open the line"],
  ["J  K", "next, previous prompt"],
  ["]  [", "next, previous session"],
  ["1 2 3 4", "prompts, conversation, tools, everything"],
  ["z", "next level of detail"],
  ["o", "open or close the tool calls of a turn"],
  ["t", "the whole tree"],
  [".", "inspector on or off"],
  ["x", "mark a turn or a session; mark two to compare them"],
  ["f", "fork from this turn"],
  ["c", "copy the messages of this turn"],
  ["s", "star this session, or remove its star"],
  ["e", "share this session"],
  ["Space", "replay: play or pause"],
  ["g h, g s, g q, g u", "go home, to sessions, search, usage"],
  ["g f, g t, g a, g i", "files, tools, audit, imports"],
  ["Esc", "close one thing"],
];
const PLACES = {
  h: "/",
  s: "/sessions",
  u: "/usage",
  f: "/files",
  t: "/tools",
  a: "/audit",
  i: "/imports",
  q: "/search",
};

export function wireKeys(thread, replay, find) {
  let going = false;
  $('[data-do="help"]')?.addEventListener("click", help);
  wireTrees();
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.key === "Escape") {
      closeOne(replay);
      return;
    }
    if (going) {
      going = false;
      if (PLACES[event.key]) location.href = PLACES[event.key];
      return;
    }
    if (event.key === "g") {
      going = true;
      setTimeout(() => { going = false; }, 1200);
      return;
    }
    const act = keys(thread, replay, find)[event.key];
    if (!act || (event.key === " " && event.target.closest("button, summary, a, input"))) return;
    event.preventDefault();
    act();
  });
}

function keys(thread, replay, find) {
  const any = { "/": openPalette, "?": help };
  if (!thread) return { ...any, j: () => stepLine(1), k: () => stepLine(-1), n: () => stepLine(1), N: () => stepLine(-1), x: markLine };
  return {
    ...any,
    ...find && { "/": () => find.open(), n: () => find.step(1), N: () => find.step(-1) },
    j: () => thread.step(1),
    k: () => thread.step(-1),
    J: () => thread.step(1, { prompts: true }),
    K: () => thread.step(-1, { prompts: true }),
    "]": () => thread.session(1),
    "[": () => thread.session(-1),
    1: () => thread.zoom("1"),
    2: () => thread.zoom("2"),
    3: () => thread.zoom("3"),
    4: () => thread.zoom("4"),
    z: () => thread.zoom(String(Number(document.body.dataset.zoom) % 4 + 1)),
    t: () => $(".rail .wider a")?.click(),
    ".": () => thread.toggleInspector(),
    x: () => thread.mark(thread.at ?? thread.all.at(-1)),
    c: () => thread.copy(thread.at ?? thread.all.at(-1)),
    f: () => openFork(thread.at ?? thread.all.at(-1)),
    o: () => toggleCalls(thread.at ?? thread.all.at(-1)),
    s: () => $(".thread-bar form.star button")?.click(),
    e: () => $('.tools a[href^="/share/"]')?.click(),
    " ": () => replay?.toggle(),
  };
}

// The lines of a list: a row of a table, a hit, a point of a list; in this order of importance.
const LISTS = ["table.sessions tbody tr", ".hit", "table tbody tr", "main li"];

/** The first link of each line of the page's list. */
function lines() {
  const selector = LISTS.find((each) => $$(each).some((line) => $("a[href]", line)));
  return selector ? $$(selector).map((line) => $("a[href]", line)).filter((link) => link?.checkVisibility()) : [];
}

function stepLine(by) {
  const links = lines();
  const at = links.findIndex((link) => link === document.activeElement);
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.max(0, Math.min(links.length - 1, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

/** Mark the session or the turn of a line to compare it. */
function markLine() {
  const link = document.activeElement;
  const target = link.matches?.("a[href]") && /^\/[st]\/([^/]+)$/.exec(link.pathname);
  if (target) markToCompare(decodeURIComponent(target[1]));
  for (const line of lines()) {
    const label = /^\/[st]\/([^/]+)$/.exec(line.pathname)?.[1];
    line.closest("tr, .hit, li").classList.toggle("picked", Boolean(label) && decodeURIComponent(label) === marked());
  }
}

function openFork(card) {
  const fold = $("details.fork", card);
  fold.open = true;
  $("input[name=label]", fold).focus();
}

function toggleCalls(card) {
  const folds = $$("details.call", card);
  const open = folds.some((fold) => !fold.open);
  for (const fold of folds.slice(0, CALLS_OPENED_MAX)) fold.open = open;
}

function isTyping(target) {
  return target.closest?.("input:not([type=range]):not([type=checkbox]), textarea, select, [contenteditable]");
}

function closeOne(replay) {
  const fold = $$("details.fork[open], details.switch[open], details.edit[open], details.menu[open]").at(-1);
  if (fold) {
    fold.open = false;
    $("summary", fold).focus();
  } else replay?.close();
}

function help() {
  let dialog = $("#help");
  if (!dialog) {
    const rows = HELP.map(([keys, what]) => {
      const names = keys.split(/\s+/).map((key) => create("kbd", {}, key));
      return create("div", {}, create("dt", {}, ...names), create("dd", {}, what));
    });
    dialog = create("dialog", { id: "help", ariaLabel: "Keys" }, create("h2", {}, "Keys"), create("dl", {}, ...rows),
      create("form", { method: "dialog" }, create("button", {}, "Close")));
    document.body.append(dialog);
  }
  dialog.showModal();
}

/** Arrow keys within a tree, as the ARIA practices describe. */
function wireTrees() {
  for (const tree of $$('[role="tree"]')) {
    tree.addEventListener("keydown", (event) => {
      const items = $$('[role="treeitem"]', tree);
      const at = items.indexOf(document.activeElement);
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
      const level = (item) => Number(item.ariaLevel);
      let next = items[to];
      if (event.key === "ArrowLeft") next = items.slice(0, at).findLast((item) => level(item) < level(items[at]));
      if (event.key === "ArrowRight") next = items[at].ariaExpanded === "false" ? null : items[at + 1];
      if (event.key === "ArrowRight" && items[at]?.ariaExpanded === "false") items[at].click();
      if (!next) return;
      event.preventDefault();
      event.stopPropagation();
      items[at]?.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }
}
