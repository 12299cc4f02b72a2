// The screen of one session: its conversation, what is known about it, and what can be done with it.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { get, patch, post, remove } from "./api.js";
import { Changes } from "./changes.js";
import { Messages } from "./conversation.js";
import { formatClock, formatCost, formatCount, formatTokens, shortenPath, toTitle, totalTokens } from "./format.js";
import { bindKeys } from "./keys.js";
import { Menu, Notice, saveFile } from "./parts.js";
import { ContextDialog } from "./context_dialog.js";
import { Prompt } from "./prompt.js";
import { Requests } from "./requests.js";
import { navigate, setQuery, toComparison, toSession } from "./router.js";
import { ShareDialog } from "./share_dialog.js";
import { announce, closeConversation, loadSession, openConversation, putSession, state, useTopic } from "./store.js";
import { copyText } from "./trust.js";
import { RenameDialog, TagDialog } from "./session_dialogs.js";
import { UndoDialog } from "./undo.js";

const NEAR_END = 120;

export function SessionScreen({ id, query }) {
  const [conversation] = useState(() => openConversation(id));
  const [failure, setFailure] = useState("");
  const [dialog, setDialog] = useState(null);
  useTopic(`session:${id}`, `status:${id}`, conversation.topic, "resync");
  const session = state.sessions.get(id);
  useEffect(() => {
    loadSession(id).catch((error) => setFailure(error.message));
    return () => closeConversation(id);
  }, [id]);
  useEffect(() => {
    state.title = session ? `${toTitle(session)} · weft` : "weft";
    document.title = state.title;
  }, [session?.title]);
  const settings = useSettings(session?.directory);
  const context = { id, session, conversation, settings, setDialog, setFailure };
  const act = makeActions(context);
  const sticks = useStickyEnd(conversation);
  useShownMessage(conversation, query, sticks);
  useSessionKeys(context, act);
  if (failure && !session) {
    return html`<div class="empty"><h1>This session cannot be shown</h1><p>${failure}</p><p><a href="/">All sessions</a></p></div>`;
  }
  const status = state.status.get(id);
  return html`<div class="session">
    <header class="session-head">
      <div class="session-title">
        ${session?.parentID && html`<a class="about" href=${toSession(session.parentID)}>↰ parent session</a>`}
        <h1>${toTitle(session)}</h1>
        <p class="about">${session && html`<span title=${session.directory}>${session.weft?.trial ? `worktree ${session.weft.trial.worktree}` : shortenPath(session.directory)}</span>`}
          ${session?.weft?.tags?.map((tag) => html` <span class="tag" key=${tag}>${tag}</span>`)}
          ${session?.weft?.trial && html` · <a href=${toComparison(id)}>trial ${session.weft.trial.number} of ${session.weft.trial.count}</a>`}
          ${session?.share && html` · <a href=${session.share.url} target="_blank">shared</a>`}</p>
      </div>
      <${Facts} ...${context} />
      <div class="session-actions">
        <button type="button" class="quiet" aria-pressed=${query.panel === "changes"} onClick=${() => setQuery({ panel: query.panel === "changes" ? "" : "changes", message: "" })}>Changes${session?.summary?.files ? html` <span class="added">+${session.summary.additions}</span> <span class="removed">−${session.summary.deletions}</span>` : ""}</button>
        <${Menu} label="What to do with this session" items=${act.menu} />
      </div>
    </header>
    ${query.panel === "changes" ? html`<${Changes} id=${id} directory=${session?.directory} message=${query.message} style=${query.style} />` : html`
    <div class="session-body">
      <section class="conversation" aria-label="Conversation">
        ${conversation.error && html`<${Notice} kind="error">${conversation.error}<//>`}
        ${conversation.loaded && !conversation.messages.length && !conversation.error && html`<${EmptySession} />`}
        <${Messages} conversation=${conversation} session=${session} actions=${act.ofMessage} style=${query.style} />
        ${session?.revert && html`<${Notice} kind="info">What is greyed out was undone. It is removed with your next prompt. <button type="button" class="small" onClick=${act.redo}>Redo</button><//>`}
        <${Activity} status=${status} id=${id} />
      </section>
      <${Aside} ...${context} />
    </div>`}
    <div class="dock">
      ${failure && html`<${Notice} kind="error" onClose=${() => setFailure("")}>${failure}<//>`}
      <${Warnings} id=${id} />
      <${Requests} id=${id} directory=${session?.directory} />
      <${Prompt} ...${context} status=${status} act=${act} />
    </div>
    ${dialog}
  </div>`;
}

function EmptySession() {
  return html`<div class="empty"><h2>Nothing has been said yet</h2><p>Write a prompt below. Name files with <kbd>@</kbd> and commands with <kbd>/</kbd>, or drop files here.</p></div>`;
}

/** Agents, models and commands of the session's directory. */
function useSettings(directory) {
  const [settings, setSettings] = useState({ agents: [], providers: [], commands: [], models: new Map() });
  useEffect(() => {
    if (!directory) return;
    const quietly = (promise) => promise.catch(() => null);
    Promise.all(["/agent", "/config/providers", "/command", "/config"].map((path) => quietly(get(path, { directory })))).then(([agents, catalog, commands, config]) => {
      const providers = catalog?.providers ?? [];
      const models = new Map(providers.flatMap((provider) => Object.values(provider.models).map((model) => [`${provider.id}/${model.id}`, model])));
      setSettings({ agents: agents ?? [], providers, commands: commands ?? [], models, config: config ?? {} });
    });
  }, [directory]);
  return settings;
}

/** What the session uses: context, tokens, cost. */
function Facts({ id, conversation, settings, setDialog }) {
  const [spending, setSpending] = useState(null);
  useTopic(`status:${id}`, conversation.topic);
  const last = conversation.messages.findLast((each) => each.info.role === "assistant" && totalTokens(each.info.tokens));
  useEffect(() => {
    if (conversation.loaded) get(`/weft/session/${id}/spending`).then(setSpending, () => {});
  }, [id, conversation.loaded, last?.info.id, last?.info.time.completed, state.status.has(id)]);
  const model = last && settings.models.get(`${last.info.providerID}/${last.info.modelID}`);
  const limit = model?.limit.context ?? 0;
  const used = last ? totalTokens(last.info.tokens) : 0;
  const budget = settings.config?.experimental?.weft?.budget;
  return html`<dl class="facts">
    ${used ? html`<div><dt>Context</dt><dd><button type="button" class="plain" onClick=${() => setDialog(html`<${ContextDialog} id=${id} used=${used} limit=${limit} tokens=${last.info.tokens} onClose=${() => setDialog(null)} />`)}>
      ${limit ? html`<meter min="0" max=${limit} high=${limit * 0.8} value=${used} aria-label="Context in use"></meter> ${Math.round((100 * used) / limit)} %` : formatTokens(used)}</button></dd></div>` : null}
    ${spending && html`<div><dt>Cost</dt><dd title=${`${formatCount(spending.tree.steps ?? 0, "step")}; with child sessions`}>${formatCost(spending.tree)}${budget?.tree?.cost || budget?.session?.cost ? html` <span class="about">of $${budget.tree?.cost ?? budget.session.cost}</span>` : ""}</dd></div>`}
  </dl>`;
}

function Activity({ status, id }) {
  useTopic("requests");
  if (!status) return null;
  if (status.type === "retry") return html`<${Notice} kind="warning">${status.message} The next attempt is number ${status.attempt + 1}, at ${formatClock(status.next)}.<//>`;
  const waits = [...state.permissions.values(), ...state.questions.values()].some((each) => each.sessionID === id);
  return html`<p class="activity" role="status">${waits ? "Waiting for you" : html`<span class="dots" aria-hidden="true"><i></i><i></i><i></i></span> Working`}</p>`;
}

