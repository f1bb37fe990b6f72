// Keeps a page up to date. The one way in which parts of a page change after it was loaded.
//
//   id="x" data-fragment="URL"     a region: URL renders it again, alone or as part of a page
//     data-changes="move live"     ... which happens after changes of these kinds (/api/v1/changes;
//                                  `begun` is the first of a live turn)
//     data-changes-of="NAME"       ... of this session or turn alone
//   <form data-live-form="x y">    a GET form: changing a control updates these regions and the address
//   <a data-live="x y">            the same for a link, such as a column to sort by
//   data-reload="URL"              work in progress: the region around it is loaded until it is done

import { $, $$, announce } from "./dom.js";
import { morph, morphChildren } from "./morph.js";

const RELOAD_MS = 2500;
const TYPING_MS = 250;
const REFRESH_MS = 150;
const STREAM = "/api/v1/changes?text=false";

const listeners = [];
const begun = new Set(); // turns being written
const refreshes = new WeakMap(); // region -> its refresh that is due or under way
const requests = new Map(); // name of a region -> the request under way for it

/** Call `listener(kind, change)` for each change of the ledger while the page is visible. */
export function onChange(listener) {
  listeners.push(listener);
}

export function wireUpdates() {
  wireForms();
  wireReload();
  onChange((kind, change) => {
    for (const region of $$("[data-changes]")) if (concerns(region, kind, change)) schedule(region);
  });
  if (listeners.length > 1 || $("[data-changes]")) follow();
}

/** Load the page or fragment at `url`, and change the regions of these names into theirs. */
export async function update(names, url) {
  const request = new AbortController();
  for (const name of names) {
    requests.get(name)?.abort();
    requests.set(name, request);
  }
  let parsed;
  try {
    const answer = await fetch(url, { headers: { Accept: "text/html" }, signal: request.signal });
    if (!answer.ok) throw new Error(`${answer.status} for ${url}`);
    parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
  } finally {
    for (const name of names) if (requests.get(name) === request) requests.delete(name);
  }
  for (const name of names) {
    const region = document.getElementById(name);
    const fresh = parsed.getElementById(name);
    if (region && fresh) morph(region, fresh);
    else if (region) morphChildren(region, parsed.body.childNodes);
    if (region) document.dispatchEvent(new CustomEvent("updated", { detail: region }));
  }
}

// -- changes ----------------------------------------------------------------------------------

function concerns(region, kind, change) {
  const of = region.dataset.changesOf;
  return region.dataset.changes.split(" ").includes(kind)
    && (!of || of === change.session_label || of === change.turn_id);
}

/** Refresh a region soon. Changes until then are part of it; after a later one it is refreshed again. */
function schedule(region, wait = REFRESH_MS * (1 + Math.random())) {
  const due = refreshes.get(region);
  if (due) {
    due.again = due.started;
    return;
  }
  const refresh = { started: false, again: false };
  refreshes.set(region, refresh);
  setTimeout(async () => {
    refresh.started = true;
    try {
      // What a person asked for is not given up for a refresh of what they leave.
      if (requests.has(region.id)) refresh.again = true;
      else if (region.isConnected) await update([region.id], region.dataset.fragment);
    } catch { /* the next change tries again */ }
    refreshes.delete(region);
    if (refresh.again) schedule(region);
    wireReload();
  }, wait);
}

/** Listen while the page is visible: a browser keeps few connections to one server. */
function follow() {
  let source = null;
  const listen = () => {
    source = new EventSource(STREAM);
    source.onopen = () => { document.body.dataset.live = "on"; };
    const tell = (kind, change) => { for (const listener of listeners) listener(kind, change); };
    for (const kind of ["move", "live", "sealed"])
      source.addEventListener(kind, (event) => {
        const change = JSON.parse(event.data);
        tell(kind, change);
        if (kind !== "live" || begun.has(change.turn_id)) return;
        begun.add(change.turn_id);
        tell("begun", change);
      });
  };
  const stop = () => {
    source?.close();
    delete document.body.dataset.live;
  };
  document.addEventListener("visibilitychange", () => {
    stop();
    if (document.hidden) return;
    listen();
    for (const listener of listeners) listener("shown", {});
    for (const region of $$("[data-changes]")) schedule(region);
  });
  addEventListener("pagehide", stop);
  listen();
}

// -- forms and links --------------------------------------------------------------------------

function wireForms() {
  let typing;
  const submit = (form, isTyping) => {
    clearTimeout(typing);
    typing = setTimeout(() => go(form.dataset.liveForm, addressOf(form), isTyping), isTyping ? TYPING_MS : 0);
  };
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (form?.dataset.liveForm !== undefined) submit(form, isText(event.target));
  });
  document.addEventListener("submit", (event) => {
    if (event.target.dataset.liveForm === undefined) return;
    event.preventDefault();
    submit(event.target, false);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-live]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go(link.dataset.live, link.href, false);
  });
  addEventListener("popstate", async (event) => {
    const names = event.state?.regions;
    if (!names) return;
    try {
      await update(names, location.href);
    } catch (error) {
      if (error.name !== "AbortError") location.reload();
    }
    for (const form of $$("form[data-live-form]")) showAddress(form);
  });
}

const isText = (control) => control.matches("textarea, input:not([type=checkbox], [type=radio])");

/** Update regions from an address and put it into the history; while one types, into the same entry. */
async function go(names, url, isTyping) {
  const regions = (names || "main").split(" ");
  try {
    await update(regions, url);
  } catch (error) {
    if (error.name === "AbortError") return;
    announce("Loading failed");
    return;
  }
  const isSameEntry = isTyping && history.state?.typing;
  if (!history.state?.regions) history.replaceState({ regions }, "");
  history[isSameEntry ? "replaceState" : "pushState"]({ regions, typing: isTyping }, "", url);
  for (const form of $$("form[data-live-form]")) if (!form.contains(document.activeElement)) showAddress(form);
}

/** The address of a form, without the controls that are empty. */
function addressOf(form) {
  const values = [...new FormData(form)].filter(([, value]) => value !== "");
  const query = new URLSearchParams(values).toString();
  return new URL(form.action).pathname + (query ? `?${query}` : "");
}

/** Set the controls of a form to the values in the address. */
function showAddress(form) {
  const query = new URLSearchParams(location.search);
  for (const control of form.elements) {
    if (!control.name) continue;
    if (["checkbox", "radio"].includes(control.type)) control.checked = query.getAll(control.name).includes(control.value);
    else if (query.has(control.name)) control.value = query.get(control.name);
    else if (control.nodeName === "SELECT") control.selectedIndex = 0;
    else control.value = "";
  }
}

// -- work in progress -------------------------------------------------------------------------

function wireReload() {
  for (const waiting of $$("[data-reload]")) {
    const region = waiting.closest("[data-fragment]") ?? $("#main");
    region.dataset.fragment ??= waiting.dataset.reload;
    schedule(region, RELOAD_MS);
  }
}
