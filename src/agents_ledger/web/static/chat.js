// Sends a message to a session. live.js shows the answer while it is written.

import { $, announce, csrf } from "./dom.js";

export function wireChat(thread) {
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
      if (answer.ok || answer.type === "opaqueredirect") area.value = "";
      else announce("The message could not be sent");
    } catch {
      announce("The message could not be sent");
    }
    button.disabled = false;
    area.focus();
  });
}
