// All sessions of all projects: find one, see what runs, and put them in order.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { get, patch, post, remove } from "./api.js";
import { formatAgo, formatCost, formatCount, formatTime, shortenPath, toTitle } from "./format.js";
import { bindKeys } from "./keys.js";
import { Dialog, Loaded, Menu, Notice, saveFile, useLoaded } from "./parts.js";
import { navigate, setQuery, toSession } from "./router.js";
import { RenameDialog, TagDialog } from "./session_dialogs.js";
import { findSessions, listNames, looksIntoMessages } from "./session_filter.js";
import { putSession, state, useTopic } from "./store.js";

const PAGE = 60;
const SEARCH_MS = 200;
const STATES = [["", "any status"], ["running", "running"], ["waiting", "waiting for me"], ["pinned", "pinned"]];

export function SessionsScreen({ query }) {
  const [failure, setFailure] = useState("");
  const [dialog, setDialog] = useState(null);
  const projects = useLoaded(() => get("/project"), []);
  useEffect(() => {
    document.title = state.title = "Sessions · weft";
  }, []);
  useListKeys(() => startSession(setDialog, projects.value));
  const context = { query, projects: projects.value ?? [], setDialog, setFailure };
  return html`<div class="sessions">
    <header class="page-head"><h1>Sessions</h1><span class="grow"></span>
      <button type="button" class="primary" onClick=${() => startSession(setDialog, projects.value)}>New session</button></header>
    <${Filters} ...${context} />
    ${failure && html`<${Notice} kind="error" onClose=${() => setFailure("")}>${failure}<//>`}
    ${query.q ? html`<${Hits} ...${context} />` : query.trash ? html`<${Trash} ...${context} />` : html`<${List} ...${context} />`}
    ${dialog}
  </div>`;
}

function Filters({ query, projects }) {
  const timer = useRef(0);
  const [names, setNames] = useState({ agents: [], models: [] });
  const loadNames = () => names.agents.length || listNames().then(setNames, () => {}); // without them, names can still be typed
  const [typed, setTyped] = useState(null);
  function search(event) {
    const { value } = event.target;
    setTyped(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => { setQuery({ q: value.trim() }); setTyped(null); }, SEARCH_MS);
  }
  return html`<search class="filters">
    <label class="unseen" for="search">Search all sessions</label>
    <input id="search" type="search" placeholder="Search all sessions …" value=${typed ?? query.q ?? ""} onInput=${search} />
    <select aria-label="Project" value=${query.project ?? ""} onChange=${(event) => setQuery({ project: event.target.value })}>
      <option value="">all projects</option>${projects.map((each) => html`<option key=${each.id} value=${each.id}>${each.name || shortenPath(each.worktree)}</option>`)}</select>
    <select aria-label="Status" value=${query.status ?? ""} onChange=${(event) => setQuery({ status: event.target.value })}>${STATES.map(([value, name]) => html`<option key=${value} value=${value}>${name}</option>`)}</select>
    ${["agent", "model", "tag"].map((name) => html`<${NameFilter} key=${name} name=${name} value=${query[name] ?? ""} onFocus=${name === "tag" ? undefined : loadNames} />`)}
    <datalist id="known-agents">${names.agents.map((each) => html`<option key=${each} value=${each} />`)}</datalist>
    <datalist id="known-models">${names.models.map((each) => html`<option key=${each} value=${each} />`)}</datalist>
    <datalist id="known-tags">${[...new Set([...state.sessions.values()].flatMap((each) => each.weft?.tags ?? []))].map((each) => html`<option key=${each} value=${each} />`)}</datalist>
    <label class="check"><input type="checkbox" checked=${Boolean(query.archived)} onChange=${(event) => setQuery({ archived: event.target.checked ? "1" : "" })} /> archived</label>
    <label class="check"><input type="checkbox" checked=${Boolean(query.trash)} onChange=${(event) => setQuery({ trash: event.target.checked ? "1" : "" })} /> trash</label>
  </search>`;
}

// The text that is being typed survives when the list is drawn again.
function NameFilter({ name, value, onFocus }) {
  const [typed, setTyped] = useState(null);
  function choose(event) {
    setTyped(null);
    setQuery({ [name]: event.target.value.trim() });
  }
  return html`<input type="text" aria-label=${name[0].toUpperCase() + name.slice(1)} placeholder=${name} size="8" list=${`known-${name}s`}
    value=${typed ?? value} onFocus=${onFocus} onInput=${(event) => setTyped(event.target.value)} onChange=${choose} onKeyDown=${(event) => event.key === "Enter" && choose(event)} />`;
}

function List({ query, projects, setDialog, setFailure }) {
  useTopic("sessions", "status", "requests");
  const [limit, setLimit] = useState(PAGE);
  const archived = query.archived ? "true" : "false";
  const isDeep = looksIntoMessages(query);
  const list = useLoaded(
    () => (isDeep ? findSessions(query) : get("/weft/session", { everywhere: "true", order: "updated", roots: "true", archived, projectID: query.project, tag: query.tag, limit })),
    [archived, query.project, query.tag, query.agent, query.model, limit],
  );
  useTopic("resync");
  if (list.value === undefined) return html`<${Loaded} of=${list}>${() => null}<//>`;
  // Sessions that arrived in events are newer than those of the list.
  const known = new Map(list.value.map((each) => [each.id, state.sessions.get(each.id) ?? each]));
  for (const each of isDeep ? [] : state.sessions.values()) if (!known.has(each.id) && belongs(each, query)) known.set(each.id, each);
  const shown = [...known.values()].filter((each) => belongs(each, query) && hasStatus(each, query.status)).sort(compare);
  if (!shown.length) return html`<${Nothing} query=${query} />`;
  return html`<ul class="list">${shown.map((session) => html`<${Row} key=${session.id} session=${session} projects=${projects} setDialog=${setDialog} setFailure=${setFailure} onGone=${list.reload} />`)}</ul>
    ${!isDeep && list.value.length >= limit && html`<button type="button" class="earlier" onClick=${() => setLimit(limit + PAGE)}>Show more</button>`}`;
}

