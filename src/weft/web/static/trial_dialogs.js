// What can be done with trials: start them, check them, let a model judge them, adopt one, and discard them.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { get, post } from "./api.js";
import { formatCount, shortenPath } from "./format.js";
import { Dialog, useLoaded } from "./parts.js";

const MAX_TRIALS = 16;

/** Run something that may take long, and keep what went wrong. */
export function useTask() {
  const [task, setTask] = useState({ busy: false, problem: "" });
  async function run(promise) {
    setTask({ busy: true, problem: "" });
    try {
      const value = await promise;
      setTask({ busy: false, problem: "" });
      return value;
    } catch (error) {
      setTask({ busy: false, problem: error.message });
      return undefined;
    }
  }
  return { ...task, run };
}

const Problem = ({ of }) => (of.problem ? html`<p class="failed" role="alert">${of.problem}</p>` : null);

/** The models that can be used in a directory, as options. */
export function ModelOptions({ directory }) {
  const [providers, setProviders] = useState([]);
  useEffect(() => void get("/config/providers", { directory }).then((found) => setProviders(found.providers), () => {}), [directory]);
  return providers.map((provider) => html`<optgroup key=${provider.id} label=${provider.name}>${Object.values(provider.models).map((each) => html`<option key=${each.id} value=${`${provider.id}/${each.id}`}>${each.name}</option>`)}</optgroup>`);
}

export function toModelRef(name) {
  const at = name.indexOf("/");
  return { providerID: name.slice(0, at), modelID: name.slice(at + 1) };
}

/** Start trials: of a new prompt in a project, or from a session, before the message `at` if there is one. */
export function TryDialog({ projects = [], session, at, words = "", onClose, onMade }) {
  const task = useTask();
  const [directory, setDirectory] = useState(session?.directory);
  const paths = useLoaded(() => get("/path"), []);
  const places = [...new Set([paths.value?.directory, ...projects.map((each) => each.worktree)].filter((each) => each && each !== "/"))];
  const place = directory ?? places[0];
  const agents = useLoaded(() => (place ? get("/agent", { directory: place }) : Promise.resolve([])), [place]);
  async function submit(event) {
    event.preventDefault();
    const data = new FormData(event.target);
    const cost = data.get("cost");
    const input = {
      prompt: { parts: [{ type: "text", text: data.get("words") }], ...(data.get("agent") ? { agent: data.get("agent") } : {}) },
      count: Number(data.get("count")),
      variants: data.getAll("models").map((name) => ({ model: toModelRef(name) })),
      check: data.get("check"),
      ...(session ? { session: session.id } : {}), ...(at ? { at } : {}), ...(cost ? { budget: { cost: Number(cost) } } : {}),
    };
    const made = await task.run(post("/weft/try", input, { directory: place }));
    if (made) (onClose(), onMade(made));
  }
  return html`<${Dialog} title="Try several times" onClose=${onClose}><form onSubmit=${submit}>
    <p class="about">${session ? `Each trial continues this session in a fork${at ? " from before this prompt, with the files as they were then" : ""}.` : "Each trial is a session of its own."} It works in its own worktree, so that your files stay as they are.</p>
    ${!session && html`<label for="trial-place">Project</label><select id="trial-place" value=${place} onChange=${(event) => setDirectory(event.target.value)}>${places.map((each) => html`<option key=${each} value=${each}>${shortenPath(each)}</option>`)}</select>`}
    <label for="trial-words">Prompt</label><textarea id="trial-words" name="words" rows="4" required defaultValue=${words}></textarea>
    <div class="fields">
      <div><label for="trial-count">Trials of each model</label><input id="trial-count" name="count" type="number" min="1" max=${MAX_TRIALS} defaultValue="3" required /></div>
      <div><label for="trial-cost">Budget in $</label><input id="trial-cost" name="cost" type="number" min="0" step="any" placeholder="no limit" /></div>
      <div><label for="trial-agent">Agent</label><select id="trial-agent" name="agent"><option value="">the usual one</option>${(agents.value ?? []).filter((each) => each.mode !== "subagent" && !each.hidden).map((each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}</select></div>
    </div>
    <label for="trial-models">Models <span class="about">(the usual one if you choose none)</span></label><select id="trial-models" name="models" multiple size="4"><${ModelOptions} directory=${place} /></select>
    <label for="trial-check">Check <span class="about">(a command that judges the result, such as <code>make test</code>)</span></label><input id="trial-check" name="check" autocomplete="off" />
    <${Problem} of=${task} />
    <div class="buttons"><button class="primary" disabled=${task.busy || !place}>${task.busy ? "Starting …" : "Start"}</button><button type="button" class="quiet" onClick=${onClose}>Cancel</button></div></form><//>`;
}

export function CheckDialog({ sessions, directory, check, onClose, onDone }) {
  const task = useTask();
  async function submit(event) {
    event.preventDefault();
    const command = new FormData(event.target).get("check").trim();
    const input = { sessions, runCheck: true, ...(command === check ? {} : { check: command }) };
    if (await task.run(post("/weft/compare", input, { directory }))) onDone();
  }
  return html`<${Dialog} title="Run a check in each worktree" onClose=${onClose}><form onSubmit=${submit}>
    <label for="check">Command</label><input id="check" name="check" defaultValue=${check} required autocomplete="off" placeholder="make test" />
    <p class="about">It runs with your rights. Files that it changes are put back. Trials that still run are left out.</p>
    <${Problem} of=${task} />
    <div class="buttons"><button class="primary" disabled=${task.busy}>${task.busy ? "Running …" : "Run it"}</button><button type="button" class="quiet" onClick=${onClose}>Cancel</button></div></form><//>`;
}

