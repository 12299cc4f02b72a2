// Look back at a session: find the call that broke a check, replay it, and see who wrote the lines of a file.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { get, post } from "./api.js";
import { formatCost, formatCount, formatDuration, formatTime, shortenPath } from "./format.js";
import { Dialog, Loaded, useLoaded } from "./parts.js";
import { PlainDiff } from "./requests.js";
import { toSession } from "./router.js";
import { state } from "./store.js";
import { ModelOptions, toModelRef, useTask } from "./trial_dialogs.js";
import { Divergence } from "./trials.js";

const MAX_LINES = 5000;

// --- bisect ---

export function BisectDialog({ session, onClose }) {
  const task = useTask();
  const [report, setReport] = useState(null);
  async function submit(event) {
    event.preventDefault();
    const data = new FormData(event.target);
    setReport(null);
    setReport((await task.run(post(`/weft/session/${session.id}/bisect`, { check: data.get("check") }, { directory: session.directory }))) ?? null);
  }
  return html`<${Dialog} wide title="Find the call that broke a check" onClose=${onClose}><form onSubmit=${submit}>
    <label for="bisect-check">Check <span class="about">(a command that fails now, and passed before)</span></label><input id="bisect-check" name="check" required autocomplete="off" placeholder="make test" />
    <p class="about">The files after some of the calls are restored into a scratch worktree, and the check runs there. Your own files are not touched.</p>
    ${task.problem && html`<p class="failed" role="alert">${task.problem}</p>`}
    <div class="buttons"><button class="primary" disabled=${task.busy}>${task.busy ? "Looking for it …" : "Find it"}</button></div></form>
    ${report && html`<${BisectReport} report=${report} session=${session.id} />`}<//>`;
}

const VERDICTS = { good: "The check passes on the last files.", bad: "The check fails already before the first step.", flaky: "The check is flaky: it gave two results for the same files." };

function BisectReport({ report, session }) {
  const { culprit } = report;
  return html`<section role="status">
    ${culprit ? html`<h3>Step ${culprit.step} broke it: ${culprit.tool} ${culprit.title}</h3>
      <p><a href=${`${toSession(session)}?message=${culprit.message}`}>Show it in the conversation</a> <span class="about">${culprit.model}</span></p>
      <p class="label">The prompt</p><p>${culprit.prompt}</p>
      <p class="label">What it changed</p><${PlainDiff} text=${culprit.diff} />` : html`<h3>${VERDICTS[report.verdict]}</h3>`}
    ${report.output && html`<p class="label">What the check printed</p><pre class="output">${report.output}</pre>`}
    <p class="about">${formatCount(report.runs.length, "run")} for ${formatCount(report.changes, "change")} in ${formatCount(report.steps, "step")}: ${report.runs.map((run) => `step ${run.step} ${run.outcome}`).join(", ")}.</p>
    <${Notes} notes=${report.notes} /></section>`;
}

const Notes = ({ notes }) => (notes.length ? html`<ul class="about">${notes.map((note, at) => html`<li key=${at}>${note}</li>`)}</ul>` : null);

// --- replay ---

export function ReplayDialog({ session, onClose }) {
  const task = useTask();
  const [report, setReport] = useState(null);
  const [model, setModel] = useState("");
  async function submit(event) {
    event.preventDefault();
    const data = new FormData(event.target);
    setReport(null);
    const input = { tools: data.get("tools") ?? "real", ...(model ? { model: toModelRef(model) } : {}) };
    setReport((await task.run(post(`/weft/session/${session.id}/replay`, input, { directory: session.directory }))) ?? null);
  }
  return html`<${Dialog} wide title="Replay this session" onClose=${onClose}><form onSubmit=${submit}>
    <label for="replay-model">Who answers</label><select id="replay-model" value=${model} onChange=${(event) => setModel(event.target.value)}><option value="">the recorded answers, which cost nothing</option><${ModelOptions} directory=${session.directory} /></select>
    <label for="replay-tools">Tools</label><select id="replay-tools" name="tools"><option value="real">run again</option><option value="recorded">give their recorded results</option></select>
    <p class="about">It runs in a scratch worktree with the files as they were. Your own files are not touched.</p>
    ${task.problem && html`<p class="failed" role="alert">${task.problem}</p>`}
    <div class="buttons"><button class="primary" disabled=${task.busy}>${task.busy ? "Replaying …" : "Replay"}</button></div></form>
    ${report && html`<section role="status">
      ${report.divergence ? html`<p>${formatCount(report.steps, "step")} replayed of ${report.recordedSteps} recorded.</p><${Divergence} divergence=${report.divergence} names=${["As recorded", "In the replay"]} />`
        : html`<h3>The same: all ${formatCount(report.steps, "step")} as recorded</h3>`}
      <p class="about">It cost ${formatCost(report.comparison.sessions.at(-1)?.spent ?? {})} and took ${formatDuration(report.comparison.sessions.at(-1)?.ms ?? 0)}.${report.session ? html` <a href=${toSession(report.session)}>Open the replay</a>` : ""}</p>
      <${Notes} notes=${report.notes} /></section>`}<//>`;
}