function Warnings({ id }) {
  useTopic("warnings");
  const shown = state.warnings.filter((each) => each.sessionID === id);
  return shown.map((each) => html`<${Notice} key=${each.message} kind="warning" onClose=${() => ((state.warnings = state.warnings.filter((other) => other !== each)), putSession(state.sessions.get(id)))}>${each.message}<//>`);
}

/** Todos, children and notes, beside the conversation where there is room. */
function Aside({ id, session }) {
  useTopic(`todos:${id}`, "sessions", "status");
  const [children, setChildren] = useState([]);
  useEffect(() => {
    get(`/session/${id}/todo`).then((todos) => (state.todos.set(id, todos), setChildren((all) => [...all])), () => {});
    get(`/session/${id}/children`).then(setChildren, () => {});
  }, [id]);
  const todos = state.todos.get(id) ?? [];
  const known = [...new Map([...children, ...[...state.sessions.values()].filter((each) => each.parentID === id)].map((each) => [each.id, each])).values()];
  const notes = session?.weft?.notes ?? [];
  const fork = session?.weft?.forkedFrom?.sessionID;
  // On a phone they are below the conversation, so that its end moves.
  useEffect(() => void document.dispatchEvent(new CustomEvent("weft-grew")), [todos.length, known.length, notes.length]);
  if (!todos.length && !known.length && !notes.length && !fork) return null;
  const done = todos.filter((each) => each.status === "completed").length;
  return html`<aside aria-label="About this session">
    ${todos.length ? html`<section><h2>Todos <span class="about">${done} of ${todos.length}</span></h2>
      <ul class="todos">${todos.map((todo, at) => html`<li key=${at} class=${todo.status}><span aria-hidden="true">${{ completed: "☑", in_progress: "▸", cancelled: "☒" }[todo.status] ?? "☐"}</span> ${todo.content}<span class="unseen"> (${todo.status.replace("_", " ")})</span></li>`)}</ul></section>` : null}
    ${known.length ? html`<section><h2>Child sessions</h2><ul class="links">${known.map((child) => html`<li key=${child.id}><a href=${toSession(child.id)}>${toTitle(child)}</a> ${state.status.has(child.id) ? html`<span class="badge running">running</span>` : ""}</li>`)}</ul></section>` : null}
    ${fork ? html`<section><h2>Forked from</h2><p><a href=${toSession(fork)}>another session</a></p></section>` : null}
    ${notes.length ? html`<section><h2>Notes</h2><ul>${notes.map((note, at) => html`<li key=${at}>${note}</li>`)}</ul></section>` : null}
  </aside>`;
}

