// What the server has said, folded from its events. Components listen to the topic that they show and to nothing else, so a
// token that arrives changes one text and no list.
import { useEffect, useState } from "./vendor/preact-htm.js";
import { get, tabs } from "./api.js";

const RETRY_MS = [250, 500, 1000, 2000, 5000];
const HIDDEN_MS = 60_000;
// What a reader sees first is the end; earlier messages follow when they come near.
const FIRST_PAGE = 20;

const listeners = new Map();

export function listen(topic, listener) {
  if (!listeners.has(topic)) listeners.set(topic, new Set());
  listeners.get(topic).add(listener);
  return () => listeners.get(topic)?.delete(listener);
}

export function emit(topic) {
  for (const listener of [...(listeners.get(topic) ?? [])]) listener();
}

/** Render again when one of the topics changes. */
export function useTopic(...topics) {
  const [, count] = useState(0);
  useEffect(() => {
    let frame = 0;
    const update = () => {
      frame ||= requestAnimationFrame(() => ((frame = 0), count((n) => n + 1)));
    };
    const stops = topics.map((topic) => listen(topic, update));
    count((n) => n + 1); // what changed between the first rendering and now
    return () => (cancelAnimationFrame(frame), stops.forEach((stop) => stop()));
  }, [topics.join()]);
}

export const state = {
  connection: "connecting",
  sessions: new Map(),
  status: new Map(),
  permissions: new Map(),
  questions: new Map(),
  todos: new Map(),
  warnings: [],
  announcements: [],
};
const conversations = new Map();

// --- what arrives while something is read ---

const recordings = new Set();

/** Collect the events that arrive while an answer is under way. The answer may be older than they are, so they are applied again. */
async function readWithEvents(path, query) {
  const events = [];
  recordings.add(events);
  try {
    return { value: await get(path, query), events };
  } finally {
    recordings.delete(events);
  }
}

// --- conversations ---

/** The messages of one session, as far as they were loaded. */
export class Conversation {
  constructor(id) {
    this.id = id;
    this.messages = [];
    this.before = null;
    this.loaded = false;
    this.error = "";
    this.said = new Map();
  }

  get topic() {
    return `messages:${this.id}`;
  }

  async load() {
    try {
      const { value: page, events } = await readWithEvents(`/weft/session/${this.id}/view`, { limit: FIRST_PAGE });
      this.last = JSON.stringify(page.messages.at(-1));
      this.before = page.before ?? null;
      // Messages that were loaded earlier stay, unless the server no longer has them.
      const first = page.messages[0]?.info.time.created ?? 0;
      const earlier = page.before ? this.messages.filter((each) => each.info.time.created < first) : [];
      if (earlier.length) this.before = this.oldBefore ?? null;
      this.messages = [...earlier, ...page.messages];
      this.messages.forEach(touch);
      for (const { parts } of this.messages) for (const part of parts) this.said.set(part.id, part.blocks?.length ?? 0);
      this.error = "";
      this.applyAgain(events);
    } catch (error) {
      this.error = error.message;
    }
    this.loaded = true;
    emit(this.topic);
    for (const message of this.messages) for (const part of message.parts) emit(`part:${part.id}`);
  }

  applyAgain(events) {
    const own = events.filter(({ properties }) => (properties.sessionID ?? properties.info?.sessionID) === this.id);
    for (const event of own) {
      // Text that was added is in the answer or not; reading the message again is the only way to know.
      if (event.type === "weft.part.grew") this.refresh(event.properties.messageID);
      else if (/^(message\.|weft\.part\.)/.test(event.type)) apply(event);
    }
  }

  /** Read the end again if it is not what was loaded: something happened before the stream was open. */
  async check() {
    if (!this.loaded || state.status.has(this.id)) return this.load();
    const page = await get(`/weft/session/${this.id}/view`, { limit: 1 }).catch(() => null);
    return JSON.stringify(page?.messages.at(-1)) === this.last ? undefined : this.load();
  }

  async loadEarlier(limit = 40) {
    if (!this.before || this.loading) return;
    this.loading = true;
    try {
      const page = await get(`/weft/session/${this.id}/view`, { limit, before: this.before });
      this.before = this.oldBefore = page.before ?? null;
      page.messages.forEach(touch);
      this.messages = [...page.messages, ...this.messages];
    } finally {
      this.loading = false;
    }
    emit(this.topic);
  }

  find(id) {
    return this.messages.findLast((each) => each.info.id === id);
  }

