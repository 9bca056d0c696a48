// The eight invariants of a ring: their labels, and their verdict on a state.
// chord/verify/invariants.py defines them; a browser test compares both on the states of a recording.

import { successorOf } from "./view.js";
import { clockwise } from "./circle.js";

export const INVARIANTS = [
  ["OneLiveSuccessor", "Every node has a live successor"],
  ["NoDuplicates", "No list contains a node twice"],
  ["OrderedSuccessorList", "Every list is in clockwise order"],
  ["SufficientPrincipals", "Enough nodes are never skipped"],
  ["AtLeastOneRing", "The successors form a ring"],
  ["AtMostOneRing", "There is no second ring"],
  ["OrderedRing", "The ring is in clockwise order"],
  ["ConnectedAppendages", "Every node reaches the ring"],
];

const NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"];
const number = (n) => NUMBERS[n] ?? String(n);

// The violated invariants of a view: [{invariant, text, nodes}].
export function violations(view) {
  const { members, byId, cycles, r } = view;
  const found = [];
  const say = (invariant, text, nodes) => found.push({ invariant, text, nodes });
  const name = (id) => byId.get(id)?.name ?? "a dead node";
  for (const vnode of members) {
    const list = vnode.successors ?? [];
    if (successorOf(vnode, byId) === null) say("OneLiveSuccessor", `${vnode.name} has no live successor`, [vnode.id]);
    const isAlone = list.length === 1 && list[0] === vnode.id;
    if (!isAlone && new Set([vnode.id, ...list]).size <= list.length) {
      const twice = list.find((id, index) => id === vnode.id || list.indexOf(id) !== index);
      say("NoDuplicates", `${vnode.name} lists ${name(twice)} twice`, [vnode.id]);
    }
    for (let i = 1; i < list.length; i += 1) {
      const [a, b] = [list[i - 1], list[i]];
      if (distance(view, vnode, b) < distance(view, vnode, a)) {
        say("OrderedSuccessorList", `${vnode.name} lists ${name(b)} after ${name(a)}`, [vnode.id, a, b]);
        break;
      }
    }
  }
  const skipped = skippedOf(view);
  const needed = members.length ? Math.min(r, members.length - 1) + 1 : 0;
  const principals = members.length - skipped.size;
  if (principals < needed) {
    say("SufficientPrincipals", `Too many nodes are skipped: ${principals} principals, ${needed} needed`, [...skipped]);
  }
  if (members.length && !cycles.length) say("AtLeastOneRing", "No ring exists", members.map((vnode) => vnode.id));
  if (cycles.length > 1) {
    say("AtMostOneRing", `The ring is split into ${number(cycles.length)} rings`, cycles.slice(1).flat().map((vnode) => vnode.id));
  }
  for (const cycle of cycles) {
    const order = [...cycle].sort((a, b) => a.x - b.x);
    order.forEach((vnode, index) => {
      const nearest = order[(index + 1) % order.length];
      const best = successorOf(vnode, byId);
      if (best !== nearest.id) say("OrderedRing", `${vnode.name} skips ${nearest.name}`, [vnode.id, nearest.id, best]);
    });
  }
  const onRing = new Set(cycles.flat().map((vnode) => vnode.id));
  for (const vnode of members) {
    const seen = new Set();
    let at = vnode.id;
    while (at !== null && !onRing.has(at) && !seen.has(at)) {
      seen.add(at);
      at = successorOf(byId.get(at), byId);
    }
    if (at === null || !onRing.has(at)) say("ConnectedAppendages", `${vnode.name} cannot reach the ring`, [vnode.id]);
  }
  return found;
}

function distance(view, from, id) {
  const m = 1n << BigInt(view.bits);
  return (((BigInt(id) - BigInt(from.id)) % m) + m) % m;
}

// The members that the extended list of some member skips.
function skippedOf(view) {
  const { members } = view;
  const rank = new Map(members.map((vnode, index) => [vnode.id, index]));
  const skipped = new Set();
  for (const vnode of members) {
    let x = vnode.id;
    for (const y of vnode.successors ?? []) {
      const at = rank.get(x);
      if (at === undefined || rank.get(y) !== (at + 1) % members.length) {
        const from = rank.has(x) ? members[at].x : Number(BigInt(x)) / 2 ** view.bits;
        const length = clockwise(from, Number(BigInt(y)) / 2 ** view.bits) || 1;
        for (const other of members) {
          const d = clockwise(from, other.x);
          if (other.id !== x && other.id !== y && d > 0 && d < length) skipped.add(other.id);
        }
      }
      x = y;
    }
  }
  return skipped;
}

// The verdict on a whole ring, for the head of the panel.
export function verdict(view, broken, isCut) {
  const failed = new Set(broken.map((one) => one.invariant));
  if (!view.nodes.size) return { kind: "empty", title: "No ring yet", sub: "No node has been seen" };
  if (view.cycles.length > 1) return { kind: "bad", title: "The ring is split", sub: held(failed, isCut) };
  if (failed.size) return { kind: "bad", title: "The ring is broken", sub: held(failed, isCut) };
  if (isCut) return { kind: "unknown", title: "Part of the ring does not respond", sub: held(failed, isCut) };
  if (view.members.length < view.vnodes.filter((vnode) => !vnode.isDown).length) {
    return { kind: "warn", title: "A node joins", sub: held(failed, isCut) };
  }
  if (view.down.length || view.waiting.length || view.underReplicated) {
    return { kind: "warn", title: "The ring is healing", sub: held(failed, isCut) };
  }
  return { kind: "ok", title: "The ring is whole", sub: held(failed, isCut) };
}

function held(failed, isCut) {
  if (failed.size) return `${failed.size} of 8 invariants are violated`;
  return isCut ? "No verdict on some invariants" : "8 of 8 invariants hold";
}
