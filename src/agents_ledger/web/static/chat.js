// Going on with a session by typing: the answer is shown as it is written, by the live page.

import { $, csrf, say } from "./small.js";

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
        headers: { "Content-Type": "application/x-www-form-urlencoded", "X-CSRF-Token": csrf(), Accept: "application/json" },
        body: new URLSearchParams({ text }),
        redirect: "manual",
      });
      if (answer.ok || answer.type === "opaqueredirect") area.value = "";
      else say("It could not be sent");
    } catch {
      say("It could not be sent");
    }
    button.disabled = false;
    area.focus();
  });
}