  /** Read one message again, because something about it was missed. */
  async refresh(id) {
    if (this.refreshing?.has(id)) return;
    (this.refreshing ??= new Set()).add(id);
    try {
      const view = await get(`/weft/session/${this.id}/message/${id}/view`);
      this.put(view.info, view.failure, view.parts);
      for (const part of view.parts) {
        emit(`part:${part.id}`);
        this.speak(part);
      }
    } catch {
      /* it was removed, or the connection was lost: the page reports both elsewhere */
    } finally {
      this.refreshing.delete(id);
    }
  }

  put(info, failure, parts) {
    const known = this.find(info.id);
    if (known) {
      Object.assign(known, { info, failure: failure ?? "" }, parts ? { parts } : {});
      touch(known);
    } else {
      const message = { info, failure: failure ?? "", parts: parts ?? [] };
      touch(message);
      const at = this.messages.findLastIndex((each) => each.info.time.created <= info.time.created);
      this.messages.splice(at + 1, 0, message);
      this.messages = [...this.messages];
    }
    emit(this.topic);
  }

  putPart(messageID, part) {
    const message = this.find(messageID);
    if (!message) return;
    const at = message.parts.findIndex((each) => each.id === part.id);
    if (at < 0) message.parts = [...message.parts, part];
    else message.parts[at] = part;
    if (at < 0) {
      touch(message);
      emit(this.topic);
    }
    emit(`part:${part.id}`);
    this.speak(part);
  }

  /** Read out the blocks of a text that have ended since the last time. */
  speak({ id, type, blocks = [] }) {
    const said = this.said.get(id) ?? 0;
    if (type !== "text" || blocks.length <= said) return;
    this.said.set(id, blocks.length);
    announce(blocks.slice(said));
  }

  grow({ messageID, partID, at, blocks = [], tail, append }) {
    const part = this.find(messageID)?.parts.find((each) => each.id === partID);
    if (!part) return;
    const known = part.blocks?.length ?? 0;
    if (known < at || (append !== undefined && append !== null && part.tail === undefined)) {
      this.refresh(messageID);
      return;
    }
    part.blocks = [...(part.blocks ?? []).slice(0, at), ...blocks];
    part.open = true;
    if (append !== undefined && append !== null) part.append = (part.append ?? "") + append;
    else Object.assign(part, { tail: tail ?? "", append: "" });
    emit(`part:${partID}`);
    this.speak(part);
  }

  remove(messageID) {
    this.messages = this.messages.filter((each) => each.info.id !== messageID);
    emit(this.topic);
  }

  removePart(messageID, partID) {
    const message = this.find(messageID);
    if (!message) return;
    message.parts = message.parts.filter((each) => each.id !== partID);
    touch(message);
    emit(this.topic);
  }

}

/** Let a screen reader say something: blocks of a text that have ended, or a sentence about what happened. */
export function announce(words) {
  state.announcements.push(words);
  emit("announcement");
}

let version = 0;
function touch(message) {
  message.version = ++version;
}

/** Return the conversation of a session; it is loaded once, and kept up to date from then on. */
export function openConversation(id) {
  let conversation = conversations.get(id);
  if (!conversation) {
    conversation = new Conversation(id);
    conversations.set(id, conversation);
    stream.watch();
    conversation.load();
  }
  return conversation;
}

export function closeConversation(id) {
  if (conversations.delete(id)) stream.watch();
}

// --- events ---

function receive(event) {
  for (const events of recordings) events.push(event);
  apply(event);
}

function apply({ type, properties }) {
  switch (type) {
    case "session.created":
    case "session.updated":
      state.sessions.set(properties.info.id, properties.info);
      emit("sessions");
      return emit(`session:${properties.info.id}`);
    case "session.deleted":
      state.sessions.delete(properties.info.id);
      emit("sessions");
      return emit(`session:${properties.info.id}`);
    case "session.status":
      setStatus(properties.sessionID, properties.status);
      return;
    case "permission.asked":
      state.permissions.set(properties.id, properties);
      announce(`The agent asks for permission: ${properties.permission} ${properties.patterns.join(", ")}`);
      loadFamily(properties.sessionID);
      return emit("requests");
    case "permission.replied":
      state.permissions.delete(properties.requestID);
      return emit("requests");
    case "question.asked":
      state.questions.set(properties.id, properties);
      announce(`The agent asks: ${properties.questions.map((each) => each.question).join(" ")}`);
      loadFamily(properties.sessionID);
      return emit("requests");
    case "question.replied":
    case "question.rejected":
      state.questions.delete(properties.requestID);
      return emit("requests");
    case "todo.updated":
      state.todos.set(properties.sessionID, properties.todos);
      return emit(`todos:${properties.sessionID}`);
    case "session.diff":
      return emit(`diff:${properties.sessionID}`);
    case "session.warning":
      state.warnings = [...state.warnings.slice(-4), properties];
      return emit("warnings");
    case "session.error":
      state.failure = properties;
      return emit("failure");
    case "message.updated":
      return conversations.get(properties.info.sessionID)?.put(properties.info, properties.failure);
    case "message.removed":
      return conversations.get(properties.sessionID)?.remove(properties.messageID);
    case "message.part.removed":
      return conversations.get(properties.sessionID)?.removePart(properties.messageID, properties.partID);
    case "weft.part.updated":
      return conversations.get(properties.sessionID)?.putPart(properties.messageID, properties.part);
    case "weft.part.grew":
      return conversations.get(properties.sessionID)?.grow(properties);
    case "server.resync":
      return void resync();
  }
}

