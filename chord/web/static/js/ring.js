// The ring as SVG, in three layers: the static picture, the pointers above it, and the motion above both.

import { clockwise, hex, percent } from "./circle.js";
import { arcPath, arrowHead, at, BAND, boxesOverlap, chord, onChord, placeLabels, R, radiusOf } from "./geometry.js";

const NS = "http://www.w3.org/2000/svg";
export const HOP_MS = 900;
const STEP = 1.6 / 360; // the length of one step of an arc's tint

export function el(name, attributes = {}, parent = null, text = null) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) node.setAttribute(key, value);
  if (text !== null) node.textContent = text;
  parent?.append(node);
  return node;
}

const matches = (query) => matchMedia(query).matches;
export const calm = () => matches("(prefers-reduced-motion: reduce)");
export const isNarrow = () => matches("screen and (max-width: 760px)");

export class RingView {
  // `on` has the callbacks node(id), point(x) and focus(id).
  constructor(box, on) {
    this.on = on;
    const viewBox = "-378 -345 756 690";
    const make = (name, isOver) => {
      const svg = el("svg", { class: `ring${isOver ? " over" : ""}`, viewBox, ...(isOver ? { "aria-hidden": "true" } : { role: "group" }) });
      const layer = el("g", { class: name }, svg);
      box.append(svg);
      return [svg, layer];
    };
    [this.svg, this.static] = make("static", false);
    [this.pointerSvg, this.pointers] = make("pointers", true);
    [this.motionSvg, this.motion] = make("motion", true);
    this.svg.addEventListener("click", (event) => this.onClick(event));
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    this.frame = 0;
  }

  onClick(event) {
    const id = event.target.closest?.("[data-id]")?.getAttribute("data-id");
    if (id) {
      this.on.node(id);
      return;
    }
    if (!event.target.classList?.contains("hit")) return;
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    this.on.point((Math.atan2(point.x, -point.y) / (2 * Math.PI) + 1) % 1);
  }

