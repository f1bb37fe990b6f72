// The page of a thread: folds that load when opened, the inspector, detail levels, and movement.

import { $, $$, announce, copy, create, fragment, remember } from "./dom.js";
import { morphChildren } from "./morph.js";
import { loadFold, loadMessage, markToCompare, marked, openFolds, reveal } from "./marks.js";

const SCROLL_MS = 1000; // a smooth scroll ends before, also in browsers without the event for it
const NARROW = 800; // pixels; below, the list would push the inspector away
const FOLLOW_MS = 120; // the inspector is not loaded for turns that are only passed

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
    if (fold.open && fold.dataset?.src) loadFold(fold);
  }, true);
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-src]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    try {
      await loadMessage(link);
    } catch {
      location.href = link.href;
    }
  });
}

function rememberSessions() {
  const links = $$(".sessions .what a").map((link) => link.getAttribute("href"));
  if (links.length) sessionStorage.setItem("sessions", JSON.stringify(links));
}

class Thread {
  constructor(root) {
    this.root = root;
    this.cards = $(".cards", root);
    this.inspector = $("#inspector");
    this.at = null;
  }

  /** The turns of the thread itself, without those of subagents. */
  get all() { return $$(":scope > article.card", this.cards).filter((card) => !card.hidden); }

  wire() {
    this.wireZoom();
    this.wireInspector();
    this.wireOlder();
    this.wireMarks();
    this.wireTree();
    this.wireCalls();
    this.land();
    this.wireScroll();
    document.addEventListener("click", (event) => {
      for (const open of $$("details.fork[open], details.switch[open], details.edit[open], details.menu[open]"))
        if (!open.contains(event.target)) open.open = false;
    });
    if (localStorage.getItem("inspector") === "off") document.body.classList.add("no-inspector");
    this.wireOthers();
  }

  /** The list of sessions beside the conversation is open where there is room, until it is closed. */
  wireOthers() {
    const fold = $(".rail .others");
    if (!fold) return;
    fold.open = innerWidth > NARROW && localStorage.getItem("sessions-beside") !== "closed";
    $("summary", fold).addEventListener("click", () =>
      localStorage.setItem("sessions-beside", fold.open ? "closed" : "open"));
  }

  /** Scroll to the turn that the address names, with the folds around it open. */
  land() {
    const id = decodeURIComponent(location.pathname.split("/t/")[1] ?? "").split("/")[0];
    const hash = decodeURIComponent(location.hash.slice(1));
    const search = new URLSearchParams(location.search);
    const chosen = search.get("turn") ?? id;
    const card = chosen && document.getElementById(`t-${chosen}`);
    if (card && search.has("mark")) {
      this.reveal(card, hash, Number(search.get("step") ?? NaN), search.getAll("mark"));
      return;
    }
    const target = (hash && hash !== "inspector" && document.getElementById(hash))
      || (chosen && document.getElementById(`t-${chosen}`));
    if (target) {
      openFolds(target);
      if (target.tagName === "DETAILS") target.open = true;
      this.go(target.closest("article.card") ?? target, { quietly: true });
    } else if (this.root.dataset.tail === "true" && this.all.length) {
      this.at = this.all.at(-1);
      this.hold();
      if (!location.search.includes("upto=")) this.at.scrollIntoView({ block: "start", behavior: "instant" });
    }
  }

  go(card, { quietly = false } = {}) {
    if (!card) return;
    this.hold();
    card.focus({ preventScroll: true });
    card.scrollIntoView({ block: "start", behavior: quietly ? "instant" : "auto" });
    this.select(card);
  }

  /** Make a turn the current one, without moving the page. */
  select(card) {
    this.place(card);
    this.choose(card.dataset.turn);
  }

  /** Select a turn, and show one of its steps with words marked. */
  async reveal(card, step, sequence, words) {
    this.isPinned = true; // a match in the middle of the screen may leave another turn above it
    this.select(card);
    await reveal(card, step, sequence, words);
  }

  place(card) {
    for (const other of $$("article.card.at")) other.classList.remove("at");
    card.classList.add("at");
    this.at = card;
  }

