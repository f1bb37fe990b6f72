#!/usr/bin/env node
// Verifies a proof that `agents-ledger prove TURN` exported, with Node alone: no package, and nothing of Agents Ledger.
// The form of what is hashed is in docs/explanation/evidence.md.
//
//   node verify_proof.mjs PROOF [--key NAME+HASH+BASE64] [--checkpoint FILE]
//
// Without --key, the proof's own keys are believed: that shows only that its parts belong together. With --checkpoint,
// the proof's checkpoint must be in that file. Exits with 1 if the proof does not hold.

import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

class Invalid extends Error {}

const sha256 = (...parts) => parts.reduce((hash, part) => hash.update(part), createHash("sha256")).digest();
const hex = (text) => Buffer.from(text, "hex");
const demand = (condition, message) => {
  if (!condition) throw new Invalid(message);
};

// -- the canonical form ----------------------------------------------------------------------------------------------

const item = (value) => (value === null ? "-;" : `${Buffer.byteLength(String(value))}:${value};`);
const items = (values) => values.map(item).join("");

const TURN = {
  plain: [
    "id", "turn_type", "status", "started_at", "completed_at", "role", "input_tokens", "output_tokens",
    "cached_input_tokens", "cache_write_tokens", "reasoning_tokens", "total_tokens", "long_cache_write_tokens",
    "query_message_ids", "response_message_id", "tool_call_count",
  ],
  values: [
    "model", "provider", "toolset_name", "tools_available", "permissions_granted", "permissions_used",
    "source_event_id", "workspace_path", "effective_config_json", "error",
  ],
};
const STEPS = {
  m: {
    name: "message",
    plain: ["id", "role", "source", "sequence", "created_at", "tool_call_id"],
    values: ["content", "thinking", "context_json", "metadata_json"],
  },
  c: {
    name: "tool call",
    plain: [
      "id", "message_id", "tool_number", "status", "source_status", "spawned_session_label", "started_at",
      "completed_at", "sequence",
    ],
    values: ["tool_name", "params_json", "result_json", "error"],
  },
  k: {
    name: "compaction",
    plain: [
      "summarized_through_turn_id", "first_kept_turn_id", "turns_summarized", "compaction_type", "model", "provider",
      "tokens_before", "tokens_after", "summary_tokens", "summarization_input_tokens", "summarization_output_tokens",
      "duration_ms", "trigger",
    ],
    values: ["summary", "metadata_json"],
  },
};
const DETAILS = {
  f: { name: "file", plain: ["kind", "line_start", "line_end"], values: ["file_path"] },
  l: {
    name: "lint",
    plain: ["lint_source", "start_line", "start_col", "end_line", "end_col", "severity"],
    values: ["file_path", "message"],
  },
  b: { name: "codeblock", plain: ["idx", "language", "line_start", "line_end"], values: ["content", "file_path"] },
};

class Reader {
  constructor(text) {
    this.bytes = Buffer.from(text);
    this.at = 0;
  }
  get done() {
    return this.at === this.bytes.length;
  }
  take(length) {
    demand(this.at + length <= this.bytes.length, "the content ends too early");
    this.at += length;
    return this.bytes.toString("utf8", this.at - length, this.at);
  }
  expect(text) {
    demand(this.take(Buffer.byteLength(text)) === text, `the content lacks ${JSON.stringify(text)}`);
  }
  peek() {
    return this.done ? "" : String.fromCharCode(this.bytes[this.at]);
  }
  item() {
    if (this.peek() === "-") return this.expect("-;"), null;
    const colon = this.bytes.indexOf(":", this.at);
    const digits = this.take(Math.max(0, colon - this.at));
    demand(/^\d+$/.test(digits), "the content has a malformed item");
    this.expect(":");
    const value = this.take(Number(digits));
    this.expect(";");
    return value;
  }
  commitment() {
    if (this.peek() === "-") return this.expect("-;"), null;
    const value = this.take(64);
    demand(/^[0-9a-f]{64}$/.test(value), "the content has a malformed commitment");
    this.expect(";");
    return value;
  }
}

// A value that was removed has no salt: its commitment stays, and says nothing.
const opened = (values, label, commitment) => {
  if (commitment === null) return demand(!(label in values), `${label} is not in the content`), null;
  const entry = values[label];
  if (entry === undefined) return "(redacted)";
  const same = sha256(hex(entry.salt), Buffer.from(entry.value)).toString("hex") === commitment;
  demand(same, `${label} is not the value that was recorded`);
  return entry.value;
};

const record = (reader, columns, values, prefix, sequenced) => {
  const row = Object.fromEntries(columns.plain.map((name) => [name, reader.item()]));
  const start = sequenced ? `${prefix}${row.sequence}.` : prefix;
  for (const name of columns.values) row[name] = opened(values, start + name, reader.commitment());
  return [row, start];
};

const parseContent = (text, values) => {
  const reader = new Reader(text);
  reader.expect("agents-ledger turn 1\n");
  const [turn] = record(reader, TURN, values, "", false);
  const steps = [];
  while (!reader.done) {
    const word = reader.take(1);
    demand(word in STEPS, `the content has an unknown part ${JSON.stringify(word)}`);
    const [row, prefix] = record(reader, STEPS[word], values, word === "k" ? "k." : word, word !== "k");
    steps.push({ what: STEPS[word].name, ...row });
    const counts = { f: 0, l: 0, b: 0 };
    while (word === "m" && reader.peek() in DETAILS) {
      const detail = reader.take(1);
      record(reader, DETAILS[detail], values, `${prefix}${detail}${counts[detail]++}.`, false);
    }
  }
  return { turn, steps };
};

