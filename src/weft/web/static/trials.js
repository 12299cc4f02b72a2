// Trials: one prompt tried several times, side by side, and what is kept of it. Any other sessions are compared here, too.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { get, post } from "./api.js";
import { formatAgo, formatCost, formatCount, formatDuration, formatTokens, shortenPath, toTitle } from "./format.js";
import { Loaded, Notice, useLoaded } from "./parts.js";
import { navigate, toComparison, toSession } from "./router.js";
import { listen, state, useTopic } from "./store.js";
import { AdoptDialog, CheckDialog, DiscardDialog, JudgeDialog, TryDialog } from "./trial_dialogs.js";

// A comparison reads the files of every worktree: once in a while is enough while they run.
const AGAIN_MS = 1500;
const MAX_SESSIONS = 500;
const MAX_ASKED = 20;
const OUTCOMES = { finished: "good", running: "running", failed: "failed-badge" };
const CHECKS = { passed: "good", failed: "failed-badge" };

export function TrialsScreen({ query }) {
  const [dialog, setDialog] = useState(null);
  const projects = useLoaded(() => get("/project"), []);
  const close = () => setDialog(null);
  useEffect(() => {
    document.title = state.title = query.session ? "Compare · weft" : "Trials · weft";
  }, [query.session]);
  return html`<div class="trials">
    ${query.session ? html`<${Compared} key=${query.session} ids=${query.session} projects=${projects} setDialog=${setDialog} close=${close} />` : html`
      <header class="page-head"><h1>Trials</h1><span class="grow"></span>
        <button type="button" class="primary" onClick=${() => setDialog(html`<${TryDialog} projects=${projects.value ?? []} onClose=${close} onMade=${(made) => navigate(toComparison(made[0].session))} />`)}>New trials</button></header>
      <p class="about lead">A prompt that is tried several times, each in its own worktree and all within one budget. Compare the results, and adopt the best.</p>
      <${Groups} projects=${projects.value ?? []} />`}
    ${dialog}
  </div>`;
}

// --- all trials ---

function Groups({ projects }) {
  useTopic("sessions", "status");
  const found = useLoaded(() => get("/weft/session", { everywhere: "true", roots: "true", order: "updated", limit: MAX_SESSIONS }), []);
  return html`<${Loaded} of=${found}>${(sessions) => {
    const known = new Map(sessions.map((each) => [each.id, state.sessions.get(each.id) ?? each]));
    for (const each of state.sessions.values()) if (!each.parentID) known.set(each.id, each);
    const groups = new Map();
    for (const each of known.values()) if (each.weft?.trial) groups.set(each.weft.trial.group, [...(groups.get(each.weft.trial.group) ?? []), each]);
    const sorted = [...groups.values()].sort((a, b) => newest(b) - newest(a));
    if (!sorted.length) return html`<div class="empty"><h2>Nothing has been tried yet</h2><p>Start here, from the menu of a session, or with <code>weft try</code> in a terminal.</p></div>`;
    return html`<ul class="list">${sorted.map((group) => html`<${Group} key=${group[0].weft.trial.group} group=${group} projects=${projects} />`)}</ul>`;
  }}<//>`;
}

const newest = (group) => Math.max(...group.map((each) => each.time.updated));

function Group({ group, projects }) {
  const first = group.toSorted((a, b) => a.weft.trial.number - b.weft.trial.number)[0];
  const running = group.filter((each) => state.status.has(each.id)).length;
  const spent = group.map((each) => each.weft?.spent?.own).filter(Boolean);
  const cost = { cost: spent.reduce((sum, each) => sum + Number(each.cost), 0), priced: spent.every((each) => each.priced !== false) };
  return html`<li class="row trial-group"><div class="row-line">
    <a class="row-title" href=${toComparison(first.id)}>${withoutNumber(toTitle(first))}</a>
    <span class="tag">${formatCount(group.length, "trial")}</span>${running ? html`<span class="badge running">${running === group.length ? "" : `${running} `}running</span>` : null}
    <span class="grow"></span><span class="row-cost about">${spent.length ? formatCost(cost) : ""}</span>
    <span class="row-project about">${projects.find((each) => each.id === first.projectID)?.name || shortenPath(projects.find((each) => each.id === first.projectID)?.worktree ?? "")}</span>
    <span class="row-time about">${formatAgo(newest(group))}</span></div></li>`;
}

const withoutNumber = (title) => title.replace(/ \(trial \d+ of \d+\)$/, "");

// --- one comparison ---

