// Written by `agents-ledger install opencode`; removed by `agents-ledger uninstall opencode`.
// Sends opencode's events to `agents-ledger hook` and adds its answers to the prompts, where they do not
// change the part of a request that providers cache.
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

export const AgentsLedger = async ({ client, directory }) => {
  const sessions = new Map() // what is known of each: "child", "new" or "briefed"
  const of = (session_id) => ({ session_id, cwd: directory })

  async function stateOf(id) {
    if (!sessions.has(id)) {
      const session = await client.session.get({ path: { id } }).catch(() => null)
      const messages = await client.session.messages({ path: { id } }).catch(() => null)
      const isNew = !messages?.data?.length
      sessions.set(id, session?.data?.parentID ? "child" : isNew ? "new" : "briefed")
    }
    return sessions.get(id)
  }

  return {
    "chat.message": async ({ sessionID }, output) => {
      const state = await stateOf(sessionID)
      if (state === "child") return
      const typed = output.parts.filter((part) => part.type === "text" && !part.synthetic)
      const prompt = typed.map((part) => part.text).join("\n")
      const answers = [hook("prompt", { ...of(sessionID), prompt })]
      if (state === "new") answers.unshift(hook("session-start", of(sessionID)))
      sessions.set(sessionID, "briefed")
      const text = (await Promise.all(answers)).filter(Boolean).join("\n\n")
      const last = output.parts.at(-1)
      if (!text || !last) return
      // Parts are in the order of their ids.
      const id = `${last.id}z`
      const place = { id, sessionID, messageID: output.message.id }
      output.parts.push({ ...place, type: "text", text, synthetic: true })
    },
    "experimental.session.compacting": async ({ sessionID }) => {
      await hook("compact", of(sessionID))
    },
    event: async ({ event }) => {
      const id = event.properties?.sessionID
      // Its summary does not have the brief.
      if (event.type === "session.compacted" && sessions.get(id) === "briefed")
        sessions.set(id, "new")
      // There is no event for the end of a session: it is idle after each answer.
      if (event.type === "session.idle" && sessions.get(id) === "briefed")
        await hook("session-end", of(id))
    },
  }
}
