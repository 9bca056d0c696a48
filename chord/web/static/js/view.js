// The state of a ring as the page draws it, derived from the objects that the nodes reported.

import { arcLength, clockwise, position } from "./circle.js";
import { isDown } from "./log.js";

const ENTERING = new Set(["starting", "joining", "resuming"]);
export const HUES = 12;

export function derive(state, log) {
  const { bits, r, N, W } = log.header;
  const nodes = new Map();
  for (const [address, fields] of Object.entries(state.nodes)) {
    nodes.set(address, {
      ...fields, address, hue: (log.colors.get(address) ?? 0) % HUES, points: [], suspectedBy: [], mark: "ready",
    });
  }
  for (const node of nodes.values()) {
    if (isDown(node.state)) continue;
    for (const [address, verdict] of Object.entries(node.suspects ?? {})) {
      nodes.get(address)?.suspectedBy.push({ by: node.name, state: verdict.state, reason: verdict.reason });
    }
  }
  const vnodes = Object.entries(state.vnodes).map(([id, fields]) => ({
    ...fields, id, x: position(id, bits), owner: nodes.get(fields.node) ?? null,
  }));
  vnodes.sort((a, b) => a.x - b.x || (BigInt(a.id) < BigInt(b.id) ? -1 : 1));
  const byId = new Map(vnodes.map((vnode) => [vnode.id, vnode]));
  for (const vnode of vnodes) {
    vnode.isDown = !vnode.owner || isDown(vnode.owner.state);
    vnode.isMember = !vnode.isDown && (vnode.state === "member" || vnode.state === "leaving");
  }
  const members = vnodes.filter((vnode) => vnode.isMember);
  const cycles = cyclesOf(members);
  forgetOtherRings(nodes, cycles);
  for (const node of nodes.values()) node.mark = markOf(node);
  for (const vnode of vnodes) {
    vnode.hue = vnode.owner?.hue ?? 0;
    vnode.name = vnode.owner?.name ?? vnode.node;
    vnode.mark = vnode.owner && vnode.owner.mark === "ready" && ENTERING.has(vnode.state) ? "joining" : vnode.owner?.mark ?? "dead";
    vnode.owned = (vnode.arcs ?? []).filter((arc) => arc.state === "owned").map((arc) => span(arc, bits));
    vnode.share = vnode.owned.reduce((sum, arc) => sum + arc.length, 0);
    vnode.owner?.points.push(vnode);
  }
  const view = { bits, r, N, W, nodes, vnodes, byId, members, cycles, living: [...nodes.values()].filter((n) => !isDown(n.state)) };
  view.down = [...nodes.values()].filter((node) => isDown(node.state));
  view.covers = coversOf(view);
  view.incomplete = incompleteOf(view, bits);
  view.keys = members.reduce((sum, vnode) => sum + (vnode.keys ?? 0), 0);
  view.underReplicated = sumOf(view.living, "under_replicated");
  view.siblings = sumOf(view.living, "sibling_keys");
  view.transfers = view.living.flatMap((node) => (node.transfers ?? []).map((one) => ({ ...one, node })));
  view.missing = view.down.filter((node) => node.mark === "unreachable"); // they may live, and so the lists may be correct
  view.waiting = view.missing.length ? [] : waitingOf(view);
  return view;
}

// In a split ring, the verdicts of one ring on the nodes of another say only that the ring is split.
function forgetOtherRings(nodes, cycles) {
  if (cycles.length < 2) return;
  const ringOf = new Map();
  cycles.forEach((cycle, i) => cycle.forEach((vnode) => ringOf.set(vnode.owner.name, i)));
  for (const node of nodes.values()) {
    if (!ringOf.has(node.name)) continue; // a dead node is in none
    node.suspectedBy = node.suspectedBy.filter((one) => ringOf.get(one.by) === ringOf.get(node.name));
  }
}

export const EMPTY = { nodes: {}, vnodes: {} };

function sumOf(nodes, field) {
  return nodes.reduce((sum, node) => sum + (node[field] ?? 0), 0);
}

function span(arc, bits) {
  const start = position(arc.start, bits);
  const end = position(arc.end, bits);
  return { ...arc, from: start, to: end, length: arcLength(start, end) };
}