function Compared({ ids, projects, setDialog, close }) {
  const place = useLoaded(() => get(`/session/${ids.split(",")[0]}`), [ids]);
  const directory = projects.value?.find((each) => each.id === place.value?.projectID && each.worktree !== "/")?.worktree;
  const ready = Boolean(place.value && projects.value);
  const found = useLoaded(() => (ready ? get("/weft/compare", { session: ids, directory }) : new Promise(() => {})), [ids, ready, directory]);
  const [judgement, setJudgement] = useState(null);
  const [adoption, setAdoption] = useState(null);
  const [problem, setProblem] = useState("");
  useReloadOfChanges(found);
  const trial = place.value?.weft?.trial;
  const context = { ids, directory, trial, setDialog, close };
  const undo = () => post("/weft/adopt/undo", undefined, { directory }).then(() => (setAdoption(null), found.reload()), (error) => setProblem(error.message));
  return html`<header class="page-head"><div><a class="about" href="/web/trials">All trials</a><h1>${trial ? withoutNumber(toTitle(place.value)) : "Compared"}</h1></div><span class="grow"></span>
      ${found.value && html`<${Actions} ...${context} sessions=${found.value.sessions} onJudged=${setJudgement} onChanged=${found.reload} />`}</header>
    ${problem && html`<${Notice} kind="error" onClose=${() => setProblem("")}>${problem}<//>`}
    ${adoption && html`<${Adopted} adoption=${adoption} onUndo=${undo} />`}
    <${Loaded} of=${place.error ? place : found}>${(comparison) => html`
      <${Table} rows=${comparison.sessions} onAdopt=${(row) => setDialog(html`<${AdoptDialog} rows=${comparison.sessions} chosen=${row.session} directory=${directory} isTrial=${Boolean(trial)} onClose=${close} onDone=${(made) => (close(), setAdoption(made), found.reload())} />`)} />
      <p class="about">Together ${formatCost(comparison.spent)}${trial?.check ? html`; the check is <code>${trial.check}</code>` : ""}.</p>
      ${judgement && html`<${Judgement} judgement=${judgement} rows=${comparison.sessions} />`}
      ${comparison.sessions.map((row, at) => html`<${Session} key=${row.session} row=${row} number=${at + 1} />`)}`}<//>`;
}

/** Compare again when one of the sessions has changed, but not at each of its steps. */
function useReloadOfChanges(found) {
  const compared = found.value?.sessions.map((each) => each.session).join() ?? "";
  useEffect(() => {
    let timer = 0;
    const again = () => (timer ||= setTimeout(() => ((timer = 0), found.reload()), AGAIN_MS));
    const stops = compared.split(",").flatMap((id) => [listen(`status:${id}`, again), listen(`session:${id}`, again)]);
    return () => (clearTimeout(timer), stops.forEach((stop) => stop()));
  }, [compared]);
  // No event reports a session that ended while the comparison was being made.
  const asked = useRef(0);
  useEffect(() => {
    const isOpen = found.value?.sessions.some((each) => each.outcome === "running" || (each.outcome === "empty" && asked.current++ < MAX_ASKED));
    const timer = isOpen ? setTimeout(found.reload, 2 * AGAIN_MS) : 0;
    return () => clearTimeout(timer);
  }, [found.value]);
}

function Actions({ ids, directory, trial, sessions, setDialog, close, onJudged, onChanged }) {
  const all = sessions.map((each) => each.session);
  const shared = { sessions: all, directory, onClose: close };
  return html`<div class="buttons">
    ${trial && html`<button type="button" onClick=${() => setDialog(html`<${CheckDialog} ...${shared} check=${trial.check} onDone=${() => (close(), onChanged())} />`)}>Run a check …</button>`}
    ${all.length > 1 && html`<button type="button" onClick=${() => setDialog(html`<${JudgeDialog} ...${shared} onDone=${(made) => (close(), onJudged(made))} />`)}>Ask a judge …</button>`}
    ${trial && html`<button type="button" class="danger" onClick=${() => setDialog(html`<${DiscardDialog} session=${ids.split(",")[0]} directory=${directory} rows=${sessions} onClose=${close} onDone=${() => (close(), onChanged())} />`)}>Discard …</button>`}
  </div>`;
}

