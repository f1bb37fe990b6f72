// New turns appear below while a page is open; what is being read never moves.

import { $, $$, create, fragment } from "./dom.js";

export function wireLive(thread) {
  if (!thread || thread.root.dataset.tail !== "true" || !thread.root.dataset.session) return;
  const live = new Live(thread);
  const label = encodeURIComponent(thread.root.dataset.session);
  const source = new EventSource(`/api/v1/changes?session=${label}`);
  source.addEventListener("move", () => live.fetchNews());
  source.addEventListener("live", (event) => live.wrote(JSON.parse(event.data)));
  source.addEventListener("sealed", () => live.fetchNews());
  addEventListener("pagehide", () => source.close());
  document.body.dataset.live = "on";
}

class Live {
  constructor(thread) {
    this.thread = thread;
    this.seen = Number(thread.root.dataset.depth);
    this.fresh = 0;
  }

  /** Fetch the turns below the last one; once more if a change arrived meanwhile. */
  async fetchNews() {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    try {
      const parts = await fragment(`${this.thread.root.dataset.url}/news?after=${this.seen}`);
      this.show(create("div", {}, ...parts));
    } catch { /* the next change tries again */ }
    this.busy = false;
    if (this.again) {
      this.again = false;
      this.fetchNews();
    }
  }

  show(news) {
    const cards = $$("article.card", news);
    const there = this.thread.cards;
    for (const card of $$("article.card.live", there))
      if (!cards.some((other) => other.id === card.id && other.classList.contains("live"))) card.remove();
    for (const card of cards) {
      const old = document.getElementById(card.id);
      if (old) {
        old.replaceWith(card);
        continue;
      }
      if (!this.fresh) this.boundary();
      if (!card.classList.contains("live")) this.fresh += 1;
      there.append(card);
    }
    const depths = $$("article.card:not(.live)", there).map((card) => Number(card.dataset.depth));
    this.seen = Math.max(this.seen, ...depths);
    this.pill();
  }

  boundary() {
    $(".unread")?.remove();
    this.thread.cards.append(create("p", { className: "unread" }, "New since you opened this page"));
  }

  pill() {
    if (!this.fresh) return;
    const end = $("#tail").getBoundingClientRect();
    let pill = $(".pill");
    if (end.top < innerHeight) {
      pill?.remove();
      return;
    }
    pill ??= create("button", { className: "pill", type: "button" });
    pill.textContent = `${this.fresh} new`;
    pill.onclick = () => {
      ($(".unread") ?? $("#tail")).scrollIntoView({ block: "start" });
      this.fresh = 0;
      pill.remove();
    };
    document.body.append(pill);
  }

  /** A turn is being written: show its text, or fetch the turn if it is not on the page. */
  wrote(news) {
    const partial = $$("[data-partial]").find((element) => element.dataset.partial === news.turn_id);
    if (!partial || Number(partial.dataset.steps ?? news.steps) !== news.steps) {
      this.fetchNews();
      return;
    }
    partial.dataset.steps = news.steps;
    $(".text-body", partial).textContent = news.text;
  }
}