function belongs(session, query) {
  // A child session is in the list below its parent, but what it did can be looked for.
  if ((session.parentID && !looksIntoMessages(query)) || Boolean(session.time.archived) !== Boolean(query.archived)) return false;
  if (query.project && session.projectID !== query.project) return false;
  return !query.tag || (session.weft?.tags ?? []).includes(query.tag);
}

const waitsFor = (id) => [...state.permissions.values(), ...state.questions.values()].some((each) => each.sessionID === id);

function hasStatus(session, wanted) {
  if (wanted === "running") return state.status.has(session.id);
  if (wanted === "waiting") return waitsFor(session.id);
  return wanted !== "pinned" || Boolean(session.weft?.pinned);
}

const compare = (a, b) => Boolean(b.weft?.pinned) - Boolean(a.weft?.pinned) || b.time.updated - a.time.updated || (a.id < b.id ? -1 : 1);

function Nothing({ query }) {
  const filtered = query.project || query.tag || query.status || query.archived || looksIntoMessages(query);
  return html`<div class="empty">${filtered ? html`<h2>No session matches</h2><p><a href="/">Show all sessions</a></p>` : html`<h2>There are no sessions yet</h2><p>Start one here, or with <code>weft run</code> in a terminal.</p>`}</div>`;
}

function Row({ session, projects, setDialog, setFailure, onGone, depth = 0 }) {
  const [open, setOpen] = useState(false);
  const close = () => setDialog(null);
  const attempt = (promise) => promise.catch((error) => setFailure(error.message));
  const change = (fields) => attempt(patch(`/weft/session/${session.id}`, { change: fields }).then(putSession));
  const items = [
    ["Rename …", () => setDialog(html`<${RenameDialog} session=${session} onClose=${close} />`)],
    ["Tags …", () => setDialog(html`<${TagDialog} session=${session} onClose=${close} />`)],
    [session.weft?.pinned ? "Unpin" : "Pin", () => change({ pinned: !session.weft?.pinned })],
    [session.time.archived ? "Unarchive" : "Archive", () => change({ archived: !session.time.archived })],
    ["Fork", () => attempt(post(`/session/${session.id}/fork`, {}).then((made) => navigate(toSession(made.id))))],
    ["Export", () => attempt(get(`/weft/session/${session.id}/export`).then((value) => saveFile(`${session.slug || session.id}.json`, JSON.stringify(value, null, 2))))],
    ["Move to trash", () => attempt(remove(`/weft/session/${session.id}`).then(() => (state.sessions.delete(session.id), onGone()))), true],
  ];
  const project = projects.find((each) => each.id === session.projectID);
  const spent = session.weft?.spent;
  const cost = spent ? [spent.own, ...Object.values(spent.below ?? {})].reduce((sum, each) => ({ cost: sum.cost + Number(each.cost), priced: sum.priced && each.priced !== false }), { cost: 0, priced: true }) : null;
  return html`<li class="row">
    <div class="row-line">
      <button type="button" class="quiet small twist" aria-expanded=${open} aria-label=${`Sessions below ${toTitle(session)}`} onClick=${() => setOpen(!open)}>${open ? "▾" : "▸"}</button>
      <a class="row-title" href=${toSession(session.id)}>${session.weft?.pinned && html`<span role="img" aria-label="pinned" title="pinned">★ </span>`}${toTitle(session)}</a>
      <${StatusBadge} id=${session.id} />
      ${session.weft?.tags?.map((tag) => html`<a key=${tag} class="tag" href=${`/?tag=${encodeURIComponent(tag)}`}>${tag}</a>`)}
      <span class="grow"></span>
      ${session.summary?.files ? html`<span class="row-changes about"><span class="added">+${session.summary.additions}</span> <span class="removed">−${session.summary.deletions}</span></span>` : null}
      <span class="row-cost about">${cost && (cost.cost || !cost.priced) ? formatCost(cost) : ""}</span>
      <span class="row-project about" title=${session.directory}>${project?.name || shortenPath(findPlace(session, project))}</span>
      <time class="row-time about" datetime=${new Date(session.time.updated).toISOString()} title=${formatTime(session.time.updated)}>${formatAgo(session.time.updated)}</time>
      <${Menu} label=${`What to do with ${toTitle(session)}`} items=${items} />
    </div>
    ${open && html`<${Below} session=${session} projects=${projects} setDialog=${setDialog} setFailure=${setFailure} depth=${depth + 1} />`}
  </li>`;
}

