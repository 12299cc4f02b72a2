// The one place where text of the server becomes elements. The server has escaped everything in it, and the policy of the
// page lets no other script do this.
const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("weft", { createHTML: (html) => html })
  : { createHTML: (html) => html };

/** Return the elements of HTML that our server rendered. */
export function toNodes(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  for (const caption of template.content.querySelectorAll("figure.code > figcaption")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "quiet small copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy this ${caption.textContent}`);
    caption.append(button);
  }
  for (const link of template.content.querySelectorAll("a[href]")) link.target = "_blank";
  return template.content;
}

/** Copy text, and say so on the button that was pressed. */
export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    flash(button, "Copied");
  } catch {
    flash(button, "Could not copy");
  }
}

function flash(button, words) {
  if (!button) return;
  const before = button.textContent;
  button.textContent = words;
  setTimeout(() => (button.textContent = before), 1500);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("figure.code > figcaption > .copy");
  if (button) copyText(button.closest("figure").querySelector("code").textContent, button);
});
