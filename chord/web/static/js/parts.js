// Small parts of the page: icons, buttons, meters, bars.

import { html } from "../vendor/htm-preact.js";

export { html };
export { Component, createContext, render, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/htm-preact.js";

const SHAPES = {
  check: html`<path d="M3 8.5l3.2 3L13 4.5" />`,
  x: html`<path d="M4.5 4.5l7 7M11.5 4.5l-7 7" />`,
  cross: html`<circle cx="8" cy="8" r="6" /><path d="M5.7 5.7l4.6 4.6M10.3 5.7l-4.6 4.6" />`,
  paused: html`<circle cx="8" cy="8" r="6" /><path d="M6.4 5.8v4.4M9.6 5.8v4.4" />`,
  half: html`<circle cx="8" cy="8" r="6" /><path class="solid" d="M8 2a6 6 0 0 1 0 12z" />`,
  hatch: html`<circle cx="8" cy="8" r="6" /><path d="M3.8 9.4L9.4 3.8M5.2 12.2l7-7M7.6 13l5.4-5.4" />`,
  question: html`<path d="M5.8 6.2a2.2 2.2 0 1 1 3.2 2c-.7.4-1 .8-1 1.6M8 12.3v.1" />`,
  alert: html`<path d="M8 2.5L14 13H2z M8 6.5v3M8 11.3v.1" />`,
  up: html`<path d="M8 13V3.5M4.5 7L8 3.5 11.5 7" />`,
  join: html`<circle cx="8" cy="8" r="5.6" stroke-dasharray="2.4 2" /><circle class="solid" cx="8" cy="8" r="1.6" />`,
  arc: html`<path stroke-width="2.4" d="M3 12.5A9 9 0 0 1 12 4" />`,
  move: html`<path class="solid" d="M1.5 6h4v4h-4zM6.5 6h4v4h-4z" /><path d="M11.5 6.5h3v3h-3" />`,
  link: html`<circle cx="8" cy="8" r="2.6" /><path d="M1 8h4.4M10.6 8H15" />`,
  cut: html`<path d="M1.5 8H6l1.5-4M14.5 8H10l-1.5 4" />`,
  theme: html`<circle cx="8" cy="8" r="6" /><path class="solid" d="M8 2a6 6 0 0 1 0 12z" />`,
  help: html`<circle cx="8" cy="8" r="6.3" /><path d="M6.2 6.5a1.9 1.9 0 1 1 2.7 1.7c-.6.3-.9.7-.9 1.3M8 11.4v.1" />`,
  search: html`<circle cx="7" cy="7" r="4.4" stroke-width="2" /><path stroke-width="2" d="M10.4 10.4L14 14" />`,
  play: html`<path class="solid" d="M4.5 3l8.5 5-8.5 5z" />`,
  pause: html`<path stroke-width="2.4" d="M5.5 3.5v9M10.5 3.5v9" />`,
  first: html`<path class="solid" d="M13 3v10L6 8z" /><path stroke-width="2" d="M4 3v10" />`,
  next: html`<path class="solid" d="M3 3v10l7-5z" /><path stroke-width="2" d="M12 3v10" />`,
  ring: html`<circle cx="8" cy="8" r="5.5" /><circle class="solid" cx="8" cy="2.5" r="1.8" /><circle class="solid" cx="12.6" cy="11" r="1.8" />`,
  keys: html`<path d="M8 2.5L13.5 8 8 13.5 2.5 8z" />`,
  rows: html`<path d="M2.5 4h11M2.5 8h11M2.5 12h11" />`,
  time: html`<circle cx="8" cy="8" r="6" /><path d="M8 4.5V8l2.5 1.6" />`,
  bars: html`<path d="M2.5 13V8M6 13V3.5M9.7 13V6M13.3 13V10" />`,
  lab: html`<path d="M6 2.5h4M7 2.5V7L3 13.5h10L9 7V2.5M5 10.5h6" />`,
  gallery: html`<path d="M3.5 2v12M8 2v12M12.5 2v12M3.5 5L8 7.5M12.5 8L8 10.5" />`,
  book: html`<path d="M8 4C6.5 3 4.5 2.8 2.5 3v9c2-.2 4 0 5.5 1 1.5-1 3.5-1.2 5.5-1V3c-2-.2-4 0-5.5 1zM8 4v9" />`,
};

export function Icon({ name, size = 14, tone = "" }) {
  return html`<svg class="ico ${tone}" width=${size} height=${size} viewBox="0 0 16 16" fill="none" stroke="currentColor"
    stroke-width="1.5" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">${SHAPES[name]}</svg>`;
}

export function Segments({ label, options, value, onChange }) {
  return html`<div class="seg" role="group" aria-label=${label}>
    ${options.map(([id, text]) => html`<button type="button" key=${id} aria-pressed=${String(value === id)} onClick=${() => onChange(id)}>${text}</button>`)}
  </div>`;
}

export function Meter({ share, tone = "" }) {
  return html`<svg class="meter ${tone}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
    <rect class="fill" width=${(100 * Math.max(0, Math.min(1, share))).toFixed(2)} height="8" /></svg>`;
}

export function HBar({ share, mean = null, tone = "" }) {
  return html`<svg class="hbar ${tone}" viewBox="0 0 100 9" preserveAspectRatio="none" aria-hidden="true">
    <rect width=${(100 * share).toFixed(2)} height="9" rx="1" />
    ${mean !== null && html`<line class="mean" x1=${100 * mean} x2=${100 * mean} y1="0" y2="9" vector-effect="non-scaling-stroke" />`}</svg>`;
}

export function Facts({ rows, numbers = false }) {
  return html`<dl class="facts ${numbers ? "numbers" : ""}">
    ${rows.filter(Boolean).map(([name, value, tone]) => html`<dt class=${tone ?? ""}>${name}</dt><dd class=${tone ?? ""}>${value}</dd>`)}
  </dl>`;
}

export function Spark({ values, tone = "path", label }) {
  if (values.length < 2) return html`<p class="mute">not yet measured</p>`;
  const top = Math.max(...values, 1e-9);
  const points = values.map((v, i) => `${((100 * i) / (values.length - 1)).toFixed(2)} ${(30 - (28 * v) / top).toFixed(2)}`);
  return html`<svg class="spark ${tone}" viewBox="0 0 100 32" preserveAspectRatio="none" role="img" aria-label=${label}>
    <path class="area" d="M0 32L${points.join("L")}L100 32Z" /><path class="line" d="M${points.join("L")}" /></svg>`;
}

export function NodeDot({ node }) {
  return node.mark === "ready" || node.mark === "joining"
    ? html`<span class="dot h${node.hue}"></span>`
    : html`<${Icon} ...${{ dead: { name: "cross", tone: "bad" }, unreachable: { name: "hatch", tone: "mute" }, paused: { name: "paused", tone: "warn" } }[node.mark] ?? { name: "half", tone: "warn" }} />`;
}