  onKey(event) {
    const id = event.target.getAttribute?.("data-id");
    if (!id) return;
    if (event.key === "Enter") this.on.node(id);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const all = [...this.static.querySelectorAll(".node")];
      const next = all[(all.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : all.length - 1)) % all.length];
      for (const one of all) one.setAttribute("tabindex", one === next ? "0" : "-1");
      next.focus();
    } else return;
    event.preventDefault();
  }

  // -- the static layer -------------------------------------------------------------------------

  draw(scene) {
    const { view } = scene;
    const focused = this.static.contains(document.activeElement) ? document.activeElement.getAttribute("data-id") : null;
    this.static.replaceChildren();
    this.isNarrow = isNarrow();
    const width = this.isNarrow ? 700 : 756;
    const rect = this.svg.getBoundingClientRect();
    const scale = Math.min(rect.width / width, rect.height / 690) || 1;
    this.k = Math.max(1, Math.min(1.9, 1 / scale)); // text keeps its size in a small picture
    for (const svg of [this.svg, this.pointerSvg, this.motionSvg]) {
      svg.setAttribute("viewBox", `${-width / 2} -345 ${width} 690`);
      svg.style.setProperty("--k", this.k);
      svg.classList.toggle("lost", Boolean(scene.isLost));
    }
    this.svg.setAttribute("aria-label", view.vnodes.length ? `Ring of ${view.living.length} nodes` : "An empty ring");
    this.orbits = orbitsOf(view);
    this.patterns();
    el("circle", { class: "base", r: R, "stroke-width": BAND }, this.static);
    for (let orbit = 1; orbit < view.cycles.length && orbit < 5; orbit += 1) {
      el("circle", { class: "base", r: radiusOf(orbit), "stroke-width": BAND }, this.static);
    }
    this.ticks(view, scene.pointers.filter((one) => one.type === "start" && one.label).map((one) => one.x), Boolean(scene.inner));
    const isSplit = view.cycles.length > 1;
    for (const vnode of view.vnodes) if (!vnode.isDown || scene.isLost) this.arcs(vnode, scene, isSplit);
    this.hatch(scene);
    this.bars(scene);
    this.hotLabels(scene);
    if (isSplit) this.loops(view);
    el("circle", { class: "hit", r: R, "stroke-width": 30 }, this.static);
    this.covers(view, isSplit);
    this.middle(scene);
    const size = view.vnodes.length <= 40 ? 8 : view.vnodes.length <= 100 ? 5.5 : 3.5;
    const order = [...view.vnodes].sort((a, b) => Number(a.mark !== "ready") - Number(b.mark !== "ready")); // the others on top
    order.forEach((vnode, index) => this.node(vnode, scene, size, index));
    this.labels(scene);
    if (focused) this.static.querySelector(`.node[data-id="${focused}"]`)?.focus();
  }

  patterns() {
    const defs = el("defs", {}, this.static);
    for (const [id, cls] of [["hatch", "hatch-line"], ["hatch-ink", "hatch-ink"]]) {
      const pattern = el("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, defs);
      el("line", { class: cls, x1: 0, y1: 0, x2: 0, y2: 6 }, pattern);
    }
  }

  // Marks at each 16th of the circle, and labels at the quarters, except beside points that have labels of their own.
  ticks(view, labelled, hasBars) {
    for (let i = 0; i < 16; i += 1) {
      const inner = i % 4 ? R - 22 : R - 26;
      const [x1, y1] = at(i / 16, R - 16);
      const [x2, y2] = at(i / 16, inner);
      if (i % 2 === 0) el("line", { class: "tick", x1, y1, x2, y2 }, this.static);
      const isNear = labelled.some((x) => Math.min(clockwise(x, i / 16), clockwise(i / 16, x)) < 0.04);
      if (i % 4 || view.cycles.length > 1 || isNear || hasBars) continue;
      const point = (BigInt(i / 4) << BigInt(view.bits)) / 4n;
      const text = i === 0 ? "0" : view.bits <= 20 ? String(point) : `${hex(point, view.bits).slice(0, 2)}…`;
      const [x, y] = at(i / 16, R - 24 - 14 * this.k);
      el("text", { class: "tick-label", x, y: y + 4, "text-anchor": "middle" }, this.static, text);
    }
  }

  arcs(vnode, scene, isSplit) {
    const orbit = this.orbits.get(vnode.id) ?? 0;
    const radius = radiusOf(orbit);
    const hue = isSplit ? (orbit ? 5 : 4) : vnode.hue;
    const [tint, strength] = tintOf(vnode, scene, hue);
    const group = el("g", { class: `${tint}${isDim(vnode, scene) ? " dim" : ""}`, "data-arc": vnode.id }, this.static);
    for (const arc of vnode.owned) comet(group, arc.from, arc.length, radius, strength, scene.view.vnodes.length > 40);
  }

  hatch(scene) {
    if (scene.view.cycles.length > 1) return; // each ring lacks the copies of the other
    for (const part of scene.view.incomplete) {
      if (!part.unreachable.length) continue;
      el("path", {
        class: "hatching", d: arcPath(part.from, part.length, R), stroke: "url(#hatch)", "stroke-width": BAND,
      }, this.static);
    }
  }

  bars({ outer, inner }) {
    for (const [values, cls, from, most, sign] of [[outer, "bar-out", R + 14, 38, 1], [inner, "bar-in", R - 40, 44, -1]]) {
      if (!values) continue;
      const top = Math.max(1, ...values);
      values.forEach((value, i) => {
        if (!value) return;
        const x = (i + 0.5) / values.length;
        const [x1, y1] = at(x, from);
        const [x2, y2] = at(x, from + sign * most * Math.sqrt(value / top));
        el("line", { class: cls, x1, y1, x2, y2, "stroke-width": Math.min(4.4, 1100 / values.length) }, this.static);
      });
    }
  }

  // The names of frequent keys, inside the bars of the requests.
  hotLabels({ hot }) {
    const taken = [];
    for (const { x, text } of hot ?? []) {
      const [px, py] = at(x, R - 98);
      const w = text.length * 6.6 * this.k;
      const anchor = Math.abs(px) < 40 ? "middle" : px > 0 ? "end" : "start";
      const box = { x: anchor === "end" ? px - w : anchor === "start" ? px : px - w / 2, y: py - 8 * this.k, w, h: 16 * this.k };
      if (taken.some((other) => boxesOverlap(box, other))) continue;
      taken.push(box);
      const [x1, y1] = at(x, R - 40);
      const [x2, y2] = at(x, R - 92);
      el("line", { class: "bar-in", x1, y1, x2, y2, "stroke-width": 1 }, this.static);
      el("text", { class: "hot", x: px, y: py + 4 * this.k, "text-anchor": anchor }, this.static, text);
    }
  }

  // In a split ring, each successor cycle is a line of its own; all but the largest are red.
  loops(view) {
    view.cycles.forEach((cycle, orbit) => {
      const radius = radiusOf(orbit);
      const order = [...cycle].sort((a, b) => a.x - b.x);
      order.forEach((vnode, index) => {
        const next = order[(index + 1) % order.length];
        const length = clockwise(vnode.x, next.x) || 1;
        const gap = 15 / (2 * Math.PI * radius);
        if (length < 3 * gap) return;
        el("path", { class: `loop${orbit ? " bad" : ""}`, d: arcPath(vnode.x + gap, length - 2 * gap, radius) }, this.static);
        const end = at(vnode.x + length - gap, radius);
        const control = at(vnode.x + length - 2 * gap, radius);
        el("path", { class: `head ${orbit ? "bad" : "mute"}`, d: arrowHead({ control, end }, 6) }, this.static);
      });
    });
  }

  covers(view, isSplit) {
    if (isSplit) return;
    for (const cover of view.covers) {
      const length = clockwise(cover.from, cover.to) || 1;
      el("path", { class: "cover", d: arcPath(cover.from, length, R - 16) }, this.static);
      if (view.covers.length > 3) continue;
      const middle = cover.from + length / 2;
      const [x, y] = at(middle, R - 24 - 26 * Math.abs(Math.cos(2 * Math.PI * middle)));
      const anchor = Math.abs(x) < 60 ? "middle" : x > 0 ? "end" : "start";
      el("text", { class: "cover-label", x, y: y + (Math.abs(x) < 60 ? (y > 0 ? -8 : 16) : 4), "text-anchor": anchor }, this.static,
        `${cover.by.name} covers for ${cover.dead.name}`);
    }
  }

  middle(scene) {
    if (!scene.middle) return;
    const { big, lines } = scene.middle;
    el("text", { class: "middle", y: 4 }, this.static, big);
    const rows = this.k > 1.3 ? lines.flatMap(halved) : lines;
    rows.forEach((line, i) => el("text", { class: "middle-sub", y: 10 + this.k * (18 + 19 * i) }, this.static, line));
  }

  node(vnode, scene, size, index) {
    const radius = radiusOf(this.orbits.get(vnode.id) ?? 0);
    const [x, y] = at(vnode.x, radius);
    const role = scene.roles?.get(vnode.id);
    const isOn = scene.selected === vnode.id || role === "now";
    const isOwner = role === "owner";
    const classes = ["node", isOn && "on", isOwner && "owner", isDim(vnode, scene) && "dim"].filter(Boolean).join(" ");
    const group = el("g", {
      class: classes, "data-id": vnode.id, transform: `translate(${x.toFixed(2)} ${y.toFixed(2)})`, role: "button",
      tabindex: (scene.selected ? scene.selected === vnode.id : index === 0) ? "0" : "-1",
      "aria-label": `${vnode.name}: ${STATES[vnode.mark]}, ${vnode.share ? `owns ${percent(vnode.share)}` : "owns no arc"}`,
    }, this.static);
    el("title", {}, group, `${vnode.name} · ${STATES[vnode.mark]}`);
    el("circle", { class: "halo", r: size + 4.5 }, group);
    const isSplit = scene.view.cycles.length > 1;
    const hue = role === "path" || role === "now" || role === "start" ? "path" : isOwner || role === "copy" ? "own"
      : isSplit ? `h${this.orbits.get(vnode.id) ? 5 : 4}` : `h${vnode.hue}`;
    mark(group, vnode.mark, role ? size + 1 : size, hue);
  }

  labels(scene) {
    const { view } = scene;
    const isFocused = (vnode) => scene.roles?.has(vnode.id) || scene.selected === vnode.id;
    const sorted = [...view.vnodes].sort((a, b) => Number(isFocused(b)) - Number(isFocused(a)) || Number(b.mark !== "ready") - Number(a.mark !== "ready"));
    const isMany = view.vnodes.length > 48;
    let shown = sorted;
    if (this.isNarrow && (scene.roles?.size || scene.selected)) shown = sorted.filter((v) => isFocused(v) || v.mark === "dead");
    const scale = this.k;
    const outside = scene.outer ? 62 : scene.hasRest ? 42 : 26;
    const wanted = shown.map((vnode) => {
      const sub = scene.subs?.get(vnode.id) ?? (scene.showShares && !isMany && !this.isNarrow ? percent(vnode.share) : "");
      return { vnode, sub, x: vnode.x, radius: R + outside, height: 17 * scale, shorter: sub ? vnode.name.length * 7.8 * scale : 0,
        width: (vnode.name.length * 7.8 + (sub ? sub.length * 6.2 + 5 : 0)) * scale };
    });
    if (scene.key) wanted.unshift({ x: scene.key.x, width: scene.key.label.length * 8 * scale, radius: R + outside + 4, height: 17 * scale });
    const labels = isMany ? apart(wanted) : wanted;
    const places = placeLabels(labels, { w: this.isNarrow ? 346 : 374, h: 340 });
    this.keySpot = scene.key ? places[0] : null;
    places.forEach((place, i) => {
      const { vnode, sub } = labels[i];
      if (!place || !vnode) return;
      const radius = radiusOf(this.orbits.get(vnode.id) ?? 0);
      const [x1, y1] = at(vnode.x, radius + 12);
      const [edge, edgeY] = nearest(place.box, x1, y1);
      if (Math.hypot(edge - x1, edgeY - y1) > 8) el("path", { class: "leader", d: `M${x1} ${y1}L${edge} ${edgeY}` }, this.static);
      const quiet = (scene.roles?.size || scene.selected) && !isFocused(vnode);
      const tone = vnode.mark === "dead" ? " bad" : vnode.mark === "suspect" ? " warn" : "";
      const text = el("text", {
        class: `label${quiet && !tone ? " quiet" : ""}${tone}`, x: place.at[0], y: place.at[1] + 4.5 * scale, "text-anchor": place.anchor, "data-id": vnode.id,
      }, this.static, vnode.name);
      if (sub && !place.isShort) el("tspan", { class: "sub", dx: 5 }, text, sub);
    });
  }

  // -- the pointers -----------------------------------------------------------------------------

  // `pointers` is a list of {type: chord | rest | start | list}; `key` is {x, label}.
  point(pointers, key) {
    this.pointers.replaceChildren();
    const tags = [];
    this.paths = [];
    const radius = (id) => radiusOf(this.orbits?.get(id) ?? 0);
    let rests = 0;
    for (const one of pointers) {
      if (one.type === "rest") this.rest(one, rests++);
      else if (one.type === "list") this.list(one);
      else if (one.type === "start") this.start(one);
      else if (one.type === "chord") {
        const line = chord(one.from, radius(one.fromId), one.to, radius(one.toId));
        const path = el("path", { class: `chord ${one.cls ?? ""}`, d: line.d, pathLength: one.cls?.includes("not") ? null : 1 }, this.pointers);
        let head = null;
        if (!one.cls?.includes("not")) {
          head = el("path", { class: `head ${one.cls?.includes("own") ? "own" : one.cls?.includes("bad") ? "bad" : ""}`, d: arrowHead(line) }, this.pointers);
        }
        this.paths.push({ path, head, line });
        if (one.label) tags.push({ line, one });
      }
    }
    const boxes = [];
    for (const { line, one } of tags) this.tag(line, one, boxes);
    if (key) this.key(key);
  }

  tag(line, one, boxes) {
    const scale = this.k;
    const text = `${one.num !== undefined ? `${one.num} ` : ""}${one.label}`;
    const w = (text.length * 6.3 + 18) * scale;
    const h = 19 * scale;
    const places = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74].map((t) => onChord(line, t)).map(([x, y]) => ({ x: x - w / 2, y: y - h / 2, w, h }));
    const box = places.find((place) => !boxes.some((other) => boxesOverlap(place, other, 3))) ?? (one.num === undefined ? null : places[0]);
    if (!box) return; // the side panel has the numbers of fingers, too
    boxes.push(box);
    const group = el("g", { class: "tag" }, this.pointers);
    el("rect", { x: box.x, y: box.y, width: w, height: h, rx: h / 2 }, group);
    const label = el("text", { x: box.x + w / 2, y: box.y + h / 2 + 4 * scale }, group);
    if (one.num !== undefined) el("tspan", { class: "num" }, label, `${one.num} `);
    el("tspan", {}, label, one.label);
  }

  // The remaining distance after a hop, outside the ring.
  rest({ from, to }, index) {
    const radius = R + 15 + 6 * index;
    const length = clockwise(from, to);
    el("path", { class: "rest", d: arcPath(from, length, radius), opacity: Math.min(1, 0.32 + 0.22 * index) }, this.pointers);
    const [x1, y1] = at(from, radius - 4);
    const [x2, y2] = at(from, radius + 4);
    el("line", { class: "rest-end", x1, y1, x2, y2 }, this.pointers);
  }

  list({ from, points }) {
    const last = points[points.length - 1];
    el("path", { class: "list", d: arcPath(from, clockwise(from, last) || 1, R + 17) }, this.pointers);
    for (const x of points) {
      const [cx, cy] = at(x, R + 17);
      el("circle", { class: "list-end", cx, cy, r: 3 }, this.pointers);
    }
  }

  start({ x, label, cls }) {
    const [px, py] = at(x, R - 21);
    el("path", { class: `start ${cls ?? ""}`, d: "M5.5 0L-4 5L-4 -5Z", transform: `translate(${px} ${py}) rotate(${360 * x - 90})` }, this.pointers);
    if (!label) return;
    const [lx, ly] = at(x, R - 42);
    el("text", { class: `start-label ${cls ?? ""}`, x: lx, y: ly + 4 }, this.pointers, label);
  }

  key({ x, label }) {
    const [px, py] = at(x, R);
    const place = this.keySpot;
    if (place) {
      const [x2, y2] = nearest(place.box, px, py);
      el("line", { class: "key-line", x1: px, y1: py, x2, y2 }, this.pointers);
      el("text", { class: "key-label", x: place.at[0], y: place.at[1] + 4.5, "text-anchor": place.anchor }, this.pointers, label);
    }
    el("path", { class: "diamond", d: "M0 -8L8 0L0 8L-8 0Z", transform: `translate(${px} ${py})` }, this.pointers);
  }

  // -- motion -----------------------------------------------------------------------------------

  // Move a dot along the last chord, and call `done` when it arrives. A redrawn picture goes on with the same `move`.
  run(move, done) {
    this.stop();
    const one = this.paths[this.paths.length - 1];
    if (this.move?.name !== move) this.move = { name: move, began: performance.now() };
    const { began } = this.move;
    if (!one || calm() || performance.now() - began > 2 * HOP_MS) {
      setTimeout(done);
      return;
    }
    // The growing line is a copy in the layer of motion, so that a frame repaints nothing of the layers below.
    const line = one.path.cloneNode();
    this.motion.append(line);
    const dot = el("g", {}, this.motion);
    el("circle", { class: "runner-halo", r: 10 }, dot);
    el("circle", { class: "runner", r: 5 }, dot);
    for (const hidden of [one.path, one.head]) hidden?.setAttribute("opacity", "0");
    const step = (now) => {
      const share = Math.max(0, Math.min(1, (now - began) / HOP_MS));
      const eased = share * share * (3 - 2 * share);
      const [x, y] = onChord(one.line, eased);
      dot.setAttribute("transform", `translate(${x.toFixed(1)} ${y.toFixed(1)})`);
      line.setAttribute("stroke-dasharray", `${eased.toFixed(4)} 2`);
      if (share < 1) this.frame = requestAnimationFrame(step);
      else {
        this.stop();
        done();
      }
    };
    step(performance.now());
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.motion.replaceChildren();
    for (const { path, head } of this.paths ?? []) for (const shown of [path, head]) shown?.removeAttribute("opacity");
  }
}

