// Events in words, merged: one line for a peer that several nodes suspect.

import { arcLength, counted, position, percent } from "./circle.js";
import { names } from "./view.js";

const MERGE_S = 2;
const BRIEF_S = 1; // a suspicion that ends within this time is not listed

// The lines of the event list until a time, the latest first: {t, icon, tone, text, address, isPolled}. Only a poll
// revealed a line with `isPolled`, so its time may be one poll late.
export function feed(log, until) {
  if (log.feedOf !== log.events.length + log.marks.length + log.faults.length || !log.feed) {
    log.feed = build(log);
    log.feedOf = log.events.length + log.marks.length + log.faults.length;
  }
  const lines = until === null ? log.feed : log.feed.filter((line) => line.t <= until);
  return { lines: lines.slice(-200).reverse(), shown: lines.length, all: log.feed.length };
}

function build(log) {
  const nameOf = (address) => log.live.nodes[address]?.name ?? address;
  const lines = [];
  const open = new Map();
  for (const event of log.events) {
    const fields = event.fields ?? {};
    const node = nameOf(event.node);
    const add = (icon, tone, text, address = event.node) => lines.push({ t: event.t, icon, tone, text, address });
    if (event.kind === "PeerChanged") {
      mergePeer(lines, open, event, fields, node, nameOf);
    } else if (event.kind === "NodeStateChanged") {
      if (fields.state === "leaving") add("half", "mute", `${node} leaves`);
      else if (fields.state === "left") add("half", "mute", `${node} has left`);
      else if (fields.state === "stopped") add("cross", "mute", `${node} stops`);
    } else if (event.kind === "RingCreated") add("join", "path", `${node} founds the ring`);
    else if (event.kind === "RingJoined") add("join", "path", `${node} joins the ring`);
    else if (event.kind === "RingResumed") add("up", "own", `${node} returns to its place`);
    else if (event.kind === "ArcGained" && fields.how === "taken_over") {
      add("arc", "mute", `${node} takes over ${percent(shareOf(fields, log))} of the circle`);
    } else if (event.kind === "TransferEnded" && fields.records) {
      add("move", "path", `${node} transfers ${counted(fields.records, "record")} to ${nameOf(addressOf(fields, "to"))}`);
    } else if (event.kind === "SplitFound") add("link", "path", `${node} finds another ring by a self-lookup`);
    else if (event.kind === "VnodeIsolated") add("alert", "bad", `${node} has lost all neighbours`);
    else if (event.kind === "RecordsDamaged") add("alert", "bad", `${node} has ${fields.records} damaged records`);
    else if (event.kind === "ClockSkewed") add("half", "warn", `The clock of ${node} differs by ${fields.skew_ms} ms`);
    else if (event.kind === "HealthChanged" && fields.why) add("alert", "warn", `${node}: ${fields.why}`);
  }
  for (const mark of log.marks) {
    const text = { dead: "stops responding", back: "responds again", join: "enters the ring", left: "is gone" }[mark.kind];
    const isFault = mark.kind === "dead" && log.faults.some((fault) => Math.abs(fault.t - mark.t) < 0.1 && fault.groups?.flat().includes(mark.name));
    if ((mark.kind === "dead" || mark.kind === "back") && !isFault) {
      lines.push({ t: mark.t, icon: mark.kind === "dead" ? "cross" : "up", tone: mark.kind === "dead" ? "bad" : "own", text: `${mark.name} ${text}`, isPolled: log.header.source === "live" });
    }
  }
  for (const fault of log.faults) lines.push({ t: fault.t, icon: "cut", tone: fault.do === "heal" ? "path" : "bad", text: faultText(fault) });
  return lines.filter((line) => !line.isBrief).sort((a, b) => a.t - b.t);
}

