// Pictures: where money, tokens and time went. All of them are drawn from figures of the server.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { get, post } from "./api.js";
import { formatCost, formatCount, formatDuration, formatNumber, formatTime, formatTokens, shortenPath, toTitle, totalTokens } from "./format.js";
import { Loaded, useLoaded } from "./parts.js";
import { setQuery, toSession } from "./router.js";
import { state } from "./store.js";

const SPANS = [["7", "7 days"], ["30", "30 days"], ["90", "90 days"], ["all", "all time"]];
const WIDTH = 1060, HEIGHT = 190;
const MAX_ROWS = 10;
const DAY = 24 * 60 * 60 * 1000;
const HEAT_SESSIONS = 30;

export function PicturesScreen({ query }) {
  useEffect(() => {
    document.title = state.title = "Pictures · weft";
  }, []);
  return html`<div class="pictures">
    <header class="page-head"><h1>${query.session ? "Where time and context went" : "Pictures"}</h1><span class="grow"></span>
      ${query.session ? html`<a href="/web/pictures">All sessions</a>` : html`<div class="choice" role="group" aria-label="Time">
        ${SPANS.map(([value, name]) => html`<button key=${name} type="button" aria-pressed=${(query.days ?? "30") === value} onClick=${() => setQuery({ days: value })}>${name}</button>`)}</div>`}
    </header>
    ${query.session ? html`<${SessionPictures} id=${query.session} />` : html`<${AllPictures} days=${query.days === "all" ? "" : (query.days ?? "30")} />`}
  </div>`;
}

function AllPictures({ days }) {
  const figures = useLoaded(() => get("/weft/figures", { days }), [days]);
  const projects = useLoaded(() => get("/project"), []);
  return html`<${Loaded} of=${figures}>${(found) => {
    if (!found.messages) return html`<div class="empty"><h2>Nothing was spent in this time</h2><p>Figures appear here with the first answer.</p></div>`;
    const names = new Map((projects.value ?? []).map((each) => [each.id, each.name || shortenPath(each.worktree)]));
    const { spent } = found;
    const byDay = fillDays(found.byDay, Number(days));
    const read = Number(spent.cacheRead), sent = Number(spent.input) + read + Number(spent.cacheWrite);
    return html`
      <dl class="tiles">
        <${Tile} name="Cost" value=${formatCost(spent)} about=${`in ${formatCount(found.sessions, "session")}`} />
        <${Tile} name="Tokens" value=${formatTokens(sent + Number(spent.output) + Number(spent.reasoning))} about=${`${formatTokens(sent)} in, ${formatTokens(Number(spent.output) + Number(spent.reasoning))} out`} />
        <${Tile} name="Read from the cache" value=${sent ? `${Math.round((100 * read) / sent)} %` : "–"} about="of all tokens sent" />
        <${Tile} name="Messages" value=${formatNumber(found.messages)} about=${`${formatTokens(found.medianTokens)} tokens in a typical session`} />
      </dl>
      <div class="cards">
        <${Card} title="Cost by day" class="span"><${Columns} rows=${byDay.map((each) => [each.name, Number(each.spent.cost), `${each.name}: ${formatCost(each.spent)}, ${formatCount(each.messages, "message")}`])} format=${(value) => `$${value.toFixed(2)}`} /><//>
        <${Card} title="Tokens by day" class="span"><${Columns} rows=${byDay.map((each) => [each.name, sumTokens(each.spent), `${each.name}: ${formatTokens(sumTokens(each.spent))} tokens`])} format=${formatTokens} /><//>
        <${Card} title="Models"><${Bars} rows=${found.models.map((each) => [each.name, Number(each.spent.cost) || sumTokens(each.spent) / 1e9, `${formatCost(each.spent)} · ${formatTokens(sumTokens(each.spent))}`])} /><//>
        <${Card} title="Projects"><${Bars} rows=${found.projects.map((each) => [names.get(each.name) ?? each.name, Number(each.spent.cost) || sumTokens(each.spent) / 1e9, `${formatCost(each.spent)} · ${formatTokens(sumTokens(each.spent))}`])} /><//>
        <${Card} title="Tools"><${Tools} tools=${found.tools} days=${Number(days)} /><//>
        <${Card} title="Cache hit rate by day" class="span"><${Columns} rows=${byDay.map((each) => [each.name, cacheRate(each.spent), `${each.name}: ${Math.round(cacheRate(each.spent))} %`])} format=${(value) => `${Math.round(value)} %`} top=${100} /><//>
        <${Card} title="Files that change most" class="span"><${HeatList} days=${Number(days)} /><//>
      </div>`;
  }}<//>`;
}