const turnLeaf = (leaf, turnId) => {
  const { turn, steps } = parseContent(leaf.content, leaf.values);
  demand(turn.id === turnId, `the leaf is of turn ${turn.id}`);
  const content = sha256(leaf.content).toString("hex");
  return { data: `agents-ledger turn leaf 1\n${items([content, ...leaf.place])}`, shown: { turn, steps, place: leaf.place } };
};

const sourceLeaf = (leaf) => {
  const path = opened(leaf.values, "path", leaf.path_commitment);
  const records = leaf.commitments.map((commitment, number) => opened(leaf.values, `r${number}`, commitment));
  const content = sha256(leaf.commitments.join("")).toString("hex");
  const plain = [leaf.path_commitment, leaf.generation, leaf.start, leaf.commitments.length, content];
  return { data: `agents-ledger source leaf 1\n${items(plain)}`, shown: { path, records } };
};

// -- the tree: RFC 9162, 2.1.3.2 -------------------------------------------------------------------------------------

const LEAF = Buffer.from([0]);
const NODE = Buffer.from([1]);

const rootOf = (data, index, size, path) => {
  demand(Number.isSafeInteger(index) && index >= 0 && index < size, "the leaf is not in the tree");
  let [at, last, root] = [BigInt(index), BigInt(size) - 1n, sha256(LEAF, data)];
  for (const text of path) {
    demand(last > 0n, "the path is too long");
    const node = hex(text);
    if (at & 1n || at === last) {
      root = sha256(NODE, node, root);
      while (!(at & 1n) && at > 0n) [at, last] = [at >> 1n, last >> 1n];
    } else {
      root = sha256(NODE, root, node);
    }
    [at, last] = [at >> 1n, last >> 1n];
  }
  demand(last === 0n, "the path is too short");
  return root;
};

// -- the checkpoint: C2SP signed note --------------------------------------------------------------------------------

const parseKey = (text) => {
  const [, name, hash, encoded] = /^([^+\s]+)\+([0-9a-f]{8})\+(\S+)$/.exec(text) ?? [];
  demand(name, `${text} is not a verifier key`);
  const key = Buffer.from(encoded, "base64");
  demand(key.length === 33 && key[0] === 1, `${name} is not an Ed25519 key`);
  demand(sha256(`${name}\n`, key).subarray(0, 4).toString("hex") === hash, `the hash of the key ${name} is wrong`);
  const x = key.subarray(1).toString("base64url");
  return { name, hash, key: createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" }) };
};

const checkNote = (note, keys) => {
  const end = note.indexOf("\n\n");
  demand(end > 0, "the checkpoint is not a signed note");
  const text = note.slice(0, end + 1);
  const signers = [];
  for (const line of note.slice(end + 2).trimEnd().split("\n")) {
    const [, name, encoded] = /^\u2014 (\S+) (\S+)$/.exec(line) ?? [];
    demand(name, "the checkpoint has a malformed signature");
    const signature = Buffer.from(encoded, "base64");
    const hash = signature.subarray(0, 4).toString("hex");
    const key = keys.find((known) => known.name === name && known.hash === hash);
    if (key === undefined) continue;
    demand(verify(null, Buffer.from(text), key.key, signature.subarray(4)), `the signature of ${name} is wrong`);
    signers.push(`${name}+${hash}`);
  }
  demand(signers.length > 0, "no known key signed the checkpoint");
  const [origin, size, root] = text.split("\n");
  return { origin, size: Number(size), root: Buffer.from(root, "base64"), signers };
};

// -- the command -----------------------------------------------------------------------------------------------------

const main = (words) => {
  const given = { keys: [], file: null, checkpoints: null };
  while (words.length > 0) {
    const word = words.shift();
    if (word === "--key") given.keys.push(words.shift());
    else if (word === "--checkpoint") given.checkpoints = readFileSync(words.shift(), "utf8");
    else given.file = word;
  }
  if (given.file === null) throw new Error("usage: node verify_proof.mjs PROOF [--key KEY] [--checkpoint FILE]");
  const proof = JSON.parse(readFileSync(given.file, "utf8"));
  demand(proof.format === "agents-ledger proof 1", `the format ${proof.format} is unknown`);
  demand(proof.leaves.length > 0, "the proof has no leaves");
  const shown = proof.leaves.map((leaf) => {
    const { data, shown } = leaf.kind === "turn" ? turnLeaf(leaf, proof.turn) : sourceLeaf(leaf);
    const root = rootOf(Buffer.from(data), leaf.index, proof.size, leaf.path);
    demand(root.toString("hex") === proof.root, "the path leads to another root");
    return { kind: leaf.kind, index: leaf.index, ...shown };
  });
  let checkpoint = null;
  if (proof.checkpoint !== null) {
    checkpoint = checkNote(proof.checkpoint, (given.keys.length > 0 ? given.keys : proof.keys).map(parseKey));
    demand(checkpoint.size === proof.size, "the checkpoint is of a tree of another size");
    demand(checkpoint.root.toString("hex") === proof.root, "the checkpoint has another root");
  }
  if (given.keys.length > 0) demand(checkpoint !== null, "the proof has no checkpoint");
  if (given.checkpoints !== null) {
    demand(proof.checkpoint !== null && given.checkpoints.includes(proof.checkpoint), "the file lacks the checkpoint");
  }
  const signers = checkpoint?.signers ?? [];
  console.log(JSON.stringify({ holds: true, turn: proof.turn, size: proof.size, root: proof.root, signers, leaves: shown }, null, 2));
};

try {
  main(process.argv.slice(2));
} catch (error) {
  if (!(error instanceof Invalid) && !(error instanceof TypeError) && !(error instanceof SyntaxError)) throw error;
  console.error(`the proof does not hold: ${error.message}`);
  process.exitCode = 1;
}
