// Turns a part of the page into what the server rendered now, and leaves alone what stays the same:
// open folds, the focus, the selection, scroll positions and text being typed.

// Classes that scripts set on elements of the server.
const OWN_CLASSES = ["at", "picked", "future", "chosen"];

/** Make `old` equal to `fresh`. Children are matched by id or data-key, the others by their order. */
export function morph(old, fresh) {
  const active = document.activeElement;
  const selection = old.contains(active) ? selectionOf(active) : null;
  morphElement(old, fresh);
  if (!selection || active === document.activeElement || !active.isConnected) return;
  active.focus({ preventScroll: true });
  if (selection.start !== undefined) active.setSelectionRange(selection.start, selection.end);
}

/** Make the children of `old` equal to `nodes`. */
export function morphChildren(old, nodes) {
  const fresh = old.cloneNode(false);
  fresh.append(...nodes);
  morph(old, fresh);
}

function selectionOf(element) {
  try {
    return element.selectionStart == null ? {} : { start: element.selectionStart, end: element.selectionEnd };
  } catch {
    return {}; // of an input without a text selection
  }
}

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE && (node.id || node.dataset?.key)) || "";

const isSameKind = (old, fresh) =>
  old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);

function morphElement(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  const wasLoaded = isLoaded(old, fresh);
  const isStale = wasLoaded && stateOf(old) !== stateOf(fresh);
  morphAttributes(old, fresh, wasLoaded && !isStale ? "data-src" : "");
  if (old.nodeName === "TEXTAREA") return;
  morphList(old, [...fresh.childNodes], wasLoaded);
  if (isStale && old.open) old.dispatchEvent(new Event("toggle")); // loads the body again
}

/** Whether this is a fold whose body was loaded when it was opened. */
const isLoaded = (old, fresh) => fresh.hasAttribute("data-src") && !old.hasAttribute("data-src");

const stateOf = (element) => [...element.classList].filter((name) => !OWN_CLASSES.includes(name)).sort().join(" ");

function morphAttributes(old, fresh, skipped) {
  for (const { name } of [...old.attributes])
    if (!fresh.hasAttribute(name) && !isOwn(old, name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (name === skipped || old.getAttribute(name) === value || isOwn(old, name)) continue;
    old.setAttribute(name, name === "class" ? withOwnClasses(old, value) : value);
  }
  morphValue(old, fresh);
}

/** Whether an attribute belongs to the reader: what is open stays open. */
const isOwn = (element, name) => name === "open" && ["DETAILS", "DIALOG"].includes(element.nodeName);

function withOwnClasses(old, value) {
  return [value, ...OWN_CLASSES.filter((name) => old.classList.contains(name))].join(" ");
}

/** Controls show what the server rendered, except for the one in use. */
function morphValue(old, fresh) {
  if (old === document.activeElement || old.parentElement === document.activeElement) return;
  if (old.nodeName === "INPUT") {
    if (old.value !== fresh.value) old.value = fresh.value;
    old.checked = fresh.checked;
  } else if (old.nodeName === "OPTION") old.selected = fresh.selected;
}

function morphList(parent, nodes, keepsBody) {
  const wanted = new Set(nodes.map(keyOf).filter(Boolean));
  const keyed = new Map();
  for (const node of [...parent.childNodes]) {
    const key = keyOf(node);
    if (key && !wanted.has(key)) node.remove();
    else if (key) keyed.set(key, node);
  }
  let at = parent.firstChild;
  for (const fresh of nodes) {
    const match = matchOf(fresh, keyed, at);
    if (!match) {
      parent.insertBefore(document.importNode(fresh, true), at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else parent.insertBefore(match, at);
    if (match.nodeType !== Node.ELEMENT_NODE) {
      if (match.nodeValue !== fresh.nodeValue) match.nodeValue = fresh.nodeValue;
    } else if (!(keepsBody && match.classList.contains("body"))) morphElement(match, fresh);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** The old node that becomes a fresh one: of the same key, or the next without a key and of the same kind. */
function matchOf(fresh, keyed, at) {
  const key = keyOf(fresh);
  if (key) {
    const match = keyed.get(key);
    return match?.nodeName === fresh.nodeName ? match : null;
  }
  for (let node = at; node && !keyOf(node); node = node.nextSibling)
    if (isSameKind(node, fresh)) return node;
  return null;
}
