// Requests of an agent to a person: permissions and questions. They are shown above the prompt, where they are always in reach.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { post } from "./api.js";
import { state, useTopic } from "./store.js";

const SCOPES = [["session", "in this session and its children"], ["turn", "until this prompt is answered"], ["project", "in this project"], ["user", "in all my projects"]];

// Why a request was made: lists in its metadata, with the words of `REQUEST_FACTS` in `model/permission.py`.
const FACTS = [["why", "asked because"], ["mayWrite", "may change files"], ["perhaps", "may also run"]];

export function Requests({ id, directory }) {
  useTopic("requests", "sessions");
  const permissions = [...state.permissions.values()].filter((each) => isInFamily(each.sessionID, id));
  const questions = [...state.questions.values()].filter((each) => isInFamily(each.sessionID, id));
  // Keep the end of the conversation visible above them.
  useEffect(() => void document.dispatchEvent(new CustomEvent("weft-grew")), [permissions.length, questions.length]);
  if (!permissions.length && !questions.length) return null;
  return html`<div class="requests">
    ${permissions.map((each) => html`<${Permission} key=${each.id} request=${each} directory=${directory} />`)}
    ${questions.map((each) => html`<${Question} key=${each.id} request=${each} directory=${directory} />`)}
  </div>`;
}

/** Return whether a session is another one, or below it, however deep. */
function isInFamily(session, top) {
  while (session && session !== top) session = state.sessions.get(session)?.parentID;
  return session === top;
}

function Permission({ request, directory }) {
  const [refusing, setRefusing] = useState(false);
  const [problem, setProblem] = useState("");
  const [scope, setScope] = useState("session");
  const reason = useRef(null);
  async function reply(answer) {
    const body = { reply: answer, message: reason.current?.value ?? "" };
    if (answer === "always") body.grant = { scope };
    try {
      await post(`/weft/permission/${request.id}/reply`, body, { directory });
      state.permissions.delete(request.id);
    } catch (error) {
      setProblem(error.message);
    }
  }
  const { metadata = {} } = request;
  return html`<section class="request" role="region" aria-label="The agent asks for permission">
    <h2>Allow <strong>${request.permission}</strong>?</h2>
    <div class="request-body" tabindex="0" role="group" aria-label="What would be done">
      <ul class="patterns">${request.patterns.map((each) => html`<li key=${each}><code>${each}</code></li>`)}</ul>
      ${typeof metadata.command === "string" && metadata.command && html`<pre class="output">${metadata.command}</pre>`}
      ${FACTS.filter(([name]) => Array.isArray(metadata[name]) && metadata[name].length).map(([name, words]) => html`<p key=${name} class="about">${words}: ${metadata[name].join(", ")}</p>`)}
      ${typeof metadata.diff === "string" && html`<${PlainDiff} text=${metadata.diff} />`}
      ${Object.entries(metadata).filter(([name, value]) => !["command", "diff", "filepath"].includes(name) && typeof value === "string" && value).map(([name, value]) => html`<p key=${name} class="about">${name}: ${value}</p>`)}
    </div>
    ${problem && html`<p class="failed" role="alert">${problem}</p>`}
    ${refusing ? html`<form class="refuse" onSubmit=${(event) => (event.preventDefault(), reply("reject"))}>
        <label for=${`reason-${request.id}`}>What should the agent do instead? (optional)</label>
        <input id=${`reason-${request.id}`} ref=${reason} type="text" autofocus />
        <div class="buttons"><button class="danger">Refuse</button><button type="button" class="quiet" onClick=${() => setRefusing(false)}>Back</button></div>
      </form>` : html`<div class="buttons">
        <button type="button" class="primary" data-reply="once" onClick=${() => reply("once")}>Allow once</button>
        <span class="joined"><button type="button" onClick=${() => reply("always")} title=${request.always.join("\n")}>Always allow ${request.always.length ? html`<code>${request.always.join(", ").slice(0, 60)}</code>` : ""}</button>
          <select aria-label="How far this permission reaches" value=${scope} onChange=${(event) => setScope(event.target.value)}>${SCOPES.map(([value, name]) => html`<option key=${value} value=${value}>${name}</option>`)}</select></span>
        <button type="button" class="danger" onClick=${() => setRefusing(true)}>No …</button>
      </div>`}
  </section>`;
}

/** A change that an agent asks to make, line by line as the server sent it. */
export function PlainDiff({ text }) {
  const lines = text.split("\n").slice(0, 2000);
  return html`<pre class="output plain-diff">${lines.map((line, at) => html`<span key=${at} class=${line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : ""}>${line}${"\n"}</span>`)}</pre>`;
}

function Question({ request, directory }) {
  const [problem, setProblem] = useState("");
  async function submit(event) {
    event.preventDefault();
    const data = new FormData(event.target);
    const answers = request.questions.map((_, at) => [...data.getAll(`choice-${at}`), ...data.getAll(`text-${at}`)].filter(Boolean));
    await settle(() => post(`/question/${request.id}/reply`, { answers }, { directory }));
  }
  async function settle(run) {
    try {
      await run();
      state.questions.delete(request.id);
    } catch (error) {
      setProblem(error.message);
    }
  }
  return html`<section class="request" role="region" aria-label="The agent asks a question">
    <form onSubmit=${submit}>
      <div class="request-body">${request.questions.map((question, at) => html`<fieldset key=${at}>
        <legend>${question.question}</legend>
        ${question.options.map((option) => html`<label key=${option.label} class="option"><input type=${question.multiple ? "checkbox" : "radio"} name=${`choice-${at}`} value=${option.label} />
          <span><strong>${option.label}</strong> <span class="about">${option.description}</span></span></label>`)}
        ${question.custom !== false && html`<label class="own">Another answer <input type="text" name=${`text-${at}`} autocomplete="off" /></label>`}
      </fieldset>`)}</div>
      ${problem && html`<p class="failed" role="alert">${problem}</p>`}
      <div class="buttons"><button class="primary">Answer</button>
        <button type="button" class="danger" onClick=${() => settle(() => post(`/question/${request.id}/reject`, undefined, { directory }))}>Dismiss and stop</button></div>
    </form>
  </section>`;
}