// --- blame ---

export function BlameScreen({ query }) {
  const { path = "", directory } = query;
  useEffect(() => {
    document.title = state.title = `${path} · weft`;
  }, [path]);
  const found = useLoaded(() => Promise.all([get("/weft/blame", { path, directory }), get("/weft/file-log", { path, directory })]), [path, directory]);
  return html`<div class="blame-screen"><header class="page-head"><div><p class="about">Who wrote it</p><h1><code>${path}</code></h1><p class="about" title=${directory}>${shortenPath(directory)}</p></div></header>
    <${Loaded} of=${found}>${([blame, log]) => html`<${Lines} blame=${blame} /><${Log} log=${log} />`}<//></div>`;
}

/** The lines of a file; an author is named once for all lines that follow each other. */
function Lines({ blame }) {
  const lines = blame.lines.slice(0, MAX_LINES);
  return html`<div class="card table" tabindex="0" role="group" aria-label="Lines"><table class="blame"><thead class="unseen"><tr><th>Author</th><th>Line</th><th>Text</th></tr></thead><tbody>${lines.map((line, at) => {
    const begins = !at || lines[at - 1].author !== line.author;
    return html`<tr key=${line.number} class=${begins ? "begins" : ""}><td class="author">${begins ? html`<${Author} author=${blame.authors[line.author]} />` : ""}</td><td class="num">${line.number}</td><td class="line">${line.text}</td></tr>`;
  })}</tbody></table></div>
    ${blame.lines.length > lines.length && html`<p class="about">and ${formatCount(blame.lines.length - lines.length, "more line", "more lines")}</p>`}
    ${blame.note && html`<p class="about">${blame.note}</p>`}`;
}

function Author({ author }) {
  if (author.kind !== "session") return html`<span class="about">${author.kind === "person" ? "a person" : "unknown"}</span>`;
  const about = `${author.modelID}: ${author.prompt}`;
  return html`<div><a href=${`${toSession(author.sessionID)}?message=${author.stepID}`} title=${about}>${author.title || author.sessionID}</a> <span class="about">step ${author.step} · ${formatCost({ cost: author.cost, priced: author.priced })}</span></div>`;
}

function Log({ log }) {
  return html`<section class="card"><h2>Changes by sessions</h2>${log.steps.length ? html`<div class="table" tabindex="0" role="group" aria-label="Changes by sessions"><table class="plain"><thead><tr><th>When</th><th>Session</th><th class="right">Step</th><th>Tool</th><th class="right">Lines</th><th>Model</th><th class="right">Cost</th></tr></thead>
    <tbody>${log.steps.map((each, at) => html`<tr key=${at}><td>${each.author.time ? formatTime(each.author.time) : ""}</td><td><a href=${`${toSession(each.author.sessionID)}?message=${each.author.stepID}`} title=${each.author.prompt}>${each.author.title || each.author.sessionID}</a>${each.undone ? html` <span class="tag">undone</span>` : ""}</td><td class="right">${each.author.step}</td><td>${each.author.tool}</td>
      <td class="right">${each.additions === null || each.additions === undefined ? "?" : html`<span class="added">+${each.additions}</span> <span class="removed">−${each.deletions}</span>`}</td><td>${each.author.modelID}</td><td class="right">${formatCost({ cost: each.author.cost, priced: each.author.priced })}</td></tr>`)}</tbody></table></div>` : html`<p class="about">No session has changed it.</p>`}
    ${log.note && html`<p class="about">${log.note}</p>`}</section>`;
}