// The point of a label's box that is nearest to a point of the ring.
function nearest({ x, y, w, h }, px, py) {
  return [Math.max(x - 3, Math.min(x + w + 3, px)), Math.max(y + h / 4, Math.min(y + h - 2, py))];
}

// The labels of a crowded ring that are at least four degrees from each more important one.
function apart(wanted) {
  const kept = [];
  for (const one of wanted) if (!kept.some((other) => Math.min(clockwise(one.x, other.x), clockwise(other.x, one.x)) < 4 / 360)) kept.push(one);
  return kept;
}

// A long line in two.
function halved(line) {
  if (line.length < 30) return [line];
  const middle = line.indexOf(" ", line.length / 2 - 4);
  return [line.slice(0, middle), line.slice(middle + 1)];
}

export const STATES = {
  ready: "ready", suspect: "suspected", dead: "dead", unreachable: "unreachable", joining: "joining", paused: "paused",
};

// Draw the mark of a state: a shape always accompanies the colour.
export function mark(group, state, size, hue) {
  if (state === "dead") {
    const g = el("g", { class: "bad" }, group);
    el("circle", { class: "hollow", r: size }, g);
    const c = size * 0.45;
    el("path", { class: "cross", d: `M${-c} ${-c}L${c} ${c}M${c} ${-c}L${-c} ${c}` }, g);
  } else if (state === "unreachable") {
    const g = el("g", { class: "mute" }, group);
    el("circle", { class: "hollow", r: size }, g);
    el("circle", { r: size - 1, fill: "url(#hatch-ink)" }, g);
  } else if (state === "suspect") {
    const g = el("g", { class: "hwarn" }, group);
    el("circle", { class: "hollow", r: size }, g);
    el("path", { class: "half", d: `M0 ${-size}A${size} ${size} 0 0 1 0 ${size}Z` }, g);
  } else if (state === "joining") {
    const g = el("g", { class: "path" }, group);
    el("circle", { class: "hollow", r: size, "stroke-dasharray": "3 2.4" }, g);
  } else if (state === "paused") {
    const g = el("g", { class: "hwarn" }, group);
    el("circle", { class: "hollow", r: size }, g);
    el("path", { class: "cross", d: `M${-size * 0.28} ${-size * 0.4}V${size * 0.4}M${size * 0.28} ${-size * 0.4}V${size * 0.4}` }, g);
  } else el("circle", { class: `disc ${hue}`, r: size }, group);
}