/** Add the days on which nothing happened, so that time runs evenly. */
function fillDays(rows, days) {
  const known = new Map(rows.map((each) => [each.name, each]));
  const last = new Date(), first = new Date(rows[0]?.name ?? last);
  const count = days || Math.min(366, Math.round((last - first) / DAY) + 1);
  return Array.from({ length: count }, (_, at) => {
    const day = new Date(last.getFullYear(), last.getMonth(), last.getDate() - (count - 1 - at));
    const name = `${day.getFullYear()}-${String(day.getMonth() + 1).padStart(2, "0")}-${String(day.getDate()).padStart(2, "0")}`;
    return known.get(name) ?? { name, messages: 0, spent: { cost: 0, input: 0, output: 0, reasoning: 0, cacheRead: 0, cacheWrite: 0 } };
  });
}

const sumTokens = (spent) => Number(spent.input) + Number(spent.output) + Number(spent.reasoning) + Number(spent.cacheRead) + Number(spent.cacheWrite);
const cacheRate = (spent) => (100 * Number(spent.cacheRead)) / (Number(spent.input) + Number(spent.cacheRead) + Number(spent.cacheWrite) || 1);

function Tile({ name, value, about }) {
  return html`<div class="tile"><dt>${name}</dt><dd>${value}</dd><dd class="about">${about}</dd></div>`;
}

function Card({ title, children, class: name = "" }) {
  return html`<section class=${`card ${name}`}><h2>${title}</h2>${children}</section>`;
}

/** Columns over time. Pointing at one shows its value; a screen reader reads all values. */
function Columns({ rows, format, top: fixed }) {
  const top = fixed ?? Math.max(...rows.map(([, value]) => value), 0);
  if (!rows.length) return html`<p class="about">Nothing in this time.</p>`;
  const step = WIDTH / rows.length, bar = Math.max(2, Math.min(46, step * 0.68));
  const label = Math.max(1, Math.ceil(rows.length / 8));
  return html`<svg class="chart" viewBox=${`0 0 ${WIDTH} ${HEIGHT + 26}`} role="img" aria-label=${rows.map(([, , about]) => about).join("; ")}>
    ${[0, 0.5, 1].map((share) => html`<g key=${share}><line class="grid" x1="0" x2=${WIDTH} y1=${HEIGHT - share * (HEIGHT - 18)} y2=${HEIGHT - share * (HEIGHT - 18)} />
      ${share > 0 && top > 0 && html`<text x="0" y=${HEIGHT - share * (HEIGHT - 18) - 4}>${format(top * share)}</text>`}</g>`)}
    ${rows.map(([name, value, about], at) => {
      const height = top ? (value / top) * (HEIGHT - 18) : 0;
      return html`<g key=${name}><rect class="bar" x=${at * step + (step - bar) / 2} width=${bar} y=${HEIGHT - height} height=${Math.max(height, value ? 1.5 : 0)} rx="2"><title>${about}</title></rect>
        ${at % label === 0 && html`<text class="tick" x=${at * step + step / 2} y=${HEIGHT + 17}>${name.slice(5)}</text>`}</g>`;
    })}
  </svg>`;
}

function Bars({ rows }) {
  if (!rows.length) return html`<p class="about">Nothing in this time.</p>`;
  const top = Math.max(...rows.map(([, value]) => value), 1e-12);
  return html`<ul class="bars">${rows.slice(0, MAX_ROWS).map(([name, value, about]) => html`<li key=${name}><span class="bar-name" title=${name}>${name}</span><span class="about">${about}</span><meter min="0" max=${top} value=${value} aria-label=${name}></meter></li>`)}</ul>
    ${rows.length > MAX_ROWS && html`<p class="about">and ${rows.length - MAX_ROWS} more</p>`}`;
}

const since = (days) => (days ? Date.now() - days * DAY : 0);