function setStatus(id, status) {
  if (status.type === "idle") state.status.delete(id);
  else state.status.set(id, status);
  emit("status");
  emit(`status:${id}`);
}

/** Read everything that is shown again; `isFirst` if it was read just now, before the stream was open. */
export async function resync(isFirst = false) {
  try {
    const { value: now, events } = await readWithEvents("/weft/view/status");
    state.status = new Map(Object.entries(now.status));
    state.permissions = new Map(now.permissions.map((each) => [each.id, each]));
    state.questions = new Map(now.questions.map((each) => [each.id, each]));
    for (const { sessionID } of [...now.permissions, ...now.questions]) loadFamily(sessionID);
    events.filter((event) => /^(session\.status|permission\.|question\.)/.test(event.type)).forEach(apply);
  } catch {
    return; // the stream reports what is wrong with the connection
  }
  for (const topic of ["status", "requests", "resync"]) emit(topic);
  for (const conversation of conversations.values()) {
    emit(`status:${conversation.id}`);
    if (isFirst) conversation.check();
    else conversation.load();
  }
}

// --- the stream ---

class Stream {
  constructor() {
    this.last = "";
    this.failures = 0;
    this.started = false;
    // Browsers allow six connections to one server: a tab that nobody looks at gives its own back, at once if another one is opened.
    document.addEventListener("visibilitychange", () => {
      clearTimeout(this.hidden);
      if (document.hidden) this.hidden = setTimeout(() => this.close(), HIDDEN_MS);
      else if (this.started && !this.source) this.open();
    });
    tabs.addEventListener("message", ({ data }) => data === "opened" && document.hidden && this.close());
    addEventListener("online", () => this.started && this.source?.readyState !== 1 && this.open());
  }

  start() {
    this.started = true;
    tabs.postMessage("opened");
    this.open();
  }

  stop() {
    this.started = false;
    this.close();
  }

  /** Listen to the messages of the sessions that are shown now. */
  watch() {
    if (this.started) this.open();
  }

  close() {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
  }

  open() {
    this.close();
    const url = new URL("/weft/view/event", location.origin);
    const shown = [...conversations.keys()].join();
    if (shown) url.searchParams.set("session", shown);
    if (this.last) url.searchParams.set("after", this.last);
    const source = (this.source = new EventSource(url));
    source.onmessage = (event) => {
      if (event.lastEventId) this.last = event.lastEventId;
      const { payload } = JSON.parse(event.data);
      if (payload.type === "server.connected") this.connected();
      else if (payload.type !== "server.heartbeat") receive(payload);
    };
    // The browser would reconnect by itself, but not after every kind of failure, and without saying so.
    source.onerror = () => {
      if (source !== this.source) return;
      this.close();
      setConnection("lost");
      // A stream does not say why it failed. If the login has ended, this request does.
      get("/weft/view/status").catch(() => {});
      this.retry = setTimeout(() => this.open(), RETRY_MS[Math.min(this.failures++, RETRY_MS.length - 1)]);
    };
  }

  connected() {
    const isFirst = state.connection === "connecting";
    this.failures = 0;
    setConnection("live");
    if (isFirst) resync(true);
  }
}

function setConnection(value) {
  if (state.connection === value) return;
  state.connection = value;
  emit("connection");
}

export const stream = new Stream();

// --- sessions ---

/** Return a session, and read it if it is not known yet. */
export async function loadSession(id) {
  const info = await get(`/session/${id}`);
  state.sessions.set(id, info);
  emit(`session:${id}`);
  return info;
}

/** Read the session that asks for something, and those above it: the screen of each of them shows the request. */
async function loadFamily(id) {
  try {
    for (let each = id; each; each = state.sessions.get(each)?.parentID) if (!state.sessions.has(each)) await loadSession(each);
  } catch {
    return; // it was removed meanwhile, or the connection was lost: the page reports both elsewhere
  }
  emit("requests");
}

export function putSession(info) {
  state.sessions.set(info.id, info);
  emit("sessions");
  emit(`session:${info.id}`);
}
