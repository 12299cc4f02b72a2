// Health of the server, the space that is taken, and which projects may act.
import { html, useState } from "./vendor/preact-htm.js";
import { get, logOut, post, remove } from "./api.js";
import { formatCount, formatNumber, formatSize, shortenPath, toTitle } from "./format.js";
import { Dialog, Loaded, Notice, useLoaded } from "./parts.js";
import { toSession } from "./router.js";

const SEVERITIES = ["problem", "warning", "note"];
const MAX_ITEMS = 20;
const KINDS = { index: "the search index", session: "sessions", message: "messages", part: "parts of messages", diff: "changes of sessions", project: "projects", kept: "other records", chain: "hash chains of sessions", housekeeping: "housekeeping", todo: "todos", undo: "snapshots for undo", snapshots: "snapshots of OpenCode", "tool-output": "long outputs of tools" };
const WHY = {
  environment: "It is trusted because WEFT_TRUST=1 is set.",
  configured: "It is trusted: your configuration names it under experimental.weft.trusted.",
  given: "You trusted it as it is now.",
  refused: "You declined to trust it as it is now.",
  changed: "It has changed since you trusted it.",
  unknown: "You have not been asked about it.",
};

export function Health({ directory }) {
  const health = useLoaded(async () => {
    const [ready, version, paths, vcs] = await Promise.all([get("/weft/ready").catch((error) => ({ ready: false, reasons: [error.message] })), get("/global/health"), get("/path", { directory }), get("/vcs", { directory }).catch(() => ({}))]);
    return { ready, version, paths, vcs };
  }, [directory]);
  const findings = useLoaded(() => get("/weft/doctor", { directory }), [directory]);
  return html`<${Loaded} of=${health}>${({ ready, version, paths, vcs }) => html`
    ${ready.ready ? html`<${Notice}>The server accepts work, and can write to its store.<//>` : html`<${Notice} kind="error">${(ready.reasons ?? []).join(" ")}<//>`}
    <section class="card"><h2>This server</h2><dl class="pairs"><dt>Version</dt><dd>${version.version}</dd><dt>Directory</dt><dd><code>${paths.directory}</code></dd>${vcs.branch && html`<dt>Branch</dt><dd>${vcs.branch}</dd>`}<dt>Configuration</dt><dd><code>${paths.config}</code></dd><dt>State</dt><dd><code>${paths.state}</code></dd>${paths.data && html`<dt>Data</dt><dd><code>${paths.data}</code></dd>`}</dl>
      <div class="buttons"><button type="button" onClick=${() => logOut().then(() => location.assign("/"))}>Log this browser out</button></div></section>`}<//>
    <section class="card"><h2>What the doctor finds</h2><${Loaded} of=${findings}>${(found) => html`<${Findings} findings=${found} />
      <p><button type="button" onClick=${findings.reload}>Check again</button></p>`}<//></section>`;
}

function Findings({ findings }) {
  const sorted = SEVERITIES.flatMap((severity) => findings.filter((each) => each.severity === severity));
  const wrong = findings.filter((each) => each.severity !== "note");
  return html`<p>${wrong.length ? SEVERITIES.slice(0, 2).map((severity) => formatCount(findings.filter((each) => each.severity === severity).length, severity)).join(", ") : "All is well: the machine, the configuration, the store and the snapshots were checked."}</p>
    <ul class="entries">${sorted.map((each) => html`<li key=${each.area + each.what}><span class=${`badge ${{ problem: "failed-badge", warning: "waiting" }[each.severity] ?? ""}`}>${each.severity}</span> <span class="about">${each.area}</span> <strong>${each.what}</strong>
      ${each.means && html`<p class="about">${each.means}</p>`}
      ${each.repair && html`<p>To fix it: <code>${each.repair}</code></p>`}
      ${each.items?.length ? html`<ul class="about">${each.items.slice(0, MAX_ITEMS).map((item, at) => html`<li key=${at}><code>${item.where}</code> ${item.reason ?? ""}</li>`)}${each.items.length > MAX_ITEMS && html`<li>and ${each.items.length - MAX_ITEMS} more</li>`}</ul>` : null}</li>`)}</ul>`;
}

