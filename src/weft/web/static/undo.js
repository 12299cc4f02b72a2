// Undo and redo: first what would happen to each file, then the person decides.
import { html, useState } from "./vendor/preact-htm.js";
import { post } from "./api.js";
import { formatCount } from "./format.js";
import { Dialog, Loaded, Notice, useLoaded } from "./parts.js";
import { putSession } from "./store.js";

const WORDS = {
  restored: "is restored", removed: "is removed: the agent created it", unchanged: "is already as it was",
  kept: "is kept: you changed it since", uncovered: "cannot be restored: its contents were not recorded", missing: "cannot be restored: its contents are gone",
};
const CHANGES = new Set(["restored", "removed"]);

/** Undo to before a message; without a message, redo. */
export function UndoDialog({ session, message, onClose, onFailure }) {
  const path = `/weft/session/${session}/${message ? "revert" : "unrevert"}`;
  const body = message ? { messageID: message } : {};
  const preview = useLoaded(() => post(path, { ...body, dryRun: true }), [message]);
  const [left, setLeft] = useState(new Set());
  const [busy, setBusy] = useState(false);
  const name = message ? "Undo" : "Redo";
  async function run() {
    setBusy(true);
    const files = left.size ? { files: preview.value.files.map((each) => each.file).filter((file) => !left.has(file)) } : {};
    try {
      putSession((await post(path, { ...body, ...files })).session);
    } catch (error) {
      onFailure(error.message);
    }
    onClose();
  }
  function toggle(file) {
    const next = new Set(left);
    if (!next.delete(file)) next.add(file);
    setLeft(next);
  }
  const changed = preview.value?.files.filter((each) => CHANGES.has(each.fate) && !left.has(each.file)).length ?? 0;
  return html`<${Dialog} title=${message ? "Undo to before this prompt" : "Redo what was undone"} onClose=${onClose} actions=${html`
      <button type="button" class="primary" disabled=${busy || preview.value === undefined} onClick=${run}>${name}${changed ? ` and change ${formatCount(changed, "file")}` : ""}</button>
      <button type="button" class="quiet" onClick=${onClose}>Cancel</button>`}>
    <${Loaded} of=${preview}>${(result) => html`
      ${result.caution && html`<${Notice} kind="warning">${result.caution}<//>`}
      ${result.files.length ? html`<ul class="fates">${result.files.map((each) => html`<li key=${each.file}><label>
          <input type="checkbox" checked=${!left.has(each.file) && CHANGES.has(each.fate)} disabled=${!CHANGES.has(each.fate)} onChange=${() => toggle(each.file)} />
          <span><code>${each.file}</code> <span class=${CHANGES.has(each.fate) ? "" : "about"}>${WORDS[each.fate] ?? each.fate}</span>${each.reason && html` <span class="about">(${each.reason})</span>`}</span></label></li>`)}</ul>`
        : html`<p>No file changes. The messages ${message ? "from this prompt on are set aside" : "come back"}.</p>`}
      <p class="about">${message ? "Until your next prompt you can redo this." : ""}</p>`}<//>
  <//>`;
}
