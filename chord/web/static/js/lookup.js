// Lookups over the pointers of a recorded state, by the classic route of the Chord paper, and the picture of a lookup.

import { clockwise, position } from "./circle.js";
import { successorOf } from "./view.js";

const HOPS_MAX = 64;

// Return a lookup in the shape of lookup.json. It uses the fingers and successors of each vnode of the state.
export function lookupInState(view, fromId, pointId) {
  const m = 1n << BigInt(view.bits);
  const key = BigInt(pointId);
  const ahead = (from, to) => (((BigInt(to) - BigInt(from)) % m) + m) % m;
  const share = (distance) => Number((distance << 53n) / m) / 2 ** 53;
  const shape = (vnode) => ({ id: vnode.id, node: vnode.name, address: vnode.node });
  const hops = [];
  let at = view.byId.get(fromId);
  let via = { kind: "start", index: 0 };
  let owner = null;
  for (let hop = 0; at && hop < HOPS_MAX; hop += 1) {
    const rest = ahead(at.id, key);
    hops.push({ ...shape(at), hop, via, remaining: share(rest), rtt_ms: null, outcome: "ok" });
    const successor = view.byId.get(successorOf(at, view.byId));
    const isOwn = hop === 0 && at.predecessor && ahead(at.predecessor, key) > 0n && ahead(at.predecessor, key) < ahead(at.predecessor, at.id);
    if (rest === 0n || isOwn) owner = at;
    else if (!successor || rest <= (ahead(at.id, successor.id) || m)) owner = successor ?? at;
    if (owner) break;
    let best = null;
    const consider = (id, kind, index) => {
      const distance = ahead(at.id, id);
      if (view.byId.get(id)?.isMember && distance > 0n && distance < rest && (!best || distance > best.distance)) {
        best = { id, distance, via: { kind, index } };
      }
    };
    for (const [, last, id] of at.fingers ?? []) consider(id, "finger", last);
    (at.successors ?? []).forEach((id, index) => consider(id, "successor", index));
    if (!best) break;
    via = best.via;
    at = view.byId.get(best.id);
  }
  return {
    key: null, id: String(pointId), from: shape(view.byId.get(fromId)), mode: "iterative", route: "classic",
    owner: owner ? shape(owner) : null, replicas: owner ? replicasOf(view, owner).map(shape) : [], hops,
    path_length: hops.length - 1, timeouts: 0, duration_ms: null, isComputed: true,
  };
}

// The owner and the next vnodes of other nodes: N of them in all.
function replicasOf(view, owner) {
  const order = view.members;
  const first = order.indexOf(owner);
  const found = [];
  for (let i = 0; i < order.length && found.length < view.N; i += 1) {
    const vnode = order[(first + i) % order.length];
    if (!found.some((other) => other.node === vnode.node)) found.push(vnode);
  }
  return found;
}

// The hops that answered, and the owner as the last step.
export function stepsOf(lookup) {
  const hops = lookup.hops.filter((hop) => hop.outcome === "ok");
  const last = hops[hops.length - 1];
  const steps = hops.map((hop) => ({ ...hop, kind: "hop" }));
  if (lookup.owner && last?.id !== lookup.owner.id) steps.push({ ...lookup.owner, kind: "owner" });
  return steps;
}

export function viaText(step, previous, view) {
  if (step.kind === "owner") return `successor of ${previous.node}: first at or after the key`;
  const { kind, index } = step.via;
  if (kind === "start") return "queried by the client";
  if (kind === "finger") return `finger ${index} of ${previous.node}, +${powerText(view.bits, index)} of the circle`;
  if (kind === "successor") return `entry ${index} of the successor list of ${previous.node}`;
  if (kind === "cache") return `from the owner cache of ${previous.node}`;
  return `predecessor of ${previous.node}`;
}

export function powerText(bits, index) {
  const down = bits - index;
  return down <= 16 ? `1/${(2 ** down).toLocaleString("en").replaceAll(",", "\u202f")}` : `2^−${down}`;
}

// What the ring draws of a lookup up to a step: roles of vnodes, texts beside their labels, pointers, and the key.
export function drawLookup(lookup, step, view) {
  const steps = stepsOf(lookup);
  const x = position(lookup.id, view.bits);
  const place = (one) => view.byId.get(one.id)?.x ?? position(one.id, view.bits);
  const roles = new Map();
  const subs = new Map();
  const pointers = [];
  steps.slice(0, step + 1).forEach((one, i) => {
    const isOwner = one.kind === "owner" || (one.id === lookup.owner?.id && i === steps.length - 1);
    roles.set(one.id, isOwner ? "owner" : i === 0 ? "start" : "path");
    const rest = clockwise(place(one), x);
    subs.set(one.id, isOwner ? "owns it" : `${(100 * rest).toFixed(rest < 0.0995 ? 1 : 0)} % to go`);
    if (!isOwner && rest > 0) pointers.push({ type: "rest", from: place(one), to: x });
    if (i === 0) return;
    const before = steps[i - 1];
    const label = one.kind === "owner" ? "successor" : one.via.kind === "finger" ? `finger ${one.via.index}` : one.via.kind;
    pointers.push({
      type: "chord", from: place(before), to: place(one), fromId: before.id, toId: one.id, label, num: i,
      cls: isOwner && one.kind === "owner" ? "own" : "",
    });
  });
  if (step >= steps.length - 1) {
    for (const replica of lookup.replicas) if (!roles.has(replica.id)) roles.set(replica.id, "copy");
  }
  return { roles, subs, pointers, key: { x, label: lookup.key ?? keyLabel(lookup.id, view.bits) } };
}

function keyLabel(id, bits) {
  return bits <= 20 ? String(id) : `0x${BigInt(id).toString(16).padStart(Math.ceil(bits / 4), "0").slice(0, 6)}…`;
}
