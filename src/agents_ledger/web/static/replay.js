// Replay shows the turns of a page one after another, with their pauses shortened.

import { $, $$, create } from "./dom.js";

const PAUSE_MAX = 3000;
const PAUSE_MIN = 350;

export function wireReplay(thread) {
  if (!thread) return null;
  const replay = new Replay(thread);
  $('[data-do="replay"]')?.addEventListener("click", () => replay.toggle());
  return replay;
}

class Replay {
  constructor(thread) {
    this.thread = thread;
    this.playing = false;
    this.bar = null;
  }

  get cards() { return $$("article.card", this.thread.cards); }

  build() {
    const cards = this.cards;
    const last = String(cards.length);
    this.range = create("input", { type: "range", min: "1", max: last, value: "1", ariaLabel: "Turn" });
    this.range.addEventListener("input", () => this.show(Number(this.range.value)));
    this.button = create("button", { type: "button" }, "Play");
    this.button.addEventListener("click", () => this.toggle());
    const speeds = ["1", "2", "4", "8"].map((speed) => create("option", { value: speed }, `${speed}×`));
    this.speed = create("select", { ariaLabel: "Speed" }, ...speeds);
    const close = create("button", { type: "button" }, "Close");
    close.addEventListener("click", () => this.close());
    this.where = create("span", { className: "where" });
    const scrub = create("div", { className: "scrub" }, this.ticks(cards), this.range);
    const properties = { className: "replay", role: "region", ariaLabel: "Replay" };
    this.bar = create("div", properties, this.button, scrub, this.where, this.speed, close);
    document.body.append(this.bar);
  }

  /** A tick for each turn; compactions and failures stand out. */
  ticks(cards) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${Math.max(1, cards.length - 1) * 10 + 10} 10`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    cards.forEach((card, number) => {
      const tick = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const kind = ["compaction", "failed"].find((word) => card.classList.contains(word)) ?? "plain";
      tick.setAttribute("class", kind);
      tick.setAttribute("x", String(number * 10 + 4));
      tick.setAttribute("y", kind === "plain" ? "4" : "0");
      tick.setAttribute("width", "2");
      tick.setAttribute("height", kind === "plain" ? "6" : "10");
      svg.append(tick);
    });
    return svg;
  }

  show(number) {
    const cards = this.cards;
    cards.forEach((card, at) => { card.classList.toggle("future", at >= number); });
    const card = cards[number - 1];
    this.range.value = String(number);
    this.where.textContent = `turn ${card.dataset.depth}`;
    this.thread.go(card);
  }

  toggle() {
    if (!this.bar) {
      this.build();
      this.show(1);
      this.play();
    } else if (this.playing) this.pause();
    else this.play();
  }

  play() {
    if (Number(this.range.value) >= this.cards.length) this.show(1);
    this.playing = true;
    this.button.textContent = "Pause";
    this.next();
  }

  pause() {
    this.playing = false;
    clearTimeout(this.timer);
    this.button.textContent = "Play";
  }

  next() {
    const cards = this.cards;
    const at = Number(this.range.value);
    if (!this.playing) return;
    if (at >= cards.length) {
      this.pause();
      return;
    }
    const gap = Number(cards[at].dataset.at) - Number(cards[at - 1].dataset.at);
    const pause = Math.min(PAUSE_MAX, Math.max(PAUSE_MIN, gap)) / Number(this.speed.value);
    this.timer = setTimeout(() => {
      this.show(at + 1);
      this.next();
    }, pause);
  }

  close() {
    if (!this.bar) return;
    this.pause();
    for (const card of $$(".future")) card.classList.remove("future");
    this.bar.remove();
    this.bar = null;
  }
}
