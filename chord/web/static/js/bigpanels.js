// The panels beside a large ring: the worst first, and the lens.

import { harmonic, percent, count } from "./circle.js";
import { bandBy, inLens } from "./bigring.js";
import { html, HBar, Segments, useMemo, useState } from "./parts.js";
import { find, store } from "./store.js";

const ORDERS = [["arc", "largest arcs"], ["keys", "most keys"], ["suspected", "suspected"]];

export function WorstSide({ view }) {
  const [order, setOrder] = useState("arc");
  const value = { arc: (v) => v.share, keys: (v) => v.keys ?? 0, suspected: (v) => v.owner?.suspectedBy.length ?? 0 }[order];
  const rows = useMemo(() => [...view.vnodes].sort((a, b) => value(b) - value(a)).slice(0, 10)
    .filter((v) => order !== "suspected" || value(v) > 0), [view, order]);
  const most = Math.max(1e-12, value(rows[0] ?? { share: 0, keys: 0 }));
  const mean = 1 / Math.max(1, view.members.length);
  const text = (v) => (order === "arc" ? `${(v.share / mean).toFixed(1)}×` : count(value(v)));
  return html`<aside class="side" aria-label="Worst first" tabindex="0"><div class="body"><section><h2 class="minor">Worst first</h2>
    <${Segments} label="Order" value=${order} onChange=${setOrder} options=${ORDERS} />
    <table class="gap"><thead><tr><th scope="col">node</th><th scope="col" class="n">at</th><th scope="col"><span class="sr">bar</span></th><th scope="col" class="n">${order}</th></tr></thead>
    <tbody>${rows.map((v) => html`<tr key=${v.id}><td><b>${v.name}</b></td><td class="n mute">${percent(v.x)}</td><td><${HBar} share=${value(v) / most} tone="mute" /></td><td class="n">${text(v)}</td></tr>`)}</tbody></table>
    <p class="mute gap">The largest of ${count(view.members.length)} random arcs is expected to have ${harmonic(view.members.length).toFixed(1)} times the mean.</p></section>
    <section><h2 class="minor">Meaning of the marks</h2><ul class="marks"><li>band: 1 degree of the circle, few to many ${bandBy()}</li><li>bar outside: the largest arc of the degree; amber, over 8 times the mean</li><li class="bad">○ a dead node</li><li>○ a node that does not respond, and that no node declares dead</li><li class="warn">○ a suspected node</li></ul>${bandBy() === "requests" && html`<${Asked} />`}</section>
    <section><h2 class="minor">Find</h2><form class="field" onSubmit=${(e) => { e.preventDefault(); find(new FormData(e.target).get("find").trim()); }}><input name="find" id="find" aria-label="Find a node, an address, an id or a key" placeholder="node, address, 0x id or key" /></form>
    <p class="mute gap">Drag along the circle to move the lens. The arrow keys move the lens, too.</p></section></div></aside>`;
}

// How many nodes count the requests that the band shows.
function Asked() {
  const { counted_by: by, nodes } = store.binRequests ?? { counted_by: 0 };
  if (!by) return html`<p class="mute gap">No node has counted requests yet.</p>`;
  return html`<p class="mute gap">${count(by)} of ${count(nodes)} nodes count requests.${by < nodes && " The band has gaps where none of them owns keys."}</p>`;
}

export function LensBottom({ view }) {
  const list = inLens(view);
  const from = store.lens ?? 0.12;
  const width = 1000;
  const place = (v) => (((v.x - from + 1) % 1) * 180) * width;
  const top = Math.max(1e-12, ...list.map((v) => v.share));
  let free = -100;
  return html`<section class="bottom" aria-label="Lens"><h2 class="minor gap">Lens <small>· 1/180 of the circle, ${list.length} of ${count(view.vnodes.length)} nodes</small></h2>
    <svg class="lens ring" viewBox="0 0 ${width} 118" preserveAspectRatio="none" role="img" aria-label="${list.length} nodes in the lens">
      ${list.map((v) => {
        const to = place(v);
        const begin = Math.max(0, to - v.share * 180 * width);
        const isNamed = to - free > 62;
        if (isNamed) free = to;
        return html`<g class="h${v.hue}"><rect x=${begin} width=${Math.max(0, to - begin - 1)} y=${62 - 50 * (v.share / top)} height=${50 * (v.share / top)} class="lens-bar" /><rect x=${begin} width=${Math.max(0, to - begin)} y="66" height="14" fill="currentColor" opacity=".7" />
          <circle class="disc ${v.mark === "dead" ? "bad" : ""}" cx=${to} cy="73" r="5" />${isNamed && html`<text x=${Math.max(0, to)} y="98" text-anchor=${to < 40 ? "start" : to > width - 40 ? "end" : "middle"}>${v.name}</text>`}</g>`;
      })}</svg></section>`;
}
