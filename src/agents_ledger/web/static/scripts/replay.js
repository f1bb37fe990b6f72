// Replay shows the messages and calls of a page one after another, with their pauses shortened.

import { $, $$, create } from "./dom.js";

const PAUSE_MAX = 3000;
const PAUSE_MIN = 350;
const STEPS = ".msg, .call, .thinking, .subagent, .seam, .error, .left-out";

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

  /** What is shown one after another: the parts of each turn, or a turn without parts. */
  get steps() {
    return this.thread.all.flatMap((card) => {
      const parts = $$(":scope > *", card).filter((part) => part.matches(STEPS) && part.checkVisibility());
      return parts.length ? parts.map((element) => ({ card, element })) : [{ card, element: card }];
    });
  }

  build() {
    this.list = this.steps;
    const last = String(this.list.length);
    this.range = create("input", { type: "range", min: "1", max: last, value: "1", ariaLabel: "Step" });
    this.range.addEventListener("input", () => this.show(Number(this.range.value)));
    this.button = create("button", { type: "button" }, "Play");
    this.button.addEventListener("click", () => this.toggle());
    const speeds = ["1", "2", "4", "8"].map((speed) => create("option", { value: speed }, `${speed}×`));
    this.speed = create("select", { ariaLabel: "Speed" }, ...speeds);
    const close = create("button", { type: "button" }, "Close");
    close.addEventListener("click", () => this.close());
    this.where = create("span", { className: "where" });
    const scrub = create("div", { className: "scrub" }, this.ticks(), this.range);
    const properties = { className: "replay", role: "region", ariaLabel: "Replay" };
    this.bar = create("div", properties, this.button, scrub, this.where, this.speed, close);
    document.body.append(this.bar);
  }

  /** A tick for each step; compactions and failures stand out. */
  ticks() {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${this.list.length * 10} 10`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    this.list.forEach(({ card, element }, number) => {
      const tick = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const kind = card.classList.contains("compaction") ? "compaction"
        : element.classList.contains("failed") || element.classList.contains("error") ? "failed" : "plain";
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
    const { card, element } = this.list[number - 1];
    const begun = new Set(this.list.slice(0, number).map((step) => step.card));
    for (const other of this.thread.all) other.classList.toggle("future", !begun.has(other));
    this.list.forEach((step, at) => {
      if (step.element !== step.card) step.element.classList.toggle("future", at >= number);
    });
    this.range.value = String(number);
    this.where.textContent = `turn ${card.dataset.depth}, step ${number} of ${this.list.length}`;
    if (this.thread.at !== card) this.thread.go(card);
    this.thread.hold();
    element.scrollIntoView({ block: "nearest" });
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
    if (Number(this.range.value) >= this.list.length) this.show(1);
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
    const at = Number(this.range.value);
    if (!this.playing) return;
    if (at >= this.list.length) {
      this.pause();
      return;
    }
    const gap = this.time(at) - this.time(at - 1);
    const pause = Math.min(PAUSE_MAX, Math.max(PAUSE_MIN, gap)) / Number(this.speed.value);
    this.timer = setTimeout(() => {
      this.show(at + 1);
      this.next();
    }, pause);
  }

  /** When a step began: messages have no times of their own, but those of the call before them. */
  time(at) {
    const { card } = this.list[at];
    const timed = this.list.slice(0, at + 1).findLast((step) => step.card === card && step.element.dataset.at);
    return Number((timed?.element ?? card).dataset.at);
  }

  close() {
    if (!this.bar) return;
    this.pause();
    for (const card of $$(".future")) card.classList.remove("future");
    this.bar.remove();
    this.bar = null;
  }
}
