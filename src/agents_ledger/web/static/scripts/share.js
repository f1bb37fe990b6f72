// The preview of an export follows the options of its form.

import { $, $$, create } from "./dom.js";

export function wireShare() {
  const form = $("form[data-preview]");
  if (!form) return;
  const address = () => {
    const values = new URLSearchParams(new FormData(form));
    values.delete("form");
    return `${form.dataset.preview}?${values}`;
  };
  // Set in place, so that "Back" leaves the page instead of stepping through previews.
  const show = (frame) => frame.replaceWith(newFrame(address()));
  form.addEventListener("change", (event) => {
    const frame = $("iframe.preview");
    if (frame && event.target.name !== "form") show(frame);
  });
  for (const fold of $$("details[data-at-once]")) fold.open = true;
  $("details[data-frame]")?.addEventListener("toggle", (event) => {
    const body = $(".body", event.target);
    if (event.target.open && !$("iframe", body)) body.replaceChildren(newFrame(address()));
  });
}

function newFrame(src) {
  return create("iframe", { className: "preview", src, title: "Preview of the shared page", sandbox: "" });
}