// An arc whose tint grows from 18 % to 92 % towards its owner. The steps lie on top of each other, so no seam shows.
function comet(group, from, length, radius, strength, many) {
  const steps = Math.max(many ? 3 : 9, Math.min(60, Math.round(length / STEP)));
  let before = 0;
  for (let i = 0; i < steps; i += 1) {
    const target = strength * (0.18 + (0.74 * i) / (steps - 1));
    const start = (length * i) / steps;
    el("path", {
      class: "arc", d: arcPath(from + start, length - start, radius), "stroke-width": BAND,
      "stroke-opacity": (1 - (1 - target) / (1 - before)).toFixed(4),
    }, group);
    before = target;
  }
}

function tintOf(vnode, { colorBy, view, requests }, hue) {
  if (colorBy === "keys") {
    const most = Math.max(1, ...view.members.map((one) => one.keys / (one.share || 1)));
    return ["hx", 0.25 + 0.75 * Math.min(1, vnode.keys / (vnode.share || 1) / most)];
  }
  if (colorBy === "requests") return ["hx", requests.has(vnode.id) ? 0.2 + 0.8 * requests.get(vnode.id) : 0.05]; // a node that is not asked is pale
  if (colorBy === "copies") {
    const lacks = view.incomplete.some((part) => clockwise(part.from, vnode.x) <= part.length);
    return [lacks ? "hwarn" : "hown", 0.8];
  }
  return [`h${hue}`, 1];
}

function isDim(vnode, scene) {
  if (scene.roles?.size) return !scene.roles.has(vnode.id);
  return scene.selected && scene.near ? !scene.near.has(vnode.id) : false;
}

function orbitsOf(view) {
  const orbits = new Map();
  view.cycles.forEach((cycle, orbit) => cycle.forEach((vnode) => orbits.set(vnode.id, orbit)));
  return orbits;
}
