// What fills the context: every kind of piece that the next request would send, and what the last answer counted.
import { html } from "./vendor/preact-htm.js";
import { get } from "./api.js";
import { formatCount, formatNumber } from "./format.js";
import { Dialog, Loaded, useLoaded } from "./parts.js";

// Each kind, and the parts of a request that belong to it.
const KINDS = [
  ["System prompt", ({ section, name }) => section === "system" && !name.includes("/")],
  ["Instruction files", ({ section }) => section === "system"],
  ["Tools", ({ section }) => section === "tools"],
  ["Files and images", ({ name }) => name === "file"],
  ["Prompts", ({ section, name }) => section === "user" && name === "text"],
  ["Reasoning", ({ name }) => name === "reasoning"],
  ["Tool calls", ({ name }) => name.startsWith("call of ")],
  ["Tool results", ({ name }) => name.startsWith("result of ")],
  ["Answers", () => true],
];

function toGroups(parts) {
  const groups = KINDS.map(([name]) => ({ name, tokens: 0, count: 0, uncounted: 0, parts: [] }));
  for (const part of parts) {
    const group = groups[KINDS.findIndex(([, has]) => has(part))];
    for (const field of ["tokens", "count", "uncounted"]) group[field] += part[field] ?? (field === "count" ? 1 : 0);
    group.parts.push(part);
  }
  return groups.map((group, at) => ({ ...group, at })).filter((group) => group.count);
}

const toPartName = (part) => part.name.replace(/^(call|result) of /, "");
const toCount = (part) => (part.uncounted ? `${formatCount(part.uncounted, "file")}, size unknown` : formatNumber(part.tokens));

export function ContextDialog({ id, used, limit, tokens, onClose }) {
  const report = useLoaded(() => get(`/weft/session/${id}/context`), [id]);
  const counted = [["from the cache", tokens.cache.read], ["written to the cache", tokens.cache.write], ["not cached", tokens.input], ["answer", tokens.output], ["reasoning", tokens.reasoning]];
  return html`<${Dialog} title="What fills the context" onClose=${onClose}>
    <p><strong>${formatNumber(used)} tokens</strong>${limit ? ` of ${formatNumber(limit)}` : ""} with the last answer: ${counted.filter(([, count]) => count).map(([name, count]) => `${formatNumber(count)} ${name}`).join(", ")}.</p>
    <${Loaded} of=${report}>${(found) => html`<${Parts} report=${found} />`}<//>
  <//>`;
}

function Parts({ report }) {
  const groups = toGroups(report.parts);
  const whole = Math.max(report.limit ?? 0, report.tokens, 1);
  return html`<h3>The next request</h3>
    <p>About ${formatNumber(report.tokens)} tokens${report.limit ? ` of ${formatNumber(report.limit)} that fit beside the answer` : ""}, for ${report.agent} with ${report.model.providerID}/${report.model.modelID}.
      ${report.overflows && html` <strong class="failed">It does not fit: the conversation will be summarised first.</strong>`}</p>
    <div class="fill" role="img" aria-label=${groups.map((group) => `${group.name}: ${Math.round((100 * group.tokens) / whole)} %`).join(", ")}>
      ${groups.map((group) => html`<span key=${group.name} class=${`fill-${group.at}`} style=${{ width: `${(100 * group.tokens) / whole}%` }}></span>`)}</div>
    <table class="plain fill-table"><thead><tr><th>Part</th><th class="right">Tokens</th><th class="right">Share</th></tr></thead>
      ${groups.map((group) => html`<tbody key=${group.name}>
        <tr><th scope="row"><span class=${`swatch fill-${group.at}`} aria-hidden="true"></span>${group.name}</th><td class="right">${toCount(group)}</td><td class="right">${Math.round((100 * group.tokens) / Math.max(report.tokens, 1))} %</td></tr>
        ${(group.parts.length > 1 || group.name === "Instruction files" ? [...group.parts].sort((a, b) => b.tokens - a.tokens) : []).map((part) => html`<tr key=${part.name} class="detail"><td>${toPartName(part)}${part.count > 1 ? html` <span class="about">× ${part.count}</span>` : ""}</td><td class="right">${toCount(part)}</td><td></td></tr>`)}
      </tbody>`)}</table>`;
}