/** Stay at the end while text arrives, unless the reader has scrolled up. */
function useStickyEnd(conversation) {
  const sticks = useRef(true);
  useEffect(() => {
    const box = document.scrollingElement;
    const onScroll = () => (sticks.current = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END);
    // Many blocks may grow at once, and each scroll makes the browser lay out the page.
    let waiting = false;
    const onGrow = () => {
      if (!waiting && sticks.current) queueMicrotask(() => ((waiting = false), (box.scrollTop = box.scrollHeight)));
      waiting = sticks.current;
    };
    addEventListener("scroll", onScroll, { passive: true });
    document.addEventListener("weft-grew", onGrow);
    return () => (removeEventListener("scroll", onScroll), document.removeEventListener("weft-grew", onGrow));
  }, []);
  useLayoutEffect(() => {
    const box = document.scrollingElement;
    if (sticks.current && conversation.loaded) requestAnimationFrame(() => (box.scrollTop = box.scrollHeight));
  }, [conversation.loaded, conversation.messages.length]);
  return sticks;
}

/** Show the message that the address names, such as a hit of a search, however long ago it was said. */
function useShownMessage(conversation, { message, panel }, sticks) {
  useEffect(() => {
    if (!message || panel || !conversation.loaded) return;
    sticks.current = false;
    (async () => {
      while (!conversation.find(message) && conversation.before) await conversation.loadEarlier(200);
      requestAnimationFrame(() => requestAnimationFrame(() => {
        const place = document.getElementById(message);
        place?.scrollIntoView({ block: "center" });
        place?.focus({ preventScroll: true });
      }));
    })().catch(() => {}); // the connection was lost, which the page says
  }, [message, panel, conversation.loaded]);
}

// --- what can be done with a session ---

