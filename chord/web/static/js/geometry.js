// Shapes on the ring: points, arcs, chords that bend inwards, and labels that move aside.

import { clockwise } from "./circle.js";

export const R = 250;
export const BAND = 17;
const ORBIT_GAP = 42;
export const radiusOf = (orbit) => R - ORBIT_GAP * Math.min(orbit, 4);

export function at(x, radius) {
  const angle = 2 * Math.PI * x;
  return [radius * Math.sin(angle), -radius * Math.cos(angle)];
}

const f = (n) => n.toFixed(2);

export function arcPath(from, length, radius) {
  if (length >= 0.9999) {
    const [x, y] = at(from, radius);
    const [u, v] = at(from + 0.5, radius);
    return `M${f(x)} ${f(y)}A${radius} ${radius} 0 1 1 ${f(u)} ${f(v)}A${radius} ${radius} 0 1 1 ${f(x)} ${f(y)}`;
  }
  const [x, y] = at(from, radius);
  const [u, v] = at(from + length, radius);
  return `M${f(x)} ${f(y)}A${radius} ${radius} 0 ${length > 0.5 ? 1 : 0} 1 ${f(u)} ${f(v)}`;
}

// A chord between two points of the ring. It bends inwards by 0.52 of its length, at least 46 units, but not past
// the centre. Both ends stop short of the discs.
export function chord(x, fromRadius, y, toRadius, gap = 13) {
  const [ax, ay] = at(x, fromRadius);
  const [bx, by] = at(y, toRadius);
  const length = Math.hypot(bx - ax, by - ay);
  let [mx, my] = [(ax + bx) / 2, (ay + by) / 2];
  const away = Math.hypot(mx, my) || 1;
  const bend = Math.min(Math.max(46, 0.52 * length), away);
  [mx, my] = [mx * (1 - bend / away), my * (1 - bend / away)];
  const start = towards([ax, ay], [mx, my], gap);
  const end = towards([bx, by], [mx, my], gap + 3);
  return { start, end, control: [mx, my], d: `M${f(start[0])} ${f(start[1])}Q${f(mx)} ${f(my)} ${f(end[0])} ${f(end[1])}` };
}

function towards(from, to, by) {
  const length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
  const share = Math.min(0.45, by / length);
  return [from[0] + (to[0] - from[0]) * share, from[1] + (to[1] - from[1]) * share];
}

export function onChord({ start, control, end }, t) {
  const s = 1 - t;
  return [0, 1].map((i) => s * s * start[i] + 2 * s * t * control[i] + t * t * end[i]);
}

// An arrow head at the end of a chord.
export function arrowHead({ control, end }, size = 7) {
  const angle = Math.atan2(end[1] - control[1], end[0] - control[0]);
  const point = (turn, length) => `${f(end[0] + length * Math.cos(angle + turn))} ${f(end[1] + length * Math.sin(angle + turn))}`;
  return `M${point(0, 3)}L${point(2.75, size)}L${point(-2.75, size)}Z`;
}

export function boxesOverlap(a, b, margin = 2, side = margin) {
  return a.x < b.x + b.w + side && b.x < a.x + a.w + side && a.y < b.y + b.h + margin && b.y < a.y + a.h + margin;
}

const TURN = 0.75; // degrees by which two labels move apart in one round
const TURN_MAX = 24;
const ROUNDS = 90;
const NEAR = 3; // a wide label may overlap the third one after it

// Place labels outside the ring, in the clockwise order of their points. Labels that overlap move apart.
// `wanted` has {x, width, radius, height, shorter?}, the most important first. If there is no room, all labels take
// their `shorter` width; then the last labels give way. The result has {box, anchor, at, isShort}, or null.
export function placeLabels(wanted, limits = { w: 378, h: 345 }) {
  const labels = wanted.map((one, rank) => ({ ...one, rank, turn: 0 }));
  const order = [...labels].sort((a, b) => a.x - b.x || a.rank - b.rank);
  let shown = order;
  if (!spread(shown, limits)) {
    for (const one of labels) if (one.shorter) Object.assign(one, { width: one.shorter, isShort: true });
    while (!spread(shown, limits)) {
      const last = shown.filter((one) => one.isTight).reduce((a, b) => (a.rank > b.rank ? a : b));
      shown = shown.filter((one) => one !== last);
      last.place = null;
    }
  }
  return labels.map((one) => one.place);
}

// Move labels apart until none overlap. Return whether each found room near its point.
function spread(shown, limits) {
  for (const one of shown) {
    one.turn = 0;
    one.isTight = false;
    one.place = placeAt(one, limits);
  }
  let isFree = false;
  for (let round = 0; round < ROUNDS && !isFree; round += 1) {
    isFree = true;
    for (const one of shown) one.isTight = false;
    shown.forEach((a, i) => {
      for (let step = 1; step <= Math.min(NEAR, shown.length - 1); step += 1) {
        const b = shown[(i + step) % shown.length];
        if (clockwise(a.x, b.x) > 0.5 || !boxesOverlap(a.place.box, b.place.box, a.height / 5, 10)) continue;
        isFree = false;
        a.isTight = b.isTight = true;
        a.turn -= TURN;
        b.turn += TURN;
        a.place = placeAt(a, limits);
        b.place = placeAt(b, limits);
      }
    });
  }
  for (const one of shown) one.isTight ||= Math.abs(one.turn) > TURN_MAX;
  return !shown.some((one) => one.isTight);
}

// A label that moved far also moves out, so that the line to its point stays outside the ring.
function placeAt({ x, width, radius, height, turn, shorter, isShort = false }, limits) {
  const angle = x + turn / 360;
  const [px, py] = at(angle, radius + Math.max(0, Math.abs(turn) - 6) * 2);
  const side = Math.sin(2 * Math.PI * angle);
  const anchor = Math.abs(side) < 0.16 ? "middle" : side > 0 ? "start" : "end";
  const boxOf = (w) => ({ x: anchor === "start" ? px : anchor === "end" ? px - w : px - w / 2, y: py - height / 2, w, h: height });
  let box = boxOf(width);
  if (shorter && Math.max(-box.x, box.x + box.w) > limits.w) {
    box = boxOf(shorter);
    isShort = true;
  }
  const inside = (from, size, limit) => Math.max(-limit, Math.min(limit - size, from));
  const [dx, dy] = [inside(box.x, box.w, limits.w) - box.x, inside(box.y, box.h, limits.h) - box.y];
  return { box: { ...box, x: box.x + dx, y: box.y + dy }, anchor, at: [px + dx, py + dy], isShort };
}
