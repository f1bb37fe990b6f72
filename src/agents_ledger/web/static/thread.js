// The page of a thread: folds that load when opened, the inspector, detail levels, and movement.

import { $, $$, announce, copy, create, fragment, remember } from "./dom.js";

const MARK = "agents-ledger-mark";

export function wireThread() {
  wireFolds();
  const root = $(".thread");
  if (!root) {
    rememberSessions();
    return null;
  }
  const thread = new Thread(root);
  thread.wire();
  return thread;
}

/** Bodies of tool calls and long messages are loaded when they are opened. */
function wireFolds() {
  document.addEventListener("toggle", (event) => {
    const fold = event.target;
    if (fold.open && fold.dataset?.src) load(fold);
  }, true);
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-src]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const message = link.closest(".msg");
    try {
      const parts = await fragment(link.dataset.src);
      $(".message-body", message).replaceWith(...parts);
      link.closest("p").remove();
    } catch {
      location.href = link.href;
    }
  });
}

async function load(fold) {
  const source = fold.dataset.src;
  delete fold.dataset.src;
  try {
    $(".body", fold).replaceChildren(...await fragment(source));
  } catch {
    fold.dataset.src = source;
    announce("Loading failed");
  }
}

function rememberSessions() {
  const links = $$(".sessions .what a").map((link) => link.getAttribute("href"));
  if (links.length) sessionStorage.setItem("sessions", JSON.stringify(links));
}

