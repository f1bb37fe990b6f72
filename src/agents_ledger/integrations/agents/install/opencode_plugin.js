// Written by `agents-ledger install opencode`; removed by `agents-ledger uninstall opencode`.
// Sends opencode's events to `agents-ledger hook` and adds its answers to the system prompt.
import { spawn } from "node:child_process"

const COMMAND = ["agents-ledger"]

function hook(event, fields) {
  return new Promise((resolve) => {
    const words = [...COMMAND.slice(1), "hook", event, "--agent", "opencode"]
    const child = spawn(COMMAND[0], words, { stdio: ["pipe", "pipe", "ignore"], timeout: 10000 })
    let output = ""
    child.stdout.on("data", (data) => (output += data))
    child.on("error", () => resolve(null))
    child.on("close", () => {
      try {
        resolve(JSON.parse(output).context ?? null)
      } catch {
        resolve(null)
      }
    })
    child.stdin.on("error", () => {})
    child.stdin.end(JSON.stringify(fields))
  })
}

export const AgentsLedger = async ({ directory }) => {
  const briefs = new Map() // by session
  const passages = new Map()
  const of = (session_id) => ({ session_id, cwd: directory })
  return {
    "chat.message": async (input, output) => {
      const prompt = output.parts.filter((part) => part.type === "text").map((part) => part.text)
      const fields = { ...of(input.sessionID), prompt: prompt.join("\n") }
      passages.set(input.sessionID, await hook("prompt", fields))
    },
    "experimental.chat.system.transform": async (input, output) => {
      const session = input.sessionID ?? ""
      if (!briefs.has(session)) briefs.set(session, hook("session-start", of(session)))
      for (const text of [await briefs.get(session), passages.get(session)]) {
        if (text) output.system.push(text)
      }
    },
    "experimental.session.compacting": async (input) => {
      await hook("compact", of(input.sessionID))
    },
    event: async ({ event }) => {
      // There is no event for the end of a session: it is idle after each answer.
      if (event.type === "session.idle") await hook("session-end", of(event.properties.sessionID))
    },
  }
}
