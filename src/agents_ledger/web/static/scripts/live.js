// New turns appear below while the page of a thread is open, and a turn changes while it is written.
// A message can be sent to the session.
// What is being read never moves, unless the reader follows the end.

import { $, $$, announce, create, csrf, fragment } from "./dom.js";
import { morph } from "./morph.js";
import { onChange } from "./updates.js";

const FAILED_AFTER_MS = [500, 1500, 4000, 10_000];

export function wireLive(thread) {
  if (!thread || thread.root.dataset.tail !== "true" || !thread.root.dataset.session) return null;
  const live = new Live(thread);
  const label = thread.root.dataset.session;
  onChange((kind, change) => {
    if (kind !== "shown" && change.session_label !== label) return;
    live.fetchNews();
    live.inspect(kind, change);
  });
  live.wireFollow();
  return live;
}

class Live {
  constructor(thread) {
    this.thread = thread;
    this.seen = Number(thread.root.dataset.depth);
    this.fresh = 0;
    this.follows = false;
  }

  /** Fetch the turns below the last one; once more if a change arrived meanwhile. */
  async fetchNews() {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    try {
      const parts = await fragment(`${this.thread.root.dataset.url}/news?after=${Math.max(0, this.seen - 1)}`);
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
      if (!cards.some((other) => other.id === card.id)) card.remove();
    for (const card of cards) {
      const old = document.getElementById(card.id);
      const isNew = !card.classList.contains("live") && (!old || old.classList.contains("live"));
      if (isNew && !this.fresh) this.boundary(old);
      if (isNew) this.fresh += 1;
      if (old) morph(old, card);
      else there.append(card);
    }
    const depths = $$("article.card:not(.live)", there).map((card) => Number(card.dataset.depth));
    this.seen = Math.max(this.seen, ...depths);
    if (this.follows) this.scroll();
    this.pill();
  }

  /** Refresh the inspector if its turn has a new step or has ended. */
  inspect(kind, change) {
    const inspected = $("[data-inspected]")?.dataset.inspected;
    if (!inspected || inspected !== change.turn_id || (kind === "live" && this.steps === change.steps)) return;
    this.steps = change.steps;
    this.thread.inspect(inspected);
  }

  boundary(before) {
    $(".unread")?.remove();
    this.thread.cards.insertBefore(create("p", { className: "unread" }, "New since you opened this page"), before);
  }

  pill() {
    const end = $("#tail").getBoundingClientRect();
    let pill = $(".pill");
    if (!this.fresh || this.follows || end.top < innerHeight) {
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

  /** Links to a running turn end with #follow: the page stays at its end until the reader scrolls up. */
  wireFollow() {
    document.addEventListener("click", (event) => {
      if (!event.target.closest('[data-do="follow"]')) return;
      event.preventDefault();
      this.follow(!this.follows);
    });
    addEventListener("wheel", (event) => { if (event.deltaY < 0) this.follow(false); }, { passive: true });
    addEventListener("keydown", (event) => { if (["ArrowUp", "PageUp", "Home"].includes(event.key)) this.follow(false); });
    document.addEventListener("updated", () => this.showFollow());
    if (location.hash === "#follow") this.follow(true);
  }

  follow(on) {
    if (this.follows === on) return;
    this.follows = on;
    announce(on ? "Following the end of the thread" : "No longer following");
    this.showFollow();
    if (on) this.scroll();
  }

  showFollow() {
    for (const button of $$('[data-do="follow"]')) button.setAttribute("aria-pressed", String(this.follows));
  }

  scroll() {
    this.fresh = 0;
    $("#tail").scrollIntoView({ block: "end", behavior: "instant" });
  }
}

export function wireChat(thread, live) {
  const form = $("form.chat");
  if (!form || !thread) return;
  const area = $("textarea", form);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = area.value.trim();
    if (!text) return;
    const button = $("button", form);
    button.disabled = true;
    try {
      const answer = await fetch(form.action, {
        method: "POST",
        headers: {
          "Content-Type": "application/x-www-form-urlencoded",
          "X-CSRF-Token": csrf(),
          Accept: "application/json",
        },
        body: new URLSearchParams({ text }),
        redirect: "manual",
      });
      if (answer.ok || answer.type === "opaqueredirect") {
        area.value = "";
        live?.follow(true);
        // A turn that fails at once was never seen being written, and moves no head.
        for (const ms of FAILED_AFTER_MS) setTimeout(() => live?.fetchNews(), ms);
      } else announce("The message could not be sent");
    } catch {
      announce("The message could not be sent");
    }
    button.disabled = false;
    area.focus();
  });
}