/** The directory of a session. A worktree has a name that tells nothing, so its project stands for it. */
function findPlace({ directory }, project) {
  const top = project?.worktree;
  return !top || top === "/" || directory.startsWith(top) ? directory : top;
}

/** Child sessions and forks. */
function Below({ session, ...more }) {
  useTopic("sessions");
  const found = useLoaded(async () => {
    const children = await get(`/session/${session.id}/children`);
    const all = await get("/weft/session", { everywhere: "true", projectID: session.projectID, order: "updated", limit: 500 });
    const forks = all.filter((each) => each.weft?.forkedFrom?.sessionID === session.id && each.parentID !== session.id);
    return { children, forks };
  }, [session.id]);
  return html`<${Loaded} of=${found}>${({ children, forks }) => (children.length + forks.length
    ? html`<ul class="below">${[...children, ...forks].map((each) => html`<${Row} key=${each.id} session=${state.sessions.get(each.id) ?? each} ...${more} onGone=${found.reload} />`)}</ul>`
    : html`<p class="about below">No child sessions and no forks.</p>`)}<//>`;
}

function StatusBadge({ id }) {
  useTopic(`status:${id}`, "requests");
  if (waitsFor(id)) return html`<span class="badge waiting">waiting for you</span>`;
  const status = state.status.get(id);
  if (!status) return null;
  return html`<span class=${`badge ${status.type === "retry" ? "waiting" : "running"}`}>${status.type === "retry" ? "retrying" : "running"}</span>`;
}