  /** Until a scroll of our own has ended, the turn on screen is the one that was gone to. */
  hold() {
    this.isHeld = true;
    clearTimeout(this.release);
    this.release = setTimeout(() => { this.isHeld = false; }, SCROLL_MS);
  }

  /** The tree and the inspector follow the turn on screen. */
  wireScroll() {
    let drawn = false;
    for (const name of ["wheel", "touchmove", "pointerdown", "keydown"])
      addEventListener(name, () => { this.isPinned = false; }, { passive: true, capture: true });
    document.addEventListener("scrollend", () => {
      clearTimeout(this.release);
      this.release = setTimeout(() => { this.isHeld = false; }, 50);
    });
    addEventListener("scroll", () => {
      if (this.isHeld || this.isPinned || drawn) return;
      drawn = true;
      requestAnimationFrame(() => {
        drawn = false;
        if (!this.isHeld && !this.isPinned) this.follow();
      });
    }, { passive: true });
  }

  follow() {
    const card = this.onScreen();
    if (!card || card === this.at) return;
    this.place(card);
    clearTimeout(this.following);
    this.following = setTimeout(() => this.choose(card.dataset.turn), FOLLOW_MS);
  }

  /** The last turn that begins above the upper third of the screen; at the end of the page, the last. */
  onScreen() {
    const cards = this.all;
    const root = document.documentElement;
    if (scrollY > 0 && scrollY + innerHeight >= root.scrollHeight - 2) return cards.at(-1);
    return cards.findLast((card) => card.getBoundingClientRect().top <= innerHeight / 3) ?? cards[0];
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
    this.chooseRow(id);
    const isOpen = !document.body.classList.contains("no-inspector");
    if (isOpen && $("[data-inspected]")?.dataset.inspected !== id) this.inspect(id);
  }

  /** Mark the row of a turn in the tree; of a folded turn, the row above it. */
  chooseRow(id) {
    const rail = $(".rail");
    const links = new Map($$(".rail a[data-turn]").map((link) => [link.dataset.turn, link]));
    const above = this.all.slice(0, this.all.findIndex((card) => card.dataset.turn === id) + 1);
    const row = links.get(id) ?? links.get(above.findLast((card) => links.has(card.dataset.turn))?.dataset.turn);
    for (const link of links.values()) link.classList.toggle("chosen", link === row);
    if (!row) return;
    const [box, at] = [rail.getBoundingClientRect(), row.getBoundingClientRect()];
    if (at.top < box.top || at.bottom > box.bottom) rail.scrollTop += at.top - box.top - box.height / 2;
  }

  async inspect(id, tab) {
    // Remembered here, not read from the page: another tab may still be loading.
    this.tab = tab ?? this.tab ?? $("[data-tab][aria-current]", this.inspector)?.dataset.tab ?? "overview";
    this.loading?.abort();
    this.loading = new AbortController();
    try {
      const url = `/t/${encodeURIComponent(id)}/inspect?tab=${this.tab}`;
      morphChildren(this.inspector, await fragment(url, this.loading.signal));
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
        $(`[data-tab="${tab.dataset.tab}"]`)?.focus({ preventScroll: true }));
      else {
        this.toggleInspector(true);
        this.go(inspect.closest("article.card"));
        this.inspector.focus({ preventScroll: innerWidth > 1180 });
      }
    });
  }

  toggleInspector(on) {
    this.hold(); // the page becomes wider, and its turns move
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
    markToCompare(card.dataset.turn);
    this.showMark();
  }

  showMark() {
    for (const card of $$("article.card")) card.classList.toggle("picked", card.dataset.turn === marked());
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

  /** A link to a call opens it where it is, if it is on the page. */
  wireCalls() {
    document.addEventListener("click", (event) => {
      const link = event.target.closest('a[href*="#c-"]');
      if (!link || event.ctrlKey || event.metaKey) return;
      const hash = (link.getAttribute("href") ?? "").split("#")[1];
      const call = document.getElementById(decodeURIComponent(hash));
      if (!call) return;
      event.preventDefault();
      openFolds(call);
      history.replaceState(null, "", `#${hash}`);
      this.hold();
      this.place(call.closest("article.card"));
      call.scrollIntoView({ block: "center" });
      $("summary", call).focus({ preventScroll: true });
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
