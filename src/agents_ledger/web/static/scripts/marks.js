// Opens the message or tool call that holds a match, and marks the words in it.
// Marks turns and sessions to compare them.

import { $, $$, announce, create, fragment } from "./dom.js";

const BODIES = ".message-body, .call-body, details.thinking, .seam, .error";
const NOT_TEXT = "button, summary, form, .small-links, mark";
const MARKS_MAX = 200;

const MARK = "agents-ledger-mark";

/** The turn or session that is marked to be compared. */
export const marked = () => sessionStorage.getItem(MARK);

/** Mark a turn or a session; with one marked already, compare the two. */
export function markToCompare(target) {
  const first = marked();
  if (!first) {
    sessionStorage.setItem(MARK, target);
    announce("Marked. Mark another one to compare the two.");
    return;
  }
  sessionStorage.removeItem(MARK);
  if (first === target) announce("No longer marked");
  else location.href = `/compare?a=${encodeURIComponent(first)}&b=${encodeURIComponent(target)}`;
}

export function openFolds(element) {
  for (let fold = element?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
}

/** Load the body of a fold, once. */
export async function loadFold(fold) {
  const source = fold.dataset.src;
  if (!source) return;
  delete fold.dataset.src;
  try {
    $(".body", fold).replaceChildren(...await fragment(source));
  } catch {
    fold.dataset.src = source;
    announce("Loading failed");
  }
}

/** Replace the beginning of a long message by all of it. */
export async function loadMessage(link) {
  const parts = await fragment(link.dataset.src);
  $(".message-body", link.closest(".msg")).replaceWith(...parts);
  link.closest("p").remove();
}

/** Show a step of a turn with its words marked; the first mark, or the step if nothing can be marked. */
export async function reveal(card, id, sequence, words) {
  const step = (id && document.getElementById(id)) || await leftOut(card, id, sequence) || card;
  for (const old of $$("mark", document)) old.replaceWith(...old.childNodes);
  if (step.matches("details.call")) await loadFold(step);
  if (step !== card && step.matches("details")) step.open = true;
  let marks = mark(step, words);
  const whole = $("p.all a[data-src]", step);
  if (!marks.length && whole && step !== card) {
    await loadMessage(whole);
    marks = mark(step, words);
  }
  if (!marks.length && step !== card) marks = mark(card, words);
  const target = marks[0] ?? step;
  openFolds(target);
  for (const other of $$(".match-at")) other.classList.remove("match-at");
  if (step !== card) step.classList.add("match-at");
  target.scrollIntoView({ block: marks.length ? "center" : "start", behavior: "instant" });
  return target;
}

/** A step that a card with very many steps left out. */
async function leftOut(card, id, sequence) {
  const gap = $(".left-out", card);
  if (!gap || !id || !Number.isInteger(sequence)) return null;
  const parts = create("div", {}, ...await fragment(`/t/${encodeURIComponent(card.dataset.turn)}/steps?after=${sequence - 1}`));
  const step = $$("[id]", parts).find((element) => element.id === id);
  if (step) gap.after(step);
  return step ?? null;
}

function mark(within, words) {
  if (!words.length) return [];
  const escaped = words.map((word) => word.trim().split(/\s+/).map(RegExp.escape ?? escape).join("\\s+"));
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(?:${escaped.join("|")})`, "giu");
  const bodies = within.matches(BODIES) ? [within] : $$(BODIES, within);
  const nodes = new Set();
  for (const body of bodies) {
    const texts = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) if (!texts.currentNode.parentElement.closest(NOT_TEXT)) nodes.add(texts.currentNode);
  }
  const marks = [];
  for (const node of nodes) {
    const spans = [...node.nodeValue.matchAll(pattern)].slice(0, MARKS_MAX - marks.length);
    const own = spans.reverse().map((span) => {
      const range = document.createRange();
      range.setStart(node, span.index);
      range.setEnd(node, span.index + span[0].length);
      const element = create("mark");
      range.surroundContents(element);
      return element;
    });
    marks.push(...own.reverse());
  }
  return marks;
}

const escape = (text) => text.replace(/[.*+?^${}()|[\]\\/-]/g, (sign) => `\\x${sign.charCodeAt(0).toString(16).padStart(2, "0")}`);