function Hits({ query, projects }) {
  const isDeep = looksIntoMessages(query);
  const hits = useLoaded(
    () => Promise.all([get("/weft/search", { words: query.q, everywhere: "true", limit: 50 }), isDeep ? findSessions(query) : []]),
    [query.q, query.agent, query.model],
  );
  return html`<${Loaded} of=${hits}>${([found, sessions]) => {
    const allowed = new Set(sessions.map((each) => each.id));
    const shown = found.filter((each) => (!query.project || each.projectID === query.project) && (!query.archived || each.archived) && (!isDeep || allowed.has(each.sessionID)));
    if (!shown.length) return html`<div class="empty"><h2>Nothing was found</h2><p>All words must occur in the same message or title, each as a whole word or as the beginning of one.</p></div>`;
    return html`<p class="about" role="status">${formatCount(shown.length, "session")}</p>
      <ul class="list hits">${shown.map((hit) => html`<li key=${hit.sessionID} class="row"><a class="row-title" href=${toSession(hit.sessionID) + (hit.messageID ? `?message=${hit.messageID}` : "")}>${toTitle(hit)}</a>
        <p class="snippet">${mark(hit.snippet, hit.marks)}</p>
        <p class="about">${shortenPath(projects.find((each) => each.id === hit.projectID)?.worktree ?? "")} · ${formatAgo(hit.at || hit.updated)}${hit.archived ? " · archived" : ""}</p></li>`)}</ul>`;
  }}<//>`;
}

function mark(text, marks) {
  const letters = [...text], pieces = [];
  let end = 0;
  for (const [from, to] of marks) {
    pieces.push(letters.slice(end, from).join(""), html`<mark>${letters.slice(from, to).join("")}</mark>`);
    end = to;
  }
  return [...pieces, letters.slice(end).join("")];
}

function Trash({ setFailure }) {
  const trash = useLoaded(() => get("/weft/trash"), []);
  const restore = (bundle) => post(`/weft/session/${bundle.sessions[0].id}/restore`).then(trash.reload, (error) => setFailure(error.message));
  return html`<${Loaded} of=${trash}>${(bundles) => (bundles.length ? html`<ul class="list">${[...bundles].reverse().map((bundle) => html`<li key=${bundle.id} class="row"><div class="row-line">
      <span class="row-title">${toTitle(bundle.sessions[0])}</span>${bundle.sessions.length > 1 && html`<span class="about">with ${formatCount(bundle.sessions.length - 1, "child session")}</span>`}
      <span class="grow"></span><span class="about">removed ${formatAgo(bundle.time)}</span><button type="button" onClick=${() => restore(bundle)}>Restore</button></div></li>`)}</ul>`
    : html`<div class="empty"><h2>The trash is empty</h2></div>`)}<//>`;
}

async function startSession(setDialog, projects) {
  const close = () => setDialog(null);
  setDialog(html`<${NewSession} projects=${projects ?? []} onClose=${close} />`);
}

function NewSession({ projects, onClose }) {
  const [problem, setProblem] = useState("");
  const places = useLoaded(() => get("/path"), []);
  async function submit(event) {
    event.preventDefault();
    const data = new FormData(event.target);
    try {
      const made = await post("/session", data.get("title") ? { title: data.get("title") } : {}, { directory: data.get("directory") });
      putSession(made);
      onClose();
      navigate(toSession(made.id));
    } catch (error) {
      setProblem(error.message);
    }
  }
  const known = [...new Set([places.value?.directory, ...projects.map((each) => each.worktree)].filter((each) => each && each !== "/"))];
  return html`<${Dialog} title="New session" onClose=${onClose}><form onSubmit=${submit}>
    <label for="directory">Directory</label><input id="directory" name="directory" list="directories" key=${known[0]} defaultValue=${known[0]} value=${known[0]} required />
    <datalist id="directories">${known.map((each) => html`<option key=${each} value=${each} />`)}</datalist>
    <label for="new-title">Title <span class="about">(made from the first prompt if you leave it out)</span></label><input id="new-title" name="title" />
    ${problem && html`<p class="failed" role="alert">${problem}</p>`}
    <div class="buttons"><button class="primary">Start</button></div></form><//>`;
}

function useListKeys(start) {
  const current = useRef(start);
  current.current = start;
  useEffect(() => {
    const step = (by) => {
      const links = [...document.querySelectorAll("a.row-title")];
      const at = links.indexOf(document.activeElement);
      links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
    };
    return bindKeys({ "/": () => document.getElementById("search").focus(), n: () => current.current(), j: () => step(1), k: () => step(-1), Escape: () => document.activeElement?.blur?.() });
  }, []);
}
