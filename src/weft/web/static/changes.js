// What a session, or one of its prompts, changed in files.
import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { get } from "./api.js";
import { formatCount } from "./format.js";
import { Loaded, ServerHtml, useLoaded } from "./parts.js";
import { setQuery, toBlame } from "./router.js";
import { listen } from "./store.js";

const OPEN_FILES = 10;

export function Changes({ id, directory, message, style }) {
  const chosen = style === "split" ? "split" : "unified";
  const diffs = useLoaded(() => get(`/weft/session/${id}/diff/view`, { messageID: message, style: chosen }), [id, message, chosen]);
  useEffect(() => listen(`diff:${id}`, diffs.reload), [id]);
  return html`<section class="changes" aria-labelledby="changes-title">
    <header><h2 id="changes-title">${message ? "What this prompt changed" : "What this session changed"}</h2>
      <span class="grow"></span>
      ${message && html`<button type="button" class="quiet" onClick=${() => setQuery({ message: "" })}>Whole session</button>`}
      <div class="choice" role="group" aria-label="How changes are shown">
        ${["unified", "split"].map((each) => html`<button key=${each} type="button" aria-pressed=${each === chosen} onClick=${() => setQuery({ style: each === "unified" ? "" : each })}>${each === "unified" ? "Unified" : "Side by side"}</button>`)}
      </div>
      <button type="button" class="quiet" onClick=${() => setQuery({ panel: "", message: "" })}>Close</button>
    </header>
    <${Loaded} of=${diffs}>${(files) => (files.length ? html`<p class="about">${formatCount(files.length, "file")}</p>
      ${files.map((file, at) => html`<${FileChange} key=${file.file + chosen} file=${file} directory=${directory} open=${at < OPEN_FILES} />`)}` : html`<div class="empty"><p>No file was changed.</p></div>`)}<//>
  </section>`;
}

function FileChange({ file, directory, open: first }) {
  const [open, setOpen] = useState(first);
  return html`<details class="file-change" open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary><span class="path">${file.file}</span> <span class="added">+${file.additions}</span> <span class="removed">−${file.deletions}</span></summary>
    ${open && directory && html`<p class="who small"><a href=${toBlame(file.file, directory)}>Who wrote it</a></p>`}
    ${open && html`<${ServerHtml} source=${file.html} />`}
  </details>`;
}
