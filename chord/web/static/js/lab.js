// The page Lab: the reports of `chord lab`, each in a sandboxed frame.

import { api } from "./api.js";
import { html, useEffect, useState } from "./parts.js";

export function LabPage() {
  const [found, setFound] = useState(null);
  const [name, setName] = useState(null);
  const [file, setFile] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    api.reports().then((answer) => { setFound(answer); setName(answer.reports[0]?.name ?? null); }, setError);
  }, []);
  const open = async (chosen) => setFile({ name: chosen.name, text: await chosen.text() });
  const frame = file ? html`<iframe class="report" sandbox="" title="Report ${file.name}" srcdoc=${file.text}></iframe>`
    : name ? html`<iframe class="report" sandbox="" title="Report ${name}" src=${api.reportUrl(name)}></iframe>` : html`<${Empty} found=${found} error=${error} />`;
  return html`<aside class="left always" aria-label="Reports"><section class="always"><h1>Lab</h1><p class="mute">The lab measures sharding schemes side by side. A report cannot run scripts or load anything.</p></section>
    ${found?.reports.length > 0 && html`<section class="always"><h2 class="minor">Reports <small>· ${found.folder}</small></h2><ul class="menu">${found.reports.map((one) => html`<li key=${one.name}>
      <button type="button" aria-current=${!file && one.name === name ? "true" : null} onClick=${() => { setFile(null); setName(one.name); }}>${one.title}<small class="mute"> ${new Date(one.written_ms).toLocaleDateString("en-GB")}</small></button></li>`)}</ul></section>`}
    <section class="always"><h2 class="minor">Another report</h2><label class="button" for="report">Open a file</label><input class="sr" id="report" type="file" accept=".html,.svg" onChange=${(e) => e.target.files[0] && open(e.target.files[0])} /></section></aside>
    <main class="center page span" id="main" tabindex="-1"><h2 class="sr">Report</h2>${frame}</main>`;
}

function Empty({ found, error }) {
  if (error) return html`<p class="bad">${error.message}</p>`;
  if (!found) return html`<p class="mute">Loading</p>`;
  return html`<p>There is no report in <code>${found.folder}</code> yet.</p><p class="mute gap">These commands write one:</p>
    <table class="gap"><tbody>${COMMANDS.map(([command, text]) => html`<tr key=${command}><td><code>${command}</code></td><td class="wrap">${text}</td></tr>`)}</tbody></table>
    <p class="mute gap">Another folder: <code>chord dashboard --lab DIR</code></p>`;
}

const COMMANDS = [
  ["chord lab all", "all experiments, two minutes"], ["chord lab movement", "the cost of growing from 4 nodes to 64"],
  ["chord lab vnodes", "the gain of vnodes, probes and bounded loads"], ["chord lab jump", "the cost and evenness of jump hashing"],
  ["chord lab ring", "path lengths on rings of up to a million nodes"],
];
