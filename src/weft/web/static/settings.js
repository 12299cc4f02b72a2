// Settings and health: what there is, where it comes from, and what is wrong with it.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { get, post, remove } from "./api.js";
import { formatCount, formatTime, formatTokens, shortenPath } from "./format.js";
import { Health, Storage, Trust } from "./health.js";
import { McpServers } from "./mcp_servers.js";
import { Loaded, Notice, useLoaded } from "./parts.js";
import { setQuery } from "./router.js";
import { state } from "./store.js";

const TABS = { health: ["Health", Health], storage: ["Storage", Storage], trust: ["Trust", Trust], providers: ["Providers and models", Providers], agents: ["Agents and commands", Agents], mcp: ["MCP servers", McpServers], permissions: ["Permissions", PermissionRules] };
const SOURCES = { env: "the environment", config: "the configuration", api: "weft auth login", custom: "a login" };

export function SettingsScreen({ query }) {
  useEffect(() => {
    document.title = state.title = "Settings · weft";
  }, []);
  const place = useLoaded(() => Promise.all([get("/project"), get("/path")]), []);
  const tab = TABS[query.tab] ? query.tab : "health";
  const [, Tab] = TABS[tab];
  return html`<div class="settings"><header class="page-head"><h1>Settings and health</h1><span class="grow"></span>
      <${Loaded} of=${place}>${([projects, paths]) => html`<label class="check">of <select aria-label="Project" value=${query.directory ?? paths.directory} onChange=${(event) => setQuery({ directory: event.target.value })}>
        ${[...new Set([paths.directory, ...projects.map((each) => each.worktree).filter((each) => each !== "/")])].map((each) => html`<option key=${each} value=${each}>${shortenPath(each)}</option>`)}</select></label>`}<//></header>
    <nav aria-label="Settings"><ul class="tabs">${Object.entries(TABS).map(([key, [name]]) => html`<li key=${key}><a href=${`/web/settings?tab=${key}${query.directory ? `&directory=${encodeURIComponent(query.directory)}` : ""}`} aria-current=${key === tab ? "page" : undefined}>${name}</a></li>`)}</ul></nav>
    <${Tab} key=${tab + query.directory} directory=${query.directory} /></div>`;
}

function Providers({ directory }) {
  const found = useLoaded(() => get("/provider", { directory }), [directory]);
  return html`<${Loaded} of=${found}>${(list) => {
    const connected = list.all.filter((each) => list.connected.includes(each.id));
    return html`${connected.length ? connected.map((provider) => html`<section class="card" key=${provider.id}><h2>${provider.name}</h2>
        <p class="about">The key comes from ${SOURCES[provider.source] ?? provider.source}${provider.env?.length && provider.source === "env" ? ` (${provider.env.join(", ")})` : ""}. ${list.default[provider.id] ? `The default model is ${list.default[provider.id]}.` : ""}</p>
        <div class="table" tabindex="0" role="group" aria-label=${`Models of ${provider.name}`}><table class="plain"><thead><tr><th>Model</th><th class="right">Context</th><th class="right">$ in, per million</th><th class="right">$ out</th></tr></thead>
        <tbody>${Object.values(provider.models).map((model) => html`<tr key=${model.id}><td>${model.name} <span class="about">${model.id}</span></td><td class="right">${model.limit?.context ? formatTokens(model.limit.context) : "?"}</td><td class="right">${model.priced === false ? "?" : model.cost?.input}</td><td class="right">${model.priced === false ? "?" : model.cost?.output}</td></tr>`)}</tbody></table></div></section>`)
      : html`<div class="empty"><h2>No provider can be used yet</h2><p>Run <code>weft auth login</code> in a terminal.</p></div>`}
      <p class="about">${formatCount(list.all.length - connected.length, "other provider")} known; <code>weft auth login</code> adds one.</p>`;
  }}<//>`;
}