function mergePeer(lines, open, event, fields, node, nameOf) {
  const words = { suspect: "suspected by", dead: "declared dead by", alive: "alive again for", paused: "paused, according to", left: "has left, according to" };
  const name = `${fields.address}/${fields.state}`;
  const before = open.get(name);
  const doubt = open.get(`${fields.address}/suspect`);
  if (fields.state === "alive" && doubt && doubt.by.includes(node) && event.t - (doubt.since[node] ?? 0) < BRIEF_S) {
    doubt.by = doubt.by.filter((one) => one !== node);
    doubt.text = `${doubt.subject} ${words.suspect} ${names(doubt.by, 4)}`;
    doubt.isBrief = !doubt.by.length;
    return;
  }
  if (before && event.t - before.t <= MERGE_S) {
    if (!before.by.includes(node)) before.by.push(node);
    before.since[node] = event.t;
    before.isBrief = false;
    before.text = `${before.subject} ${words[fields.state]} ${names(before.by, 4)}`;
    return;
  }
  const tone = fields.state === "dead" ? "bad" : fields.state === "alive" ? "own" : "warn";
  const icon = fields.state === "dead" ? "cross" : fields.state === "alive" ? "check" : "half";
  const line = { t: event.t, icon, tone, by: [node], since: { [node]: event.t }, subject: nameOf(fields.address), address: fields.address };
  line.text = `${line.subject} ${words[fields.state] ?? fields.state} ${node}`;
  open.set(name, line);
  lines.push(line);
}

// The numbers of events until a time, by what happened, the most frequent first: [word, icon, tone, number].
export function counts(log, until) {
  const end = until ?? Infinity;
  let seen = log.counted; // a later moment goes on from an earlier one
  if (!seen || seen.first !== log.events[0] || seen.end > end) seen = { first: log.events[0], next: 0, found: new Map() };
  log.counted = { ...seen, end };
  let { found } = seen;
  const count = (word, icon, tone) => found.set(word, [word, icon, tone, (found.get(word)?.[3] ?? 0) + 1]);
  for (; log.counted.next < log.events.length; log.counted.next += 1) {
    const event = log.events[log.counted.next];
    if (event.t > end) break;
    const { state, how } = event.fields ?? {};
    if (event.kind === "PeerChanged") count(...(VERDICTS[state] ?? [state, "half", "mute"]));
    else if (event.kind === "NodeStateChanged" && state in ENDS) count(ENDS[state], "half", "mute");
    else if (event.kind === "ArcGained" && how === "taken_over") count("arcs taken over", "arc", "mute");
    else if (event.kind in KINDS) count(...KINDS[event.kind]);
  }
  found = new Map(found);
  for (const fault of log.faults) if (fault.t <= end) count(`faults: ${fault.do}`, "cut", fault.do === "heal" ? "path" : "bad");
  return [...found.values()].sort((a, b) => b[3] - a[3]);
}

const VERDICTS = {
  suspect: ["suspicions", "half", "warn"], dead: ["verdicts of death", "cross", "bad"], alive: ["peers alive again", "check", "own"],
  paused: ["peers paused", "paused", "warn"], left: ["peers gone", "half", "mute"],
};
const ENDS = { leaving: "leaves begun", left: "leaves ended", stopped: "stops" };
const KINDS = {
  RingCreated: ["rings founded", "join", "path"], RingJoined: ["joins", "join", "path"], RingResumed: ["returns", "up", "own"],
  TransferEnded: ["transfers ended", "move", "path"], SplitFound: ["splits found", "link", "path"],
  VnodeIsolated: ["vnodes isolated", "alert", "bad"], RecordsDamaged: ["reports of damage", "alert", "bad"],
};

export function faultText(fault) {
  const groups = (fault.groups ?? []).map((group) => names(group, 6));
  const words = {
    partition: `The network is cut: ${groups.join(" | ")}`, heal: "The network is whole again", kill: `${groups[0]} is killed`,
    freeze: `${groups[0]} is frozen`, unfreeze: `${groups[0]} runs again`, stop: `${groups[0]} is stopped`, wake: `${groups[0]} wakes`,
  };
  return words[fault.do] ?? `Fault: ${fault.do} ${groups.join(" | ")}`;
}

function addressOf(fields, name) {
  return fields[`${name}_address`] ?? "another node";
}

function shareOf(fields, log) {
  const { bits } = log.header;
  return arcLength(position(fields.arc_start, bits), position(fields.arc_end, bits));
}
