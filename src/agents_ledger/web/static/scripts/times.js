// Times in the zone of the reader. The server writes UTC, which stays without scripts.

import { $, $$, create } from "./dom.js";

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const WHOLE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

export function wireTimes() {
  localise();
  // The fields of a form are in the zone of the reader; it sends times of the world.
  document.addEventListener("formdata", (event) => {
    for (const input of $$('[data-local-times] input[type="datetime-local"]'))
      if (input.form === event.target) event.formData.set(input.name, new Date(input.value).toISOString());
  });
  setInterval(countSeconds, 1000);
  // An update removes the attribute together with the local time.
  const changes = { childList: true, subtree: true, attributes: true, attributeFilter: ["data-local"] };
  new MutationObserver(localise).observe($("main"), changes);
}

/** How long a turn has been running: as the server writes it, in whole seconds. */
function countSeconds() {
  for (const element of $$("[data-since]")) {
    const seconds = Math.max(0, Math.floor((Date.now() - Number(element.dataset.since)) / 1000));
    const [unit, length] = UNITS.find(([unit, length]) => unit === "s" || seconds >= (unit === "min" ? 1 : 2) * length);
    element.textContent = `${Math.floor(seconds / length).toLocaleString("en")} ${unit}`;
  }
}

function localise() {
  for (const time of $$("time[datetime]:not([data-local])")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.valueOf())) continue;
    time.dataset.local = "";
    time.title = WHOLE.format(at);
    if (time.classList.contains("moment")) time.textContent = MOMENT.format(at);
    if (/^\d{4}-\d\d-\d\d$/.test(time.textContent)) time.textContent = at.toLocaleDateString("sv"); // like 2026-11-18
    if (time.classList.contains("clock")) time.textContent = CLOCK.format(at);
  }
  for (const cards of $$(".cards, .subagent .body")) separateDays(cards);
}

/** Put a line with the date before the first turn of each day. */
function separateDays(cards) {
  let last = "";
  for (const card of $$(":scope > article.card", cards)) {
    const at = Number(card.dataset.at);
    const before = card.previousElementSibling;
    const line = before?.classList.contains("day") ? before : null;
    const day = at ? DAY.format(at) : last;
    if (day === last) line?.remove();
    else if (!line) card.before(create("p", { className: "day" }, day));
    else if (line.textContent.trim() !== day) line.replaceChildren(day);
    last = day;
  }
}