function markOf(node) {
  const verdicts = node.suspectedBy.map((one) => one.state);
  if (verdicts.includes("paused")) return "paused"; // its neighbours know, and others only see that it does not respond
  if (node.state === "unreachable" && !verdicts.includes("dead")) return "unreachable";
  if (isDown(node.state)) return "dead";
  if (verdicts.includes("suspect") || verdicts.includes("dead")) return "suspect";
  return ENTERING.has(node.state) ? "joining" : "ready";
}

// The first entry of a successor list that belongs to a member.
export function successorOf(vnode, byId) {
  return (vnode.successors ?? []).find((id) => byId.get(id)?.isMember) ?? null;
}

// The cycles of first live successors, the largest first.
function cyclesOf(members) {
  const byId = new Map(members.map((vnode) => [vnode.id, vnode]));
  const visited = new Map();
  const found = [];
  for (const start of members) {
    const path = [];
    let at = start.id;
    while (at !== null && !visited.has(at)) {
      visited.set(at, start.id);
      path.push(at);
      at = successorOf(byId.get(at), byId);
    }
    if (at !== null && visited.get(at) === start.id) found.push(path.slice(path.indexOf(at)).map((id) => byId.get(id)));
  }
  return found.sort((a, b) => b.length - a.length || a[0].x - b[0].x);
}

// The arcs of dead vnodes that a living vnode owns now.
function coversOf(view) {
  const found = [];
  view.vnodes.forEach((dead, index) => {
    if (!dead.isDown) return;
    const before = view.vnodes[(index - 1 + view.vnodes.length) % view.vnodes.length];
    for (const vnode of view.members) {
      for (const arc of vnode.owned) {
        const at = clockwise(arc.from, dead.x);
        if (at > 0 && at < arc.length) {
          const from = clockwise(arc.from, before.x) < at ? before.x : arc.from;
          found.push({ by: vnode, dead, from, to: dead.x });
        }
      }
    }
  });
  return found;
}

function incompleteOf(view, bits) {
  return view.living.flatMap((node) =>
    (node.incomplete ?? []).map((part) => ({ ...span(part, bits), node })));
}

// The wrong predecessors and successor lists: what each node still waits for.
function waitingOf(view) {
  const order = view.members;
  const found = [];
  const name = (id) => view.byId.get(id)?.name ?? "a dead node";
  order.forEach((vnode, index) => {
    const exact = exactSuccessors(order, index, view.r);
    const lacks = exact.filter((id) => !(vnode.successors ?? []).includes(id));
    const extra = (vnode.successors ?? []).filter((id) => !exact.includes(id));
    const previous = order[(index - 1 + order.length) % order.length];
    if (lacks.length) found.push({ vnode, text: `${vnode.name} misses ${names(lacks.map(name))}` });
    else if (extra.length) found.push({ vnode, text: `${vnode.name} still lists ${names(extra.map(name))}` });
    else if (vnode.predecessor !== previous.id) {
      const has = vnode.predecessor === null || vnode.predecessor === undefined ? "no predecessor" : `predecessor ${name(vnode.predecessor)}`;
      found.push({ vnode, text: `${vnode.name} has ${has}, not ${previous.name}` });
    }
  });
  return found;
}

export function exactSuccessors(order, index, r) {
  const entries = [];
  const addresses = new Set();
  for (let step = 1; step < order.length; step += 1) {
    const entry = order[(index + step) % order.length];
    entries.push(entry.id);
    if (entry.node !== order[index].node) addresses.add(entry.node);
    if (addresses.size >= r || entries.length >= 4 * r) break;
  }
  return entries.length ? entries : [order[index].id];
}

export function names(list, most = 3) {
  return list.length <= most ? list.join(", ") : `${list.slice(0, most).join(", ")} and ${list.length - most} more`;
}

// The vnode that owns a position, as the nodes report it; null if no node or more than one claims it.
export function ownerAt(view, x) {
  const owners = view.members.filter((vnode) => vnode.owned.some((arc) => {
    const at = clockwise(arc.from, x);
    return (at > 0 || arc.length === 1) && at <= arc.length;
  }));
  return owners.length === 1 ? owners[0] : null;
}