function openFolds(element) {
  for (let fold = element?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
}

class Thread {
  constructor(root) {
    this.root = root;
    this.cards = $(".cards", root);
    this.inspector = $("#inspector");
    this.at = null;
  }

  get all() { return $$("article.card", this.cards).filter((card) => !card.hidden); }

  wire() {
    this.wireZoom();
    this.wireInspector();
    this.wireOlder();
    this.wireMarks();
    this.wireTree();
    this.land();
    document.addEventListener("click", (event) => {
      for (const open of $$("details.fork[open], details.switch[open], details.edit[open], details.menu[open]"))
        if (!open.contains(event.target)) open.open = false;
    });
    if (localStorage.getItem("inspector") === "off") document.body.classList.add("no-inspector");
  }

  /** Scroll to the turn that the address names, with the folds around it open. */
  land() {
    const id = decodeURIComponent(location.pathname.split("/t/")[1] ?? "").split("/")[0];
    const hash = decodeURIComponent(location.hash.slice(1));
    const chosen = new URLSearchParams(location.search).get("turn") ?? id;
    const target = (hash && hash !== "inspector" && document.getElementById(hash))
      || (chosen && document.getElementById(`t-${chosen}`));
    if (target) {
      openFolds(target);
      if (target.tagName === "DETAILS") target.open = true;
      this.go(target.closest("article.card") ?? target, { quietly: true });
      this.highlight(target);
    } else if (this.root.dataset.tail === "true" && this.all.length) {
      this.at = this.all.at(-1);
      if (!location.search.includes("upto=")) this.at.scrollIntoView({ block: "nearest", behavior: "instant" });
    }
  }

  /** Mark the words that were searched for. */
  highlight(within) {
    const words = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase()
      .split(/\s+/).filter((word) => word.length > 2 && !word.includes(":")).slice(0, 8);
    if (!words.length) return;
    const card = within.closest("article.card") ?? within;
    const texts = document.createTreeWalker(card, NodeFilter.SHOW_TEXT);
    const hits = [];
    while (texts.nextNode()) {
      const text = texts.currentNode.nodeValue.toLowerCase();
      for (const word of words) {
        const at = text.indexOf(word);
        if (at >= 0) { hits.push([texts.currentNode, at, word.length]); break; }
      }
    }
    for (const [node, at, length] of hits.slice(0, 200)) {
      const range = document.createRange();
      range.setStart(node, at);
      range.setEnd(node, at + length);
      range.surroundContents(create("mark"));
      openFolds(node.parentElement);
    }
  }

  go(card, { quietly = false } = {}) {
    if (!card) return;
    for (const other of $$("article.card.at")) other.classList.remove("at");
    card.classList.add("at");
    this.at = card;
    card.focus({ preventScroll: true });
    card.scrollIntoView({ block: "start", behavior: quietly ? "instant" : "auto" });
    this.choose(card.dataset.turn);
  }

  /** Go to the next turn, or the next with a prompt. */
  step(by, { prompts = false } = {}) {
    const cards = this.all.filter((card) => !prompts || $(".msg.query", card));
    const now = cards.indexOf(this.at);
    if (now < 0 && this.at) {
      const later = cards.filter((card) => by > 0
        ? card.compareDocumentPosition(this.at) & Node.DOCUMENT_POSITION_PRECEDING
        : card.compareDocumentPosition(this.at) & Node.DOCUMENT_POSITION_FOLLOWING);
      this.go(by > 0 ? later[0] : later.at(-1));
    } else if (now + by < 0 && $(".older")) $(".older").click();
    else this.go(cards[Math.max(0, Math.min(cards.length - 1, now + by))]);
  }

  choose(id) {
    for (const link of $$(".rail a[data-turn]")) link.classList.toggle("chosen", link.dataset.turn === id);
    const isOpen = !document.body.classList.contains("no-inspector");
    if (isOpen && $("[data-inspected]")?.dataset.inspected !== id) this.inspect(id);
  }

  async inspect(id, tab) {
    const current = tab ?? $("[data-tab][aria-current]", this.inspector)?.dataset.tab ?? "overview";
    this.loading?.abort();
    this.loading = new AbortController();
    try {
      const url = `/t/${encodeURIComponent(id)}/inspect?tab=${current}`;
      this.inspector.replaceChildren(...await fragment(url, this.loading.signal));
    } catch (error) {
      if (error.name !== "AbortError") announce("The inspector could not be loaded");
    }
  }

  wireInspector() {
    document.addEventListener("click", (event) => {
      const tab = event.target.closest("[data-tab]");
      const inspect = event.target.closest("[data-inspect]");
      if (!tab && !inspect) return;
      event.preventDefault();
      if (tab) this.inspect($("[data-inspected]").dataset.inspected, tab.dataset.tab).then(() =>
        $(`[data-tab="${tab.dataset.tab}"]`)?.focus());
      else {
        this.toggleInspector(true);
        this.go(inspect.closest("article.card"));
        this.inspector.focus({ preventScroll: innerWidth > 1180 });
      }
    });
  }

  toggleInspector(on) {
    const off = on === undefined ? !document.body.classList.contains("no-inspector") : !on;
    document.body.classList.toggle("no-inspector", off);
    localStorage.setItem("inspector", off ? "off" : "on");
    if (!off && this.at) this.inspect(this.at.dataset.turn);
  }

  wireZoom() {
    for (const button of $$("[data-zoom-to]")) button.addEventListener("click", () => this.zoom(button.dataset.zoomTo));
  }

  zoom(level) {
    document.body.dataset.zoom = level;
    remember("zoom", level);
    for (const button of $$("[data-zoom-to]")) button.setAttribute("aria-pressed", String(button.dataset.zoomTo === level));
  }

  /** Load earlier turns above the others, without moving these on the screen. */
  wireOlder() {
    const link = $(".older");
    link?.addEventListener("click", async (event) => {
      if (!this.root.dataset.url || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      if (link.ariaBusy === "true") return;
      link.ariaBusy = "true";
      try {
        const parts = await fragment(`${this.root.dataset.url}/cards?upto=${link.dataset.older}`);
        const below = document.documentElement.scrollHeight - scrollY;
        this.cards.prepend(...parts);
        scrollTo({ top: document.documentElement.scrollHeight - below, behavior: "instant" });
        const first = Number($("article.card", this.cards).dataset.depth);
        link.dataset.older = first - 1;
        link.textContent = `${first - 1} turn${first === 2 ? "" : "s"} above`;
        if (first <= 1) link.closest("p").remove();
      } catch {
        location.href = link.href;
      }
      link.ariaBusy = "false";
    });
  }

  /** Compare two marked turns. */
  wireMarks() {
    document.addEventListener("click", (event) => {
      const button = event.target.closest('[data-do="mark"], [data-do="copy-turn"]');
      if (button?.dataset.do === "mark") this.mark(button.closest("article.card"));
      else if (button) this.copy(button.closest("article.card"));
    });
    this.showMark();
  }

  /** Copy the messages of a turn as text. */
  copy(card) {
    const messages = $$(".msg", card).map((message) => {
      const texts = $$(".text-body, .prose", message).map((body) => body.textContent.trim());
      return `${$(".who", message)?.textContent.trim()}: ${texts.join("\n")}`;
    });
    copy(messages.join("\n\n"));
  }

  mark(card) {
    if (!card) return;
    const first = sessionStorage.getItem(MARK);
    if (first === card.dataset.turn) {
      sessionStorage.removeItem(MARK);
      announce("No longer marked");
    } else if (first) {
      sessionStorage.removeItem(MARK);
      location.href = `/compare?a=${encodeURIComponent(first)}&b=${encodeURIComponent(card.dataset.turn)}`;
      return;
    } else {
      sessionStorage.setItem(MARK, card.dataset.turn);
      announce("Marked. Mark another turn to compare the two.");
    }
    this.showMark();
  }

  showMark() {
    const marked = sessionStorage.getItem(MARK);
    for (const card of $$("article.card")) card.classList.toggle("picked", card.dataset.turn === marked);
  }

  /** A link of the tree scrolls to its turn if that is on the page. */
  wireTree() {
    $(".rail")?.addEventListener("click", (event) => {
      const link = event.target.closest("a[data-turn]");
      const card = link && document.getElementById(`t-${link.dataset.turn}`);
      if (!card || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      this.go(card);
    });
  }

  async session(by) {
    let list = JSON.parse(sessionStorage.getItem("sessions") ?? "[]");
    const here = this.root.dataset.url;
    if (!list.includes(here)) {
      const parts = create("div", {}, ...await fragment("/sessions"));
      list = $$(".sessions .what a", parts).map((link) => link.getAttribute("href"));
      sessionStorage.setItem("sessions", JSON.stringify(list));
    }
    const next = list[list.indexOf(here) + by];
    if (next) location.href = next;
    else announce(by > 0 ? "This is the last session of the list" : "This is the first session of the list");
  }
}