function Agents({ directory }) {
  const found = useLoaded(() => Promise.all(["/agent", "/command", "/skill"].map((path) => get(path, { directory }))), [directory]);
  return html`<${Loaded} of=${found}>${([agents, commands, skills]) => html`
    <section class="card"><h2>Agents</h2><ul class="entries">${agents.filter((each) => !each.hidden).map((each) => html`<li key=${each.name}><strong>${each.name}</strong> <span class="tag">${each.mode}</span> ${each.model && html`<span class="about">${each.model.providerID}/${each.model.modelID}</span>`}<p class="about">${each.description ?? ""}</p></li>`)}</ul></section>
    <section class="card"><h2>Commands</h2><ul class="entries">${commands.map((each) => html`<li key=${each.name}><strong>/${each.name}</strong> <span class="about">${each.description ?? ""}</span></li>`)}</ul></section>
    <section class="card"><h2>Skills</h2>${skills.length ? html`<ul class="entries">${skills.map((each) => html`<li key=${each.name}><strong>${each.name}</strong> <span class="about">${each.description}</span></li>`)}</ul>` : html`<p class="about">There are none.</p>`}</section>`}<//>`;
}

function PermissionRules({ directory }) {
  const [problem, setProblem] = useState("");
  const found = useLoaded(() => Promise.all([get("/config", { directory }), get("/weft/grant", { directory }), get("/weft/decision", { directory, limit: 50 })]), [directory]);
  const revoke = (grant) => remove(`/weft/grant/${grant.id}`, { directory }).then(found.reload, (error) => setProblem(error.message));
  return html`${problem && html`<${Notice} kind="error" onClose=${() => setProblem("")}>${problem}<//>`}
    <${Loaded} of=${found}>${([config, grants, decisions]) => html`
      <section class="card"><h2>Permissions for more than one call</h2>${grants.length ? html`<ul class="entries">${grants.map((grant) => html`<li key=${grant.id}><strong>${grant.permission}</strong> <code>${grant.patterns.join(", ")}</code> <span class="tag">${grant.scope}</span>
        <span class="about">${grant.agent ? `for ${grant.agent}, ` : ""}since ${formatTime(grant.created)}${grant.expires ? `, until ${formatTime(grant.expires)}` : ""}</span> <button type="button" class="danger small" onClick=${() => revoke(grant)}>Revoke</button></li>`)}</ul>` : html`<p class="about">Nothing.</p>`}</section>
      <section class="card"><h2>Rules</h2><div class="table" tabindex="0" role="group" aria-label="Rules"><table class="plain"><thead><tr><th>Permission</th><th>For</th><th>Rule</th></tr></thead><tbody>${toRules(config.permission).map(([permission, pattern, action]) => html`<tr key=${permission + pattern}><td>${permission}</td><td><code>${pattern}</code></td><td><span class=${`action ${action}`}>${action}</span></td></tr>`)}</tbody></table></div>
      <p class="about">Agents may have more rules of their own.</p></section>
      <section class="card"><h2>The last decisions</h2>${decisions.length ? html`<div class="table" tabindex="0" role="group" aria-label="Decisions"><table class="plain"><thead><tr><th>When</th><th>Decision</th><th>About</th><th>By</th></tr></thead><tbody>${decisions.map((each) => html`<tr key=${each.seq}><td>${formatTime(each.time)}</td><td>${each.what}${each.reply ? `: ${each.reply}` : ""}${each.scope ? ` (${each.scope})` : ""}</td><td>${each.permission} <code>${(each.patterns ?? []).join(", ")}</code></td><td>${each.by || each.rule || each.agent || ""}</td></tr>`)}</tbody></table></div>
        <p class="about"><code>weft permission log --verify</code> checks that nobody changed this log.</p>` : html`<p class="about">There are no decisions yet.</p>`}</section>`}<//>`;
}

function toRules(rules) {
  if (!rules) return [["everything", "*", "as the agent's own rules say"]];
  if (typeof rules === "string") return [["everything", "*", rules]];
  return Object.entries(rules).flatMap(([permission, value]) => (typeof value === "string" ? [[permission, "*", value]] : Object.entries(value).map(([pattern, action]) => [permission, pattern, action])));
}
