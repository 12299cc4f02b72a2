// A conversation: messages, their texts as they are written, and calls as one line each until they are opened.
import { Component, html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { get } from "./api.js";
import { formatClock, formatCost, formatCount, formatDuration, formatTime, formatTokens, totalTokens } from "./format.js";
import { toSession } from "./router.js";
import { Menu, ServerHtml } from "./parts.js";
import { listen, openConversation, closeConversation, state, useTopic } from "./store.js";
import { toNodes } from "./trust.js";

/** The messages of a session, oldest first. Earlier ones are loaded when the reader comes near them. */
export function Messages({ conversation, session, actions, style }) {
  useTopic(conversation.topic, `session:${session?.id}`, `status:${conversation.id}`);
  const earlier = useRef(null);
  useEffect(() => {
    if (!earlier.current) return undefined;
    const observer = new IntersectionObserver((entries) => entries.some((each) => each.isIntersecting) && loadEarlier(conversation), { rootMargin: "300px" });
    observer.observe(earlier.current);
    return () => observer.disconnect();
  }, [conversation.before]);
  const undoneFrom = session?.revert?.messageID;
  const answered = state.status.has(conversation.id) ? new Set(conversation.messages.map((each) => each.info.parentID)) : null;
  let undone = false;
  return html`
    ${conversation.before && html`<button ref=${earlier} type="button" class="earlier" onClick=${() => loadEarlier(conversation)}>Show earlier messages</button>`}
    <ol class="messages">
      ${conversation.messages.map((message, at) => {
        const previous = conversation.messages[at - 1]?.info;
        const continues = message.info.role === "assistant" && previous?.role === "assistant" && previous.agent === message.info.agent && previous.modelID === message.info.modelID;
        const queued = Boolean(answered) && message.info.role === "user" && !answered.has(message.info.id);
        undone ||= message.info.id === undoneFrom;
        return html`<${Message} key=${message.info.id} message=${message} version=${message.version} session=${conversation.id}
          continues=${continues} queued=${queued} undone=${undone} actions=${actions} style=${style} isLast=${message === conversation.messages.at(-1)} />`;
      })}
    </ol>`;
}

async function loadEarlier(conversation) {
  const box = document.scrollingElement, height = box.scrollHeight, top = box.scrollTop;
  await conversation.loadEarlier();
  // Some browsers keep the place of the reader by themselves.
  requestAnimationFrame(() => box.scrollTop === top && (box.scrollTop = top + box.scrollHeight - height));
}

class Message extends Component {
  shouldComponentUpdate(next) {
    const { props } = this;
    return ["version", "continues", "queued", "undone", "style", "isLast"].some((name) => next[name] !== props[name]);
  }

  render({ message, session, continues, queued, undone, actions, style }) {
    const { info, parts, failure } = message;
    const isPrompt = info.role === "user";
    const shown = parts.filter((part) => !(isPrompt && part.synthetic));
    if (!shown.length && !failure && (isPrompt || info.time.completed)) return null;
    return html`<li class=${`message ${info.role}${undone ? " undone" : ""}${info.summary === true ? " summary" : ""}${continues ? " continues" : ""}`} id=${info.id} tabindex="-1">
      <article aria-label=${isPrompt ? "Prompt" : "Answer"}>
        <header class="message-head">
          <h2>${isPrompt ? "You" : info.agent || "Agent"}</h2>
          <span class="about model">${isPrompt ? "" : info.modelID}</span>
          ${queued && html`<span class="badge waiting">queued</span>`}
          <span class="grow"></span>
          <time class="about" datetime=${new Date(info.time.created).toISOString()} title=${formatTime(info.time.created)}>
            ${formatClock(info.time.created)}</time>
          ${actions && html`<${Menu} label=${isPrompt ? "What to do with this prompt" : "What to do with this answer"} items=${actions(message)} />`}
        </header>
        <div class="parts">${group(shown).map((item) => (Array.isArray(item)
          ? html`<ul class="calls" key=${item[0].id}>${item.map((part) => html`<${Part} key=${part.id} part=${part} message=${info.id} session=${session} style=${style} />`)}</ul>`
          : html`<${Part} key=${item.id} part=${item} message=${info.id} session=${session} style=${style} isPrompt=${isPrompt} />`))}</div>
        ${failure && html`<p class="failure" role="alert"><strong>${info.error?.name === "MessageAbortedError" ? "Stopped." : "Failed."}</strong> ${failure}</p>`}
        ${!isPrompt && html`<${AnswerFoot} info=${info} />`}
        ${isPrompt && info.summary?.diffs?.length ? html`<p class="turn"><a class="about" href=${`${toSession(session)}?panel=changes&message=${info.id}`}>
          ${formatCount(info.summary.diffs.length, "file")} changed <span class="added">+${sum(info.summary.diffs, "additions")}</span> <span class="removed">−${sum(info.summary.diffs, "deletions")}</span></a></p>` : null}
      </article>
    </li>`;
  }
}

const sum = (rows, name) => rows.reduce((total, each) => total + (each[name] ?? 0), 0);

/** Put calls that follow each other into one list. */
function group(parts) {
  const groups = [];
  for (const part of parts) {
    if (part.type !== "tool") groups.push(part);
    else if (Array.isArray(groups.at(-1))) groups.at(-1).push(part);
    else groups.push([part]);
  }
  return groups;
}

function AnswerFoot({ info }) {
  const { created, completed } = info.time;
  if (!completed || !totalTokens(info.tokens)) return null;
  return html`<p class="foot about">${formatDuration(completed - created)} · ${formatTokens(totalTokens(info.tokens))} tokens · ${formatCost(info)}</p>`;
}

function Part({ part: first, message, session, style, isPrompt }) {
  const conversation = openConversation(session);
  const part = conversation.find(message)?.parts.find((each) => each.id === first.id) ?? first;
  switch (part.type) {
    case "text":
      return html`<${Text} id=${part.id} message=${message} session=${session} class=${`prose${part.synthetic ? " synthetic" : ""}`} />`;
    case "reasoning":
      return html`<${Reasoning} id=${part.id} message=${message} session=${session} />`;
    case "tool":
      return html`<${Call} id=${part.id} message=${message} session=${session} style=${style} />`;
    case "file":
      return html`<${Attachment} part=${part} message=${message} session=${session} />`;
    case "subtask":
      return html`<${Opened} head=${html`<span class="call-name">Task</span> <span class="call-title">${part.title}</span>`} part=${part} message=${message} session=${session} style=${style} />`;
    default:
      return html`<p class=${`note ${part.type}`}>${part.note}</p>`;
  }
}

/** The current state of a part, and rendering again when it changes. */
function usePart(session, message, id) {
  useTopic(`part:${id}`);
  return openConversation(session).find(message)?.parts.find((each) => each.id === id);
}

/** A text. Blocks that have ended are never touched again; only the open one changes. */
class Text extends Component {
  constructor(props) {
    super(props);
    this.shown = [];
    this.place = null;
  }

  shouldComponentUpdate() {
    return false;
  }

  componentDidMount() {
    this.stop = listen(`part:${this.props.id}`, () => {
      this.frame ||= requestAnimationFrame(() => ((this.frame = 0), this.update()));
    });
    this.update();
  }

  componentWillUnmount() {
    this.stop();
    cancelAnimationFrame(this.frame);
  }

  update() {
    const { session, message, id } = this.props;
    const part = openConversation(session).find(message)?.parts.find((each) => each.id === id);
    if (!part || !this.place) return;
    const blocks = part.blocks ?? [];
    const isOpen = Boolean(part.open && (part.tail || part.append));
    while (this.shown.length > blocks.length) this.shown.pop().node.remove();
    blocks.forEach((source, index) => {
      if (this.shown[index]?.source === source) return;
      const node = document.createElement("div");
      node.className = "block";
      node.append(toNodes(source));
      if (this.shown[index]) this.shown[index].node.replaceWith(node);
      else this.place.insertBefore(node, this.tail ?? null);
      this.shown[index] = { source, node };
    });
    this.updateTail(part, isOpen);
    document.dispatchEvent(new CustomEvent("weft-grew"));
  }

  updateTail(part, isOpen) {
    if (!isOpen) {
      this.tail?.remove();
      this.tail = null;
      return;
    }
    if (!this.tail) {
      this.tail = document.createElement("div");
      this.tail.className = "block tail";
      this.place.append(this.tail);
      this.tailSource = null;
    }
    if (this.tailSource !== part.tail) {
      this.tail.replaceChildren(toNodes(part.tail));
      this.tailSource = part.tail;
      this.appended = 0;
    }
    const more = (part.append ?? "").slice(this.appended);
    if (!more) return;
    this.appended += more.length;
    const code = this.tail.querySelector("code");
    if (code?.lastChild?.nodeType === Node.TEXT_NODE) code.lastChild.appendData(more);
    else code?.append(more);
  }

  render({ class: name }) {
    return html`<div class=${name} ref=${(place) => (this.place = place)}></div>`;
  }
}

function Reasoning({ session, message, id }) {
  const part = usePart(session, message, id);
  if (!part) return null;
  if (part.open) {
    return html`<div class="reasoning open"><p class="call-name">Thinking …</p><${Text} id=${id} message=${message} session=${session} class="prose" /></div>`;
  }
  const time = part.ended && part.started ? formatDuration(part.ended - part.started) : "";
  return html`<${Opened} class="reasoning" part=${part} message=${message} session=${session}
    head=${html`<span class="call-name">Thought${time && ` for ${time}`}</span> <span class="call-title">${part.title}</span>`} />`;
}

const MARKS = { completed: ["✓", "done"], error: ["✗", "failed"], running: ["●", "running"], pending: ["○", "being written"] };

function Call({ session, message, id, style }) {
  const part = usePart(session, message, id);
  if (!part) return null;
  const [mark, words] = MARKS[part.status] ?? MARKS.pending;
  const time = part.ended && part.started ? formatDuration(part.ended - part.started) : "";
  const head = html`<span class=${`mark ${part.status}`} aria-label=${words} role="img">${mark}</span>
    <span class="call-name">${part.tool}</span>
    <span class="call-title">${part.error || part.title}</span>
    ${part.additions !== undefined && html`<span class="added">+${part.additions}</span> <span class="removed">−${part.deletions}</span>`}
    <span class="about call-time">${part.status === "running" ? html`<${Running} since=${part.started} />` : time}</span>`;
  return html`<li><${Opened} class=${`call ${part.status}`} head=${head} part=${part} message=${message} session=${session} style=${style} />
    ${part.child && html`<${Child} id=${part.child} />`}</li>`;
}

function Running({ since }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  return now - since > 1500 ? formatDuration(Math.round((now - since) / 1000) * 1000) : "";
}

/** A line that opens: what is in it is read from the server when it is opened, and removed when it is closed. */
function Opened({ head, part, message, session, style, class: name = "call" }) {
  const [open, setOpen] = useState(false);
  const [source, setSource] = useState(null);
  useEffect(() => {
    if (!open) return undefined;
    let current = true;
    get(`/weft/session/${session}/message/${message}/part/${part.id}/view`, { style }).then(
      (view) => current && setSource(view.html),
      (error) => current && setSource(null) & console.warn(error.message),
    );
    return () => (current = false);
  }, [open, part.status, part.ended, style]);
  useLayoutEffect(() => {
    const toggle = (event) => setOpen(event.detail);
    document.addEventListener("weft-open-all", toggle);
    return () => document.removeEventListener("weft-open-all", toggle);
  }, []);
  return html`<details class=${name} open=${open} onToggle=${(event) => event.target === event.currentTarget && setOpen(event.currentTarget.open)}>
    <summary>${head}</summary>
    ${open && (source === null ? html`<p class="about">Loading …</p>` : html`<${ServerHtml} source=${source} class="details prose" />`)}
  </details>`;
}

function Attachment({ part, message, session }) {
  const address = `/weft/session/${session}/message/${message}/part/${part.id}/file`;
  if (!part.picture) return html`<p class="file"><span aria-hidden="true">📎</span> ${part.stored ? html`<a href=${address} download=${part.filename}>${part.filename}</a>` : part.filename} <span class="about">${part.mime}</span></p>`;
  return html`<figure class="picture"><a href=${address} target="_blank"><img src=${address} alt=${part.filename} loading="lazy" /></a><figcaption class="about">${part.filename}</figcaption></figure>`;
}

/** The conversation of a child session, below the call that started it. */
function Child({ id }) {
  const [open, setOpen] = useState(false);
  useTopic(`status:${id}`);
  return html`<div class="child"><details open=${open} onToggle=${(event) => event.target === event.currentTarget && setOpen(event.currentTarget.open)}>
    <summary>Child session ${state.status.has(id) && html`<span class="badge running">running</span>`}</summary>
    ${open && html`<${ChildMessages} id=${id} />`}
  </details><a class="small" href=${toSession(id)}>open it</a></div>`;
}

function ChildMessages({ id }) {
  const [conversation] = useState(() => openConversation(id));
  useLayoutEffect(() => () => closeConversation(id), [id]);
  return html`<${Messages} conversation=${conversation} session=${state.sessions.get(id)} />`;
}
