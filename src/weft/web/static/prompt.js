// The prompt: text with names of files and commands, attached files, and who answers it.
import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { get, makeMessageId, post } from "./api.js";

const IS_PHONE = matchMedia("(pointer: coarse)");
const MAX_FILE = 20 * 1024 * 1024;
const WORD = /(^|\s)@([^\s@]*)$/;

export function Prompt({ id, session, conversation, settings, status, act, setFailure }) {
  const field = useRef(null);
  const picker = useRef(null);
  const asked = useRef(null); // the word whose files are being looked for; null once nothing is to be completed
  const [text, setText] = useState(() => sessionStorage.getItem(`draft-${id}`) ?? "");
  const [files, setFiles] = useState([]);
  const [choice, setChoice] = useState({});
  const [offers, setOffers] = useState({ list: [], at: 0 });
  const [dropping, setDropping] = useState(false);
  useEffect(() => sessionStorage.setItem(`draft-${id}`, text), [text]);
  useEffect(() => {
    const box = field.current;
    box.style.height = "auto";
    box.style.height = `${Math.min(box.scrollHeight, innerHeight * 0.4)}px`;
  }, [text]);

  const last = conversation.messages.findLast((each) => each.info.role === "user")?.info;
  const offered = settings.agents.filter((each) => each.mode !== "subagent" && !each.hidden);
  const agent = choice.agent ?? last?.agent ?? offered[0]?.name ?? "";
  // Show the agent in use even while the others are being loaded, or if it is no longer configured.
  const agents = offered.some((each) => each.name === agent) || !agent ? offered : [{ name: agent }, ...offered];
  const lastModel = last?.model ? `${last.model.providerID}/${last.model.modelID}` : "";
  const agentModel = agents.find((each) => each.name === agent)?.model;
  const model = choice.model ?? (lastModel || (agentModel ? `${agentModel.providerID}/${agentModel.modelID}` : ""));
  const variants = Object.keys(settings.models.get(model)?.variants ?? {});

  function complete(value, caret) {
    asked.current = null;
    const before = value.slice(0, caret);
    const command = /^\/(\S*)$/.exec(before);
    if (command) {
      const known = [...BUILT_IN, ...settings.commands.map((each) => [each.name, each.description ?? ""])];
      const list = known.filter(([name]) => name.startsWith(command[1])).map(([name, about]) => ({ label: `/${name}`, about, insert: `/${name} `, from: 0 }));
      setOffers({ list: list.slice(0, 12), at: 0 });
      return;
    }
    const word = WORD.exec(before);
    if (!word) {
      closeOffers();
      return;
    }
    const from = before.length - word[2].length - 1;
    const query = word[2];
    const named = settings.agents.filter((each) => each.mode !== "primary" && !each.hidden && each.name.startsWith(query)).map((each) => ({ label: `@${each.name}`, about: "agent", insert: `@${each.name} `, from }));
    // What no longer fits goes at once: Enter must not take an agent or a file that was offered for fewer letters.
    setOffers((now) => ({ at: 0, list: [...named, ...now.list.filter((offer) => offer.path?.includes(query))] }));
    asked.current = query;
    get(`/find/file?query=${encodeURIComponent(query)}`, { directory: session?.directory, limit: 12 }).then(
      (found) => asked.current === query && setOffers({ at: 0, list: [...named, ...found.slice(0, 12).map((path) => ({ label: path, path, about: "", insert: `@${path}${path.endsWith("/") ? "" : " "}`, from }))] }),
      () => asked.current === query && setOffers({ at: 0, list: named }),
    );
  }

  function closeOffers() {
    asked.current = null;
    setOffers({ list: [], at: 0 });
  }

  function accept(offer) {
    const caret = field.current.selectionStart;
    const next = text.slice(0, offer.from) + offer.insert + text.slice(caret);
    setText(next);
    closeOffers();
    requestAnimationFrame(() => {
      const place = offer.from + offer.insert.length;
      field.current.focus();
      field.current.setSelectionRange(place, place);
    });
  }

  async function submit() {
    const words = text.trim();
    if (!words && !files.length) return;
    setText("");
    setFiles([]);
    closeOffers();
    const giveBack = (error) => {
      setText((now) => now || words);
      setFiles((now) => (now.length ? now : files));
      setFailure(error.message);
    };
    await sendPrompt({ id, session, settings, words, files, agent, model, variant: choice.variant, act, giveBack }).catch(giveBack);
  }

  function onKey(event) {
    const { list, at } = offers;
    if (list.length && ["ArrowDown", "ArrowUp"].includes(event.key)) {
      event.preventDefault();
      setOffers({ list, at: (at + (event.key === "ArrowDown" ? 1 : list.length - 1)) % list.length });
    } else if (list.length && (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey)) && list[at]) {
      event.preventDefault();
      accept(list[at]);
    } else if (list.length && event.key === "Escape") {
      event.preventDefault();
      closeOffers();
    } else if (event.key === "Enter" && !event.isComposing && (event.ctrlKey || event.metaKey || (!event.shiftKey && !IS_PHONE.matches))) {
      event.preventDefault();
      submit();
    } else if (event.key === "ArrowUp" && !text && last) {
      event.preventDefault();
      get(`/session/${id}/message/${last.id}`).then((whole) => setText(whole.parts.find((part) => part.type === "text" && !part.synthetic)?.text ?? ""), () => {});
    }
  }

  function attach(list) {
    for (const file of list) {
      if (file.size > MAX_FILE) setFailure(`${file.name} is larger than 20 MB.`);
      else read(file).then((url) => setFiles((now) => [...now, { filename: file.name || "pasted image", mime: file.type || "text/plain", url }]), () => setFailure(`${file.name} cannot be read.`));
    }
  }

  return html`<form class=${`prompt${dropping ? " dropping" : ""}`} onSubmit=${(event) => (event.preventDefault(), submit())}
      onDragOver=${(event) => (event.preventDefault(), setDropping(true))} onDragLeave=${() => setDropping(false)}
      onDrop=${(event) => (event.preventDefault(), setDropping(false), attach(event.dataTransfer.files))}>
    ${offers.list.length ? html`<ul class="offers" role="listbox" id="offers" aria-label="Completions">${offers.list.map((offer, at) => html`<li key=${offer.label} id=${`offer-${at}`} role="option" aria-selected=${at === offers.at}
        onMouseDown=${(event) => (event.preventDefault(), accept(offer))}><span>${offer.label}</span> <span class="about">${offer.about}</span></li>`)}</ul>` : null}
    ${files.length ? html`<ul class="chips">${files.map((file, at) => html`<li key=${at}>${file.mime.startsWith("image/") && html`<img src=${file.url} alt="" />`}${file.filename}
        <button type="button" class="quiet small" aria-label=${`Remove ${file.filename}`} onClick=${() => setFiles(files.filter((_, other) => other !== at))}>✕</button></li>`)}</ul>` : null}
    <label class="unseen" for="prompt">Your prompt</label>
    <textarea id="prompt" ref=${field} rows="1" value=${text} placeholder=${status ? "Add to what the agent is doing …" : "Ask or tell the agent …"} enterkeyhint=${IS_PHONE.matches ? "enter" : "send"}
      role="combobox" aria-autocomplete="list" aria-expanded=${offers.list.length > 0} aria-controls="offers" aria-activedescendant=${offers.list.length ? `offer-${offers.at}` : undefined}
      onInput=${(event) => (setText(event.target.value), complete(event.target.value, event.target.selectionStart))} onKeyDown=${onKey}
      onPaste=${(event) => event.clipboardData.files.length && (event.preventDefault(), attach(event.clipboardData.files))}></textarea>
    <div class="prompt-foot">
      <input type="file" multiple hidden ref=${picker} onChange=${(event) => (attach(event.target.files), (event.target.value = ""))} tabindex="-1" aria-hidden="true" />
      <button type="button" class="quiet" aria-label="Attach files" title="Attach files" onClick=${() => picker.current.click()}>+</button>
      ${agents.length ? html`<select aria-label="Agent" value=${agent} onChange=${(event) => setChoice({ ...choice, agent: event.target.value })}>${agents.map((each) => html`<option key=${each.name} value=${each.name}>${each.name}</option>`)}</select>` : null}
      <select aria-label="Model" value=${model} onChange=${(event) => setChoice({ ...choice, model: event.target.value, variant: "" })}>
        <option value="">Default model</option>
        ${model && !settings.models.has(model) && html`<option value=${model}>${model.slice(model.indexOf("/") + 1)}</option>`}
        ${settings.providers.map((provider) => html`<optgroup key=${provider.id} label=${provider.name}>${Object.values(provider.models).map((each) => html`<option key=${each.id} value=${`${provider.id}/${each.id}`}>${each.name}</option>`)}</optgroup>`)}
      </select>
      ${variants.length ? html`<select aria-label="Variant" value=${choice.variant ?? ""} onChange=${(event) => setChoice({ ...choice, variant: event.target.value })}><option value="">Usual effort</option>${variants.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select>` : null}
      <span class="grow"></span>
      ${status && html`<button type="button" class="danger" onClick=${act.stop}>Stop</button>`}
      <button class="primary" disabled=${!text.trim() && !files.length}>${status ? "Queue" : "Send"}</button>
    </div>
  </form>`;
}