export function JudgeDialog({ sessions, directory, onClose, onDone }) {
  const task = useTask();
  async function submit(event) {
    event.preventDefault();
    const judge = toModelRef(new FormData(event.target).get("judge"));
    const made = await task.run(post("/weft/compare", { sessions, judge }, { directory }));
    if (made) onDone(made.judgement);
  }
  return html`<${Dialog} title="Let a model rank them" onClose=${onClose}><form onSubmit=${submit}>
    <label for="judge">Judge</label><select id="judge" name="judge" required><option value="">choose a model</option><${ModelOptions} directory=${directory} /></select>
    <p class="about">The judge reads the prompts and the changes, and gives its reasons. Its cost counts against the budget of the trials.</p>
    <${Problem} of=${task} />
    <div class="buttons"><button class="primary" disabled=${task.busy}>${task.busy ? "Judging …" : "Ask it"}</button><button type="button" class="quiet" onClick=${onClose}>Cancel</button></div></form><//>`;
}

/** Adopt a session: all of its changes, or some files of it and of others. */
export function AdoptDialog({ rows, chosen, directory, isTrial, onClose, onDone }) {
  const task = useTask();
  const [picked, setPicked] = useState(new Map(rows.map((row) => [row.session, new Set(row.session === chosen ? row.changed : [])])));
  function toggle(session, path) {
    const paths = new Set(picked.get(session));
    if (!paths.delete(path)) paths.add(path);
    setPicked(new Map([...picked, [session, paths]]));
  }
  const count = [...picked.values()].reduce((sum, paths) => sum + paths.size, 0);
  async function submit(event) {
    event.preventDefault();
    const data = new FormData(event.target);
    const picks = rows.filter((row) => picked.get(row.session).size).map((row) => {
      const paths = [...picked.get(row.session)];
      return { session: row.session, paths: paths.length === row.changed.length ? [] : paths };
    });
    const commit = data.get("commit").trim();
    const made = await task.run(post("/weft/adopt", { picks, discard: data.has("discard"), ...(commit ? { commit } : {}) }, { directory }));
    if (made) onDone(made);
  }
  const list = (row) => html`<ul class="fates">${row.changed.map((path) => html`<li key=${path}><label><input type="checkbox" checked=${picked.get(row.session).has(path)} onChange=${() => toggle(row.session, path)} /> <code>${path}</code></label></li>`)}</ul>`;
  const own = rows.findIndex((row) => row.session === chosen);
  const others = rows.filter((row) => row.session !== chosen && row.changed.length);
  return html`<${Dialog} title=${`Adopt ${own + 1}: ${rows[own].model}`} onClose=${onClose}><form onSubmit=${submit}>
    <p class="about">The changes are merged into <code>${shortenPath(directory)}</code>, all or nothing. Nothing is changed if they would touch what you changed.</p>
    ${list(rows[own])}
    ${others.length ? html`<details><summary class="about">Also take files of other sessions</summary>${others.map((row) => html`<h3 key=${row.session}>${rows.indexOf(row) + 1} ${row.model}</h3>${list(row)}`)}</details>` : null}
    <label for="commit">Commit message <span class="about">(nothing is committed if you leave it out)</span></label><input id="commit" name="commit" autocomplete="off" />
    ${isTrial && html`<label class="check"><input type="checkbox" name="discard" /> Then discard the worktrees of all trials; the sessions stay</label>`}
    <${Problem} of=${task} />
    <div class="buttons"><button class="primary" disabled=${task.busy || !count}>Adopt ${formatCount(count, "file")}</button><button type="button" class="quiet" onClick=${onClose}>Cancel</button></div></form><//>`;
}

export function DiscardDialog({ session, directory, rows, onClose, onDone }) {
  const task = useTask();
  const discard = async () => (await task.run(post(`/weft/session/${session}/discard`, undefined, { directory }))) && onDone();
  return html`<${Dialog} title="Discard these trials?" onClose=${onClose} actions=${html`<button type="button" class="danger" disabled=${task.busy} onClick=${discard}>Discard ${formatCount(rows.length, "worktree")}</button><button type="button" class="quiet" onClick=${onClose}>Cancel</button>`}>
    <p>The worktrees are removed with all that was changed in them. The sessions stay, and git keeps the files as commits for a while.</p>
    <ul class="files">${rows.filter((row) => row.worktree).map((row) => html`<li key=${row.session}><code>${row.worktree}</code> <span class="about">${formatCount(row.files, "changed file")}</span></li>`)}</ul>
    <${Problem} of=${task} /><//>`;
}

/** Choose the session to compare another one with. */
export function CompareDialog({ session, onClose, onChosen }) {
  const found = useLoaded(() => get("/weft/session", { everywhere: "true", roots: "true", order: "updated", projectID: session.projectID, limit: 50 }), [session.id]);
  const others = (found.value ?? []).filter((each) => each.id !== session.id);
  return html`<${Dialog} title="Compare with another session" onClose=${onClose}><form onSubmit=${(event) => (event.preventDefault(), onChosen(new FormData(event.target).get("other")))}>
    <label for="other">Session</label><select id="other" name="other" required><option value="">choose one</option>${others.map((each) => html`<option key=${each.id} value=${each.id}>${each.title}</option>`)}</select>
    ${found.error && html`<p class="failed" role="alert">${found.error}</p>`}
    <div class="buttons"><button class="primary">Compare</button><button type="button" class="quiet" onClick=${onClose}>Cancel</button></div></form><//>`;
}