function makeActions({ id, session, conversation, setDialog, setFailure }) {
  const close = () => setDialog(null);
  const attempt = (promise) => promise.catch((error) => setFailure(error.message));
  const change = (fields) => attempt(patch(`/weft/session/${id}`, { change: fields }).then(putSession));
  const lastPrompt = () => {
    const cut = session?.revert ? conversation.messages.findIndex((each) => each.info.id === session.revert.messageID) : conversation.messages.length;
    return conversation.messages.slice(0, cut < 0 ? undefined : cut).findLast((each) => each.info.role === "user" && each.parts.some((part) => !part.synthetic));
  };
  const undo = (message) => message && setDialog(html`<${UndoDialog} session=${id} message=${message.info.id} onClose=${close} onFailure=${setFailure} />`);
  // What few people need is loaded when it is asked for.
  const open = (module, name, props) => attempt(import(module).then((found) => setDialog(html`<${found[name]} ...${props} onClose=${close} />`)));
  const openTry = async (message) => {
    const whole = message && (await get(`/session/${id}/message/${message.info.id}`));
    const words = whole?.parts.find((part) => part.type === "text" && !part.synthetic)?.text ?? "";
    open("./trial_dialogs.js", "TryDialog", { session, at: message?.info.id, words, onMade: (made) => navigate(toComparison(made[0].session)) });
  };
  const forkAfter = (message) => act.fork(conversation.messages[conversation.messages.indexOf(message) + 1]);
  const act = {
    stop: () => attempt(post(`/weft/session/${id}/abort`)),
    undo: () => undo(lastPrompt()),
    redo: () => setDialog(html`<${UndoDialog} session=${id} onClose=${close} onFailure=${setFailure} />`),
    compact: () => attempt(post(`/weft/session/${id}/compact`, {})),
    fork: (message) => attempt(post(`/session/${id}/fork`, message ? { messageID: message.info.id } : {}).then((made) => navigate(toSession(made.id)))),
    share: () => setDialog(html`<${ShareDialog} session=${id} onClose=${close} />`),
    rename: () => setDialog(html`<${RenameDialog} session=${session} onClose=${close} />`),
    tag: () => setDialog(html`<${TagDialog} session=${session} onClose=${close} />`),
    pin: () => change({ pinned: !session.weft?.pinned }),
    archive: () => change({ archived: !session.time.archived }),
    exportIt: () => attempt(get(`/weft/session/${id}/export`).then((value) => saveFile(`${session.slug || id}.json`, JSON.stringify(value, null, 2)))),
    savePage: () => attempt(savePage(id, session)),
    print: () => attempt(printWhole(conversation)),
    tryIt: (message) => attempt(openTry(message)),
    compare: () => open("./trial_dialogs.js", "CompareDialog", { session, onChosen: (other) => navigate(toComparison(id, other)) }),
    bisect: () => open("./look_back.js", "BisectDialog", { session }),
    replay: () => open("./look_back.js", "ReplayDialog", { session }),
    trash: () => attempt(remove(`/weft/session/${id}`).then(() => navigate("/"))),
  };
  act.menu = !session ? [] : [
    ["Rename …", act.rename], ["Tags …", act.tag], [session.weft?.pinned ? "Unpin" : "Pin", act.pin], [session.time.archived ? "Unarchive" : "Archive", act.archive],
    ["Fork", () => act.fork()], ["Compact", act.compact], ["Undo the last prompt …", act.undo], session.revert && ["Redo …", act.redo], ["Share …", act.share],
    ["Try several times …", () => act.tryIt()], session.weft?.trial ? ["Compare the trials", () => navigate(toComparison(id))] : ["Compare …", act.compare], ["Find what broke a check …", act.bisect], ["Replay …", act.replay], ["Where time went", () => navigate(`/web/pictures?session=${id}`)],
    ["Export", act.exportIt], ["Save as one HTML file", act.savePage], ["Print", act.print], ["Move to trash", act.trash, true],
  ];
  act.ofMessage = (message) => [
    ["Copy", () => copyMessage(id, message)],
    message.info.role === "user" && ["Undo to before this …", () => undo(message)],
    message.info.role === "user" && ["Fork before this", () => act.fork(message)],
    message.info.role === "user" && ["Try it several times …", () => act.tryIt(message)],
    message.info.role === "assistant" && ["Fork after this", () => forkAfter(message)],
    message.info.role === "user" && ["What changed after it", () => setQuery({ panel: "changes", message: message.info.id }, { replace: false })],
  ];
  return act;
}

async function copyMessage(session, message) {
  const whole = await get(`/session/${session}/message/${message.info.id}`);
  await copyText(whole.parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text).join("\n\n"));
  announce("Copied");
}

/** Save what others would see of the session: a page that loads nothing. */
async function savePage(id, session) {
  const response = await fetch(`/weft/session/${id}/page`, { credentials: "same-origin" });
  if (!response.ok) throw new Error(`The page could not be made: the server answered ${response.status}.`);
  saveFile(`${session.slug || id}.html`, await response.text(), "text/html");
}

/** Print all that was said, also what has not been loaded yet. */
async function printWhole(conversation) {
  while (conversation.before) await conversation.loadEarlier(200);
  requestAnimationFrame(() => requestAnimationFrame(() => print()));
}

function useSessionKeys({ id, conversation }, act) {
  const current = useRef(act);
  current.current = act;
  useEffect(() => {
    let escaped = 0, opened = false;
    const step = (by) => {
      const items = [...document.querySelectorAll(".message")];
      const at = items.findIndex((each) => each.contains(document.activeElement));
      const next = items[at < 0 ? (by > 0 ? 0 : items.length - 1) : at + by];
      next?.focus();
      next?.scrollIntoView({ block: "nearest" });
    };
    return bindKeys({
      i: () => document.getElementById("prompt")?.focus(),
      j: () => step(1),
      k: () => step(-1),
      o: () => document.dispatchEvent(new CustomEvent("weft-open-all", { detail: (opened = !opened) })),
      c: () => setQuery({ panel: new URLSearchParams(location.search).get("panel") ? "" : "changes" }),
      u: () => current.current.undo(),
      r: () => state.sessions.get(id)?.revert && current.current.redo(),
      y: () => document.querySelector(".request [data-reply=once]")?.click(),
      Escape: (event) => {
        if (event.timeStamp - escaped < 1000 && state.status.has(id)) current.current.stop();
        escaped = event.timeStamp;
        document.activeElement?.blur?.();
      },
    });
  }, [id, conversation]);
}