// Commands of the page itself; all others are those of the server.
const BUILT_IN = [["undo", "undo the last prompt"], ["redo", "redo what was undone"], ["compact", "summarise the conversation"], ["share", "share this session"], ["rename", "set the title"], ["fork", "continue in a copy"], ["try", "try a prompt several times"], ["compare", "compare with another session"], ["export", "save this session as a file"]];
const RUN = { undo: "undo", redo: "redo", compact: "compact", share: "share", rename: "rename", fork: "fork", try: "tryIt", compare: "compare", export: "exportIt" };

async function sendPrompt({ id, session, settings, words, files, agent, model, variant, act, giveBack }) {
  const chosen = { ...(agent ? { agent } : {}), ...(variant ? { variant } : {}) };
  const [, name, rest] = /^\/(\S+)\s*([\s\S]*)$/.exec(words) ?? [];
  if (name && RUN[name] && !rest) return void act[RUN[name]]();
  const parts = files.map((file) => ({ type: "file", ...file }));
  if (name && settings.commands.some((each) => each.name === name)) {
    const body = { command: name, arguments: rest, parts, messageID: makeMessageId(), ...chosen, ...(model ? { model } : {}) };
    post(`/session/${id}/command`, body).catch(giveBack); // answered when the command has been carried out
    return undefined;
  }
  const ref = model ? { model: { providerID: model.slice(0, model.indexOf("/")), modelID: model.slice(model.indexOf("/") + 1) } } : {};
  if (words.startsWith("!") && words.length > 1) return post(`/session/${id}/shell`, { command: words.slice(1), agent, ...ref });
  if (words) parts.unshift({ type: "text", text: words });
  parts.push(...findMentions(words, session?.directory, settings.agents));
  return post(`/weft/session/${id}/submit`, { messageID: makeMessageId(), parts, ...chosen, ...ref });
}

/** Files and agents that a prompt names with `@`, as parts that the server reads. */
function findMentions(words, directory, agents) {
  return [...words.matchAll(/(^|\s)@([^\s@]+)/g)].flatMap((match) => {
    const name = match[2].replace(/[.,;:!?)]+$/, "");
    const start = match.index + match[1].length;
    const source = { value: `@${name}`, start, end: start + name.length + 1 };
    if (agents.some((each) => each.name === name)) return [{ type: "agent", name, source }];
    if (!/[./]/.test(name) || !directory) return [];
    const url = `file://${`${directory}/${name}`.split("/").map(encodeURIComponent).join("/")}`;
    return [{ type: "file", mime: name.endsWith("/") ? "application/x-directory" : "text/plain", filename: name, url, source: { type: "file", path: name, text: source } }];
  });
}

function read(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