function Table({ rows, onAdopt }) {
  useTopic("requests");
  return html`<div class="card table" tabindex="0" role="group" aria-label="Comparison"><table class="plain comparison">
    <thead><tr><th>Session</th><th>Outcome</th><th>Check</th><th class="right">Files</th><th class="right">Steps</th><th class="right">Tokens</th><th class="right">Cost</th><th class="right">Time</th><th>Differs first</th><th><span class="unseen">Adopt</span></th></tr></thead>
    <tbody>${rows.map((row, at) => html`<tr key=${row.session}>
      <th scope="row"><a href=${toSession(row.session)} title=${toTitle(row)}>${at + 1} ${row.model || "not begun"}</a>${row.agent ? html` <span class="about">${row.agent}</span>` : ""}</th>
      <td><${Outcome} row=${row} /></td><td><${Check} check=${row.check} /></td>
      <td class="right">${row.files} <span class="added">+${row.additions}</span> <span class="removed">−${row.deletions}</span></td>
      <td class="right">${row.spent.steps ?? 0}</td><td class="right">${formatTokens(sumTokens(row.spent))}</td><td class="right">${formatCost(row.spent)}</td><td class="right">${row.ms ? formatDuration(row.ms) : "–"}</td>
      <td>${row.divergence ? html`<a href=${`#differs-${at + 1}`} onClick=${(event) => (event.preventDefault(), document.getElementById(`differs-${at + 1}`).scrollIntoView({ block: "center" }))}>step ${row.divergence.step}: ${row.divergence.what}</a>` : at ? "nowhere" : "–"}</td>
      <td class="right">${row.changed.length && row.outcome !== "running" ? html`<button type="button" class="primary small" aria-label=${`Adopt ${at + 1} …`} onClick=${() => onAdopt(row)}>Adopt …</button>` : null}</td></tr>`)}</tbody></table></div>`;
}

const sumTokens = (spent) => spent.input + spent.output + spent.reasoning + spent.cacheRead + spent.cacheWrite;

function Outcome({ row }) {
  const waits = [...state.permissions.values(), ...state.questions.values()].some((each) => each.sessionID === row.session);
  if (waits) return html`<a class="badge waiting" href=${toSession(row.session)}>waiting for you</a>`;
  return html`<span class=${`badge ${OUTCOMES[row.outcome] ?? "waiting"}`} title=${row.detail}>${row.outcome}</span>`;
}

function Check({ check }) {
  if (!check) return html`<span class="about">–</span>`;
  const code = check.outcome === "failed" && check.code !== null && check.code !== undefined ? ` (${check.code})` : "";
  return html`<span class=${`badge ${CHECKS[check.outcome] ?? "waiting"}`} title=${check.command}>${check.outcome}${code}</span> <span class="about">${formatDuration(check.ms)}</span>`;
}

function Judgement({ judgement, rows }) {
  const numbers = new Map(rows.map((row, at) => [row.session, at + 1]));
  return html`<section class="card"><h2>What the judge says</h2><p class="about">${judgement.model} ranked them for ${formatCost(judgement.spent)}.</p>
    <ol class="ranking">${judgement.rankings.map((each) => html`<li key=${each.session}><strong>Session ${numbers.get(each.session)}</strong> ${each.reasons}</li>`)}</ol></section>`;
}

/** What one session did: its files, where it went another way than the first, and what its check printed. */
function Session({ row, number }) {
  return html`<section class="card" aria-labelledby=${`session-${number}`}><h2 id=${`session-${number}`}>${number} ${row.model}</h2>
    <p class="about"><a href=${toSession(row.session)}>${toTitle(row)}</a>${row.worktree ? html` · worktree <code>${row.worktree}</code>` : ""}${row.detail ? ` · ${row.detail}` : ""}</p>
    ${row.changed.length ? html`<ul class="files">${row.changed.map((path) => html`<li key=${path}><code>${path}</code></li>`)}<li><a href=${`${toSession(row.session)}?panel=changes`}>See the changes</a></li></ul>` : html`<p class="about">It changed no file.</p>`}
    ${row.divergence && html`<${Divergence} id=${`differs-${number}`} divergence=${row.divergence} names=${["The first session", "This session"]} />`}
    ${row.check && html`<h3>The check: <code>${row.check.command}</code></h3><pre class="output">${row.check.output || "It printed nothing."}</pre>
      ${row.check.dirtied.length ? html`<p class="about">It changed ${formatCount(row.check.dirtied.length, "file")}, which were put back.</p>` : null}`}
  </section>`;
}

const DIFFERENCES = { text: "what the model said", call: "the calls that it made", result: "the result of a call", files: "the files after the step", end: "one of them ended before" };

/** Where two sessions first differ, with both sides. */
export function Divergence({ divergence, names, id }) {
  return html`<h3 id=${id}>The first difference is at step ${divergence.step}: ${DIFFERENCES[divergence.what]}</h3>
    <div class="sides">${[divergence.one, divergence.other].map((side, at) => html`<div key=${at}><p class="label">${names[at]}</p><pre class="output">${side || "nothing"}</pre></div>`)}</div>`;
}

function Adopted({ adoption, onUndo }) {
  return html`<${Notice}>${formatCount(adoption.paths.length, "file")} adopted${adoption.commit ? ` and committed as ${adoption.commit.slice(0, 10)}` : ", not committed"}: ${adoption.paths.map((each) => each.path).join(", ")}.
    ${adoption.leftOut.length ? ` Left out: ${adoption.leftOut.join(", ")}.` : ""}${adoption.discarded.length ? ` ${formatCount(adoption.discarded.length, "worktree")} discarded.` : ""} <button type="button" class="small" onClick=${onUndo}>Undo the adoption</button><//>`;
}