/** Calls of each tool. The cost of the steps that made them is counted on request only, because that reads every step. */
function Tools({ tools, days }) {
  const [shares, setShares] = useState({});
  const [problem, setProblem] = useState("");
  useEffect(() => setShares({}), [days]);
  const load = () => post("/weft/sql", { sql: TOOL_SHARES.replace("?", String(since(days))), everywhere: true }).then(
    ({ rows }) => setShares(Object.fromEntries(rows.map(([tool, cost, tokens]) => [tool, `${formatCost({ cost })} · ${formatTokens(Math.round(tokens))}, `]))),
    (error) => setProblem(error.message),
  );
  return html`<${Bars} rows=${tools.map((each) => [each.name, each.calls, `${shares[each.name] ?? ""}${formatCount(each.calls, "call")}${each.failed ? `, ${each.failed} failed` : ""}`])} />
    ${problem ? html`<p class="failed" role="alert">${problem}</p>` : tools.length && !Object.keys(shares).length ? html`<button type="button" class="quiet small" onClick=${load}>Count the cost and tokens of their steps</button>` : null}`;
}

// The cost of a step is divided among its calls.
const TOOL_SHARES = `SELECT calls.tool, sum(1.0 * steps.cost / made.calls),
    sum(1.0 * (input_tokens + output_tokens + reasoning_tokens + cache_read_tokens + cache_write_tokens) / made.calls)
  FROM calls JOIN steps ON steps.id = calls.step_id JOIN (SELECT step_id, count(*) AS calls FROM calls GROUP BY step_id) AS made ON made.step_id = steps.id
  WHERE steps.created >= ? AND NOT calls.copied GROUP BY calls.tool`;

/** Files by how often sessions changed them. */
function HeatList({ days }) {
  const found = useLoaded(async () => {
    const changed = (each) => each.summary?.files && each.time.updated >= since(days);
    const sessions = (await get("/weft/session", { everywhere: "true", order: "updated", limit: 300 })).filter(changed).slice(0, HEAT_SESSIONS);
    const all = await Promise.all(sessions.map((each) => get(`/weft/session/${each.id}/diff/view`, { lines: "false" }).catch(() => [])));
    const files = new Map();
    for (const file of all.flat()) {
      const known = files.get(file.file) ?? { times: 0, additions: 0, deletions: 0 };
      files.set(file.file, { times: known.times + 1, additions: known.additions + file.additions, deletions: known.deletions + file.deletions });
    }
    return [...files].sort(([, a], [, b]) => b.times - a.times || b.additions + b.deletions - a.additions - a.deletions).slice(0, 20);
  }, [days]);
  return html`<${Loaded} of=${found}>${(files) => (files.length ? html`<table class="plain heat"><thead><tr><th>File</th><th class="right">Sessions</th><th class="right">Lines</th></tr></thead>
    <tbody>${files.map(([file, each]) => html`<tr key=${file}><td><code>${file}</code></td><td class="right">${each.times}</td><td class="right"><span class="added">+${each.additions}</span> <span class="removed">−${each.deletions}</span></td></tr>`)}</tbody></table>`
    : html`<p class="about">No session has changed a file in this time.</p>`)}<//>`;
}

// --- one session ---

function SessionPictures({ id }) {
  const found = useLoaded(async () => {
    const session = await get(`/session/${id}`);
    let messages = [], before;
    do {
      const page = await get(`/weft/session/${id}/view`, { limit: 200, before });
      messages = [...page.messages, ...messages];
      before = page.before;
    } while (before && messages.length < 2000);
    return { session, messages, waits: await listWaits(id) };
  }, [id]);
  return html`<${Loaded} of=${found}>${({ session, messages, waits }) => html`<p><a href=${toSession(id)}>${toTitle(session)}</a></p>
    <div class="cards"><${Card} title="Context in use, answer by answer" class="span"><${ContextFill} messages=${messages} /><//>
    <${Card} title="The last runs" class="span"><${Timeline} messages=${messages} waits=${waits} /><//></div>`}<//>`;
}

/** Return when the session waited for a person, from the log of decisions. */
async function listWaits(id) {
  const { rows } = await post("/weft/sql", { sql: `SELECT request_id, min(time), max(time) FROM permissions WHERE session_id = '${id.replaceAll("'", "''")}' AND request_id <> '' GROUP BY request_id HAVING count(*) > 1` });
  return rows.map(([, start, end]) => ({ kind: "wait", name: "you", start, end }));
}

