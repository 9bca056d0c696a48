// Shapes on the ring: points, arcs, chords that bend inwards, and labels that move aside.

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

export function boxesOverlap(a, b, margin = 2) {
  return a.x < b.x + b.w + margin && b.x < a.x + a.w + margin && a.y < b.y + b.h + margin && b.y < a.y + a.h + margin;
}

function crossesBox([[ax, ay], [bx, by]], box) {
  for (let i = 0; i <= 8; i += 1) {
    const [x, y] = [ax + ((bx - ax) * i) / 8, ay + ((by - ay) * i) / 8];
    if (x > box.x && x < box.x + box.w && y > box.y && y < box.y + box.h) return true;
  }
  return false;
}

// Place labels outside the ring. Each label takes the first place near its point at which no boxes overlap.
// `wanted` has {x, width, radius, height}; the result has {box, anchor, at} or null if no place is free. If a label
// has a `shorter` width, that is tried, too.
export function placeLabels(wanted, taken = [], limits = { w: 378, h: 345 }) {
  const placed = [...taken];
  const leaders = [];
  return wanted.map(({ x, width: full, shorter, radius, height, from }) => {
    const places = tries();
    for (let i = 0; i < places.length * (shorter ? 2 : 1); i += 1) {
      const [out, turn] = places[i % places.length];
      const width = i < places.length ? full : shorter;
      const angle = x + turn / 360;
      const [px, py] = at(angle, radius + out);
      const side = Math.sin(2 * Math.PI * angle);
      const anchor = Math.abs(side) < 0.16 ? "middle" : side > 0 ? "start" : "end";
      const left = anchor === "start" ? px : anchor === "end" ? px - width : px - width / 2;
      const box = { x: left, y: py - height / 2, w: width, h: height };
      const isInside = box.x >= -limits.w && box.x + box.w <= limits.w && box.y >= -limits.h && box.y + box.h <= limits.h;
      const edge = anchor === "start" ? [left, py] : anchor === "end" ? [left + width, py] : [px, py > 0 ? box.y : box.y + height];
      const leader = from && [from, edge];
      const isCrossed = leaders.some((other) => crossesBox(other, box)) || (leader && placed.some((other) => crossesBox(leader, other)));
      if (isInside && !isCrossed && !placed.some((other) => boxesOverlap(box, other))) {
        placed.push(box);
        if (leader) leaders.push(leader);
        return { box, anchor, at: [px, py], isShort: width !== full };
      }
    }
    return null;
  });
}

let TRIES = null;
function tries() {
  if (!TRIES) {
    TRIES = [];
    for (const out of [0, 16, 32, 48]) {
      for (let turn = 0; turn <= 18; turn += 1.5) {
        TRIES.push([out, turn]);
        if (turn) TRIES.push([out, -turn]);
      }
    }
    TRIES.sort((a, b) => a[0] * 0.35 + Math.abs(a[1]) - (b[0] * 0.35 + Math.abs(b[1])));
  }
  return TRIES;
}