export function Storage({ directory }) {
  const found = useLoaded(() => get("/weft/storage", { directory }), [directory]);
  return html`<${Loaded} of=${found}>${(report) => html`
    <section class="card"><h2>${formatSize(report.bytes)} in ${formatCount(report.files, "file")}</h2><p class="about address"><code>${report.store}</code></p>
      <${Sizes} label="By kind" head="Kind" entries=${report.kinds} whole=${report.bytes} name=${(each) => KINDS[each.name] ?? each.name.replaceAll("_", " ")} /></section>
    <section class="card"><h2>Projects</h2><${Sizes} label="By project" head="Project" entries=${report.projects} whole=${report.bytes} name=${(each) => html`<span title=${each.title}>${each.name ? shortenPath(each.title || each.name) : "of no project"}</span>`} /></section>
    ${report.sessions.length ? html`<section class="card"><h2>The largest sessions</h2><${Sizes} label="By session" head="Session" entries=${report.sessions} whole=${report.bytes} name=${(each) => html`<a href=${toSession(each.name)}>${toTitle(each)}</a>`} /></section>` : null}
    <p class="about"><code>weft storage gc</code> removes what nothing refers to, <code>weft storage prune</code> old sessions.</p>`}<//>`;
}

function Sizes({ label, head, entries, whole, name }) {
  return html`<div class="table" tabindex="0" role="group" aria-label=${label}><table class="plain"><thead><tr><th>${head}</th><th class="right">Files</th><th class="right">Size</th><th></th></tr></thead>
    <tbody>${entries.map((each) => html`<tr key=${each.name}><td>${name(each)}</td><td class="right">${formatNumber(each.files)}</td><td class="right">${formatSize(each.bytes)}</td><td><meter min="0" max=${Math.max(whole, 1)} value=${each.bytes} aria-label="Share of all"></meter></td></tr>`)}</tbody></table></div>`;
}

function HeldItems({ label, items, root }) {
  return html`<div class="table" tabindex="0" role="group" aria-label=${label}><table class="plain"><thead><tr><th>Kind</th><th>Name</th><th>What it does</th><th>Where</th></tr></thead>
    <tbody>${items.map((each, at) => html`<tr key=${at}><td>${each.kind}</td><td>${each.name}</td><td><code>${each.does}</code></td><td><code>${each.path.replace(`${root}/`, "")}</code></td></tr>`)}</tbody></table></div>`;
}

export function Trust({ directory }) {
  const [problem, setProblem] = useState("");
  const [asked, setAsked] = useState(null);
  const found = useLoaded(() => get("/weft/trust", { directory }), [directory]);
  const act = (promise) => promise.then(() => setProblem(""), (error) => setProblem(error.message)).then(() => (setAsked(null), found.reload()));
  return html`${problem && html`<${Notice} kind="error" onClose=${() => setProblem("")}>${problem}<//>`}
    <${Loaded} of=${found}>${(report) => html`<section class="card"><h2><code>${report.path}</code></h2>
      <p><span class=${`badge ${report.trusted ? "running" : "waiting"}`}>${report.trusted ? "trusted" : "not trusted"}</span> ${WHY[report.why]}</p>
      <p class="about">A project that is not trusted can choose models, agents and instructions, and tighten your rules. It runs no programs and uses no addresses. Trust covers the project as it is now: after a change you are asked again.</p>
      ${report.changes.length ? html`<h3>What has changed</h3><ul>${report.changes.map((each) => html`<li key=${each.name}>${each.what}: <code>${each.name}</code></li>`)}</ul>` : null}
      <h3>${report.trusted ? "What it brings along" : "What is held back"}</h3>
      ${report.held.length ? html`<${HeldItems} label="What it brings along" items=${report.held} root=${report.path} />` : html`<p class="about">Nothing.</p>`}
      ${report.looser.length ? html`<h3>Looser than your settings</h3>${!report.trusted && html`<p class="about">Without effect while the project is not trusted.</p>`}<${HeldItems} label="Looser than your settings" items=${report.looser} root=${report.path} />` : null}
      <div class="buttons">${report.trusted ? report.why === "given" && html`<button type="button" class="danger" onClick=${() => act(remove("/weft/trust", { directory }))}>Stop trusting it</button>`
        : html`<button type="button" class="primary" onClick=${() => setAsked(report)}>Trust this project …</button>`}</div></section>`}<//>
    ${asked && html`<${Dialog} title="Trust this project?" onClose=${() => setAsked(null)} actions=${html`<button type="button" onClick=${() => setAsked(null)}>Cancel</button><button type="button" class="primary" onClick=${() => act(post("/weft/trust", { fingerprint: asked.fingerprint }, { directory }))}>Trust it as it is now</button>`}>
      <p><code>${asked.path}</code></p><p>${asked.held.length ? `${formatCount(asked.held.length, "thing")} that it brings along will take effect, and may run programs with your rights.` : "It brings nothing along that is held back now."} ${asked.looser.length ? `${formatCount(asked.looser.length, "setting")} looser than yours will take effect.` : ""} Runs in this directory end, because it is opened again.</p><//>`}`;
}
