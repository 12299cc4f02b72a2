// Small dialogs about a session: its title and its tags.
import { html, useRef, useState } from "./vendor/preact-htm.js";
import { patch } from "./api.js";
import { toTitle } from "./format.js";
import { Dialog } from "./parts.js";
import { putSession } from "./store.js";

function useChange(session, onClose) {
  const [problem, setProblem] = useState("");
  async function change(fields) {
    try {
      putSession(await patch(`/weft/session/${session.id}`, { change: fields }));
      onClose();
    } catch (error) {
      setProblem(error.message);
    }
  }
  return [change, problem];
}

export function RenameDialog({ session, onClose }) {
  const [change, problem] = useChange(session, onClose);
  const field = useRef(null);
  return html`<${Dialog} title="Rename the session" onClose=${onClose}>
    <form onSubmit=${(event) => (event.preventDefault(), change({ title: field.current.value }))}>
      <label for="title">Title</label><input id="title" ref=${field} value=${toTitle(session)} required autofocus />
      ${problem && html`<p class="failed" role="alert">${problem}</p>`}
      <div class="buttons"><button class="primary">Rename</button></div>
    </form><//>`;
}

export function TagDialog({ session, onClose }) {
  const [change, problem] = useChange(session, onClose);
  const field = useRef(null);
  const tags = session.weft?.tags ?? [];
  function submit(event) {
    event.preventDefault();
    const wanted = field.current.value.split(/[\s,]+/).filter(Boolean);
    change({ tag: wanted.filter((each) => !tags.includes(each)), untag: tags.filter((each) => !wanted.includes(each)) });
  }
  return html`<${Dialog} title="Tags" onClose=${onClose}>
    <form onSubmit=${submit}>
      <label for="tags">Tags, separated by spaces</label><input id="tags" ref=${field} value=${tags.join(" ")} autofocus />
      ${problem && html`<p class="failed" role="alert">${problem}</p>`}
      <div class="buttons"><button class="primary">Save</button></div>
    </form><//>`;
}
