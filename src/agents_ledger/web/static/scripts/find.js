// Find within a thread: the server finds the matches, this steps through them.

import { $, $$, announce, create, fragment } from "./dom.js";

const TYPING_MS = 250;

export function wireFind(thread) {
  const form = $("form.find-bar");
  if (!thread || !form) return null;
  const find = new Find(thread, form);
  find.wire();
  return find;
}

class Find {
  constructor(thread, form) {
    this.thread = thread;
    this.form = form;
    this.input = $("input", form);
    this.matches = [];
    this.at = -1;
  }

  wire() {
    const text = new URLSearchParams(location.search).get("find");
    this.form.hidden = !text;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.text === this.input.value.trim()) this.step(1);
      else this.search();
    });
    this.input.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.search(), TYPING_MS);
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.close();
    });
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-find]");
      if (!button) return;
      if (button.dataset.find === "open") this.open();
      else if (button.dataset.find === "close") this.close();
      else this.step(Number(button.dataset.find));
    });
    if (text) {
      this.input.value = text;
      this.search({ stay: true });
    }
  }

  open() {
    this.form.hidden = false;
    this.input.focus();
    this.input.select();
  }

  close() {
    this.form.hidden = true;
    this.thread.at?.focus({ preventScroll: true });
  }

  /** `stay`: the address has led to a match already. */
  async search({ stay = false } = {}) {
    clearTimeout(this.timer);
    this.loading?.abort();
    this.loading = new AbortController();
    this.text = this.input.value.trim();
    try {
      const url = `${this.form.getAttribute("action")}?q=${encodeURIComponent(this.text)}`;
      const page = create("div", {}, ...this.text ? await fragment(url, this.loading.signal) : []);
      this.matches = $$("a[data-turn]", page);
      this.list = $("[data-matches]", page)?.dataset;
    } catch (error) {
      if (error.name !== "AbortError") announce("The search failed");
      return;
    }
    const depth = Number(this.thread.at?.dataset.depth ?? 0);
    const here = this.matches.findIndex((link) => Number(link.dataset.depth) >= depth);
    this.at = Math.max(0, here);
    if (stay) {
      const there = this.matches.findIndex((link) => `#${link.dataset.step}` === decodeURIComponent(location.hash)
        && location.search.includes(link.dataset.turn));
      this.at = Math.max(0, there);
      this.count();
    } else await this.show();
  }

  async step(by) {
    if (!this.matches.length) return;
    this.at = (this.at + by + this.matches.length) % this.matches.length;
    await this.show();
  }

  async show() {
    this.count();
    const link = this.matches[this.at];
    if (!link) return;
    const card = document.getElementById(`t-${link.dataset.turn}`);
    if (!card) {
      location.href = link.getAttribute("href");
      return;
    }
    await this.thread.reveal(card, link.dataset.step, Number(link.dataset.sequence), JSON.parse(this.list.words));
  }

  count() {
    const more = this.list?.capped === "true" ? "+" : "";
    $("output", this.form).textContent = !this.text ? ""
      : this.matches.length ? `${this.at + 1} of ${this.matches.length}${more}` : "No match";
  }
}