function ContextFill({ messages }) {
  const answers = messages.filter((each) => each.info.role === "assistant" && totalTokens(each.info.tokens));
  if (!answers.length) return html`<p class="about">There is no answer yet.</p>`;
  const top = Math.max(...answers.map((each) => totalTokens(each.info.tokens)));
  const x = (at) => (answers.length > 1 ? (at / (answers.length - 1)) * (WIDTH - 20) + 10 : WIDTH / 2);
  const y = (value) => HEIGHT - (value / top) * (HEIGHT - 22);
  const points = answers.map((each, at) => `${x(at).toFixed(1)},${y(totalTokens(each.info.tokens)).toFixed(1)}`).join(" ");
  const cuts = answers.map((each, at) => (each.info.summary === true ? at : -1)).filter((at) => at >= 0);
  return html`<svg class="chart" viewBox=${`0 0 ${WIDTH} ${HEIGHT + 10}`} role="img" aria-label=${`The context grew to ${formatTokens(top)} tokens over ${formatCount(answers.length, "answer")}${cuts.length ? `, with ${formatCount(cuts.length, "compaction")}` : ""}`}>
    <line class="grid" x1="0" x2=${WIDTH} y1=${HEIGHT} y2=${HEIGHT} /><text x="0" y="12">${formatTokens(top)} tokens</text>
    <polygon class="area" points=${`${x(0)},${HEIGHT} ${points} ${x(answers.length - 1)},${HEIGHT}`} /><polyline class="curve" points=${points} />
    ${cuts.map((at) => html`<g key=${at}><line class="cut" x1=${x(at)} x2=${x(at)} y1="0" y2=${HEIGHT} /><text x=${x(at) + 4} y="26">compacted</text></g>`)}
  </svg>`;
}

/** One row for each thing that took time, from the prompt on. */
function Timeline({ messages, waits }) {
  const [shown, setShown] = useState(3);
  const runs = [];
  for (const message of messages) {
    if (message.info.role === "user") runs.push({ prompt: message, rows: [] });
    else if (runs.length) runs.at(-1).rows.push(...toRows(message));
  }
  for (const run of runs) if (run.rows.length) addWaits(run, waits);
  const last = runs.filter((run) => run.rows.length).reverse();
  if (!last.length) return html`<p class="about">Nothing has run yet.</p>`;
  return html`${last.slice(0, shown).map((run) => html`<${RunTimeline} key=${run.prompt.info.id} run=${run} />`)}
    ${last.length > shown && html`<button type="button" class="earlier" onClick=${() => setShown(shown + 5)}>Show earlier runs</button>`}`;
}

/** Put the waits of a run in their place. While a call waits for an answer it does not work. */
function addWaits(run, waits) {
  const start = run.prompt.info.time.created, end = Math.max(...run.rows.map((row) => row.end));
  const own = waits.filter((wait) => wait.start >= start && wait.start <= end);
  for (const row of run.rows) if (row.kind !== "wait") row.waited = own.reduce((sum, wait) => sum + Math.max(0, Math.min(row.end, wait.end) - Math.max(row.start, wait.start)), 0);
  run.rows = [...run.rows, ...own].sort((a, b) => a.start - b.start);
}

function toRows({ info, parts }) {
  const end = info.time.completed ?? Date.now();
  const calls = parts.filter((part) => part.type === "tool" && part.started);
  const first = Math.min(end, ...calls.map((part) => part.started));
  return [{ kind: "model", name: info.modelID, start: info.time.created, end: first },
    ...calls.map((part) => ({ kind: part.tool === "question" ? "wait" : part.child ? "child" : part.status === "error" ? "error" : "tool", name: part.tool, about: part.title, start: part.started, end: part.ended ?? Date.now() }))];
}

function RunTimeline({ run }) {
  const start = run.prompt.info.time.created, end = Math.max(...run.rows.map((row) => row.end));
  const span = Math.max(end - start, 1);
  const rows = run.rows.slice(0, 60);
  const total = (kind) => run.rows.filter((row) => row.kind === kind).reduce((sum, row) => sum + row.end - row.start - (row.waited ?? 0), 0);
  return html`<section class="run"><h3>${formatTime(start)} · ${formatDuration(span)}</h3>
    <p class="about">Model ${formatDuration(total("model"))} · tools ${formatDuration(total("tool") + total("error"))} · children ${formatDuration(total("child"))} · waiting for you ${formatDuration(total("wait"))}</p>
    <ol class="timeline">${rows.map((row, at) => html`<li key=${at}><span class="timeline-name">${row.name}</span>
      <svg viewBox="0 0 600 14" preserveAspectRatio="none" aria-hidden="true"><rect class=${`span ${row.kind}`} x=${((row.start - start) / span) * 600} width=${Math.max(((row.end - row.start) / span) * 600, 2)} y="2" height="10" rx="2" /></svg>
      <span class="about right">${formatDuration(row.end - row.start)}</span></li>`)}</ol>
    ${run.rows.length > rows.length && html`<p class="about">and ${run.rows.length - rows.length} more</p>`}</section>`;
}
