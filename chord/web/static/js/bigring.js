// A ring of more than 256 vnodes: 360 bins on a canvas, a lens that unrolls 1/180 of the circle, and the worst first.

import { clockwise, count } from "./circle.js";
import { health, set, store } from "./store.js";

export const BINS = 360;
export const LENS = 1 / 180;
const R = 250;

// The number that the tint of the band shows. A recording does not count requests.
export const bandBy = () => (store.bandBy === "requests" && health() === "played" ? "nodes" : store.bandBy);

// The bins of a view: the number of vnodes, the largest arc, the keys, the dead, those that do not respond, the suspected.
export function binsOf(view) {
  const bins = Array.from({ length: BINS }, () => ({ count: 0, arc: 0, keys: 0, dead: 0, unreachable: 0, suspect: 0 }));
  for (const vnode of view.vnodes) {
    const bin = bins[Math.min(BINS - 1, Math.floor(vnode.x * BINS))];
    bin.count += 1;
    bin.arc = Math.max(bin.arc, vnode.share);
    bin.keys += vnode.keys ?? 0;
    if (vnode.mark in bin) bin[vnode.mark] += 1;
  }
  return bins;
}

// The words below the number of nodes.
export function downText(view) {
  const lost = view.missing.length ? `, ${count(view.missing.length)} without an answer` : "";
  return `nodes, ${count(view.down.filter((node) => node.mark === "dead").length)} of them dead${lost}`;
}

export function inLens(view) {
  return view.vnodes.filter((vnode) => clockwise(store.lens ?? 0.12, vnode.x) < LENS);
}

export class BigRing {
  constructor(box, on) {
    this.on = on;
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "slider");
    this.canvas.setAttribute("tabindex", "0");
    this.canvas.setAttribute("aria-valuemin", "0");
    this.canvas.setAttribute("aria-valuemax", "100");
    this.box = document.createElement("div"); // the lens: to move it repaints no canvas
    this.box.className = "lens-box over";
    box.append(this.canvas, this.box);
    this.rect = this.canvas.getBoundingClientRect();
    this.resized = new ResizeObserver(() => {
      this.rect = this.canvas.getBoundingClientRect();
      set({});
    });
    this.resized.observe(this.canvas);
    const move = (event) => {
      const rect = this.canvas.getBoundingClientRect();
      const angle = Math.atan2(event.clientX - rect.left - rect.width / 2, rect.height / 2 - (event.clientY - rect.top));
      set({ lens: (angle / (2 * Math.PI) + 1 - LENS / 2) % 1 });
    };
    this.canvas.addEventListener("pointerdown", (event) => { this.canvas.setPointerCapture(event.pointerId); move(event); });
    this.canvas.addEventListener("pointermove", (event) => { if (event.buttons & 1) move(event); });
    this.canvas.addEventListener("keydown", (event) => {
      const step = { ArrowRight: LENS / 2, ArrowLeft: -LENS / 2, PageUp: 0.05, PageDown: -0.05 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      set({ lens: ((store.lens ?? 0.12) + step + 1) % 1 });
    });
  }

  draw(view) {
    const { canvas } = this;
    canvas.setAttribute("aria-label", `Ring of ${view.nodes.size} nodes; the lens is at`);
    canvas.setAttribute("aria-valuenow", ((store.lens ?? 0.12) * 100).toFixed(2));
    canvas.setAttribute("aria-valuetext", `${((store.lens ?? 0.12) * 100).toFixed(1)} % of the circle`);
    const { rect } = this;
    const drawn = [view, bandBy(), store.binRequests, rect.width, rect.height, store.theme, matchMedia("(prefers-color-scheme: dark)").matches];
    if (!this.drawn || drawn.some((one, i) => one !== this.drawn[i])) {
      this.drawn = drawn;
      this.inks = inksOf(canvas);
      this.bins(prepared(canvas, rect), view);
    }
    const turn = turnOf((store.lens ?? 0.12) + LENS / 2);
    this.box.style.transform = `rotate(${turn}rad) scale(${scaleOf(rect)}) translate(${R - 16}px, -5px)`;
  }

  bins(g, view) {
    const { faint, bar, warn, bad, text, mute } = this.inks;
    const turn = turnOf;
    const bins = binsOf(view);
    const asked = store.binRequests?.requests ?? []; // only the server has the requests
    const tints = bins.map((bin, i) => ({ nodes: bin.count, keys: bin.keys, requests: asked[i] ?? null }[bandBy()]));
    const most = Math.max(1, ...tints);
    const mean = 1 / Math.max(1, view.members.length);
    const top = Math.max(8 * mean, ...bins.map((bin) => bin.arc));
    bins.forEach((bin, i) => {
      const a = turn(i / BINS);
      const b = turn((i + 1) / BINS);
      if (tints[i] !== null) { // no tint says that no node of the bin was asked
        g.globalAlpha = 0.16 + 0.8 * (tints[i] / most);
        g.strokeStyle = faint;
        g.lineWidth = 17;
        g.beginPath();
        g.arc(0, 0, R, a, b + 0.001);
        g.stroke();
        g.globalAlpha = 1;
      }
      const middle = (a + b) / 2;
      const height = 60 * Math.sqrt(bin.arc / top);
      g.strokeStyle = bin.arc > 8 * mean ? warn : bar;
      g.lineWidth = 3;
      g.beginPath();
      g.moveTo((R + 14) * Math.cos(middle), (R + 14) * Math.sin(middle));
      g.lineTo((R + 14 + height) * Math.cos(middle), (R + 14 + height) * Math.sin(middle));
      g.stroke();
      if (bin.dead || bin.unreachable || bin.suspect) {
        g.strokeStyle = bin.dead ? bad : bin.unreachable ? mute : warn;
        g.lineWidth = 1.6;
        g.beginPath();
        g.arc((R - 22) * Math.cos(middle), (R - 22) * Math.sin(middle), 2.6, 0, 7);
        g.stroke();
      }
    });
    g.fillStyle = text;
    g.textAlign = "center";
    g.font = "600 34px Inter, system-ui, sans-serif";
    g.fillText(count(view.nodes.size), 0, 4);
    g.fillStyle = mute;
    const size = Math.max(12.5, 12.5 / scaleOf(this.rect)); // text keeps its size in a small picture
    g.font = `${size}px Inter, system-ui, sans-serif`;
    g.fillText(downText(view), 0, 12 + 1.3 * size);
  }

  stop() {}

  destroy() {
    this.resized.disconnect();
  }
}

const scaleOf = (rect) => Math.min(rect.width / 756, rect.height / 690);
const turnOf = (x) => 2 * Math.PI * x - Math.PI / 2;

// Clear a canvas, and return its context with the ring's centre as the origin.
function prepared(canvas, rect) {
  const ratio = devicePixelRatio || 1;
  const size = [Math.round(rect.width * ratio), Math.round(rect.height * ratio)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) [canvas.width, canvas.height] = size;
  const g = canvas.getContext("2d");
  g.resetTransform();
  g.clearRect(0, 0, ...size);
  const scale = scaleOf(rect) * ratio;
  g.setTransform(scale, 0, 0, scale, canvas.width / 2, canvas.height / 2);
  return g;
}

// The colours of the theme, resolved so that a canvas takes them.
function inksOf(element) {
  const probe = document.createElement("i");
  element.parentElement.append(probe);
  const found = {};
  for (const name of ["faint", "bar", "warn", "bad", "text", "mute"]) {
    probe.style.color = `var(--${{ warn: "warn-fill", text: "ink" }[name] ?? name})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}
