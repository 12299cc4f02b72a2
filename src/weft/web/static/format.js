// Numbers, times and names for people.
// Formatters of the browser take longer to make than the page takes to show a session.
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const MINUTE = 60_000, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

/** A whole number with commas. */
export const formatNumber = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, ",");

export function formatCount(number, singular, plural = `${singular}s`) {
  return `${formatNumber(number)} ${number === 1 ? singular : plural}`;
}

export function formatTokens(number) {
  if (number < 1000) return String(number);
  if (number < 999_500) return `${(number / 1000).toFixed(number < 10_000 ? 1 : 0)}k`;
  return `${(number / 1_000_000).toFixed(1)}M`;
}

export function formatSize(bytes) {
  const units = ["bytes", "KB", "MB", "GB", "TB"];
  const at = Math.min(bytes ? Math.floor(Math.log2(bytes) / 10) : 0, units.length - 1);
  return `${(bytes / 1024 ** at).toFixed(at && bytes / 1024 ** at < 10 ? 1 : 0)} ${units[at]}`;
}

/** What is unknown is never shown as 0. */
export function formatCost(spent) {
  if (!spent) return "";
  const cost = Number(spent.cost ?? 0);
  if (spent.priced === false) return cost ? `> $${cost.toFixed(2)}` : "cost unknown";
  return cost && cost < 0.01 ? `$${cost.toFixed(4)}` : `$${cost.toFixed(2)}`;
}

export function formatDuration(ms) {
  if (ms === undefined || ms === null || ms < 0) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < MINUTE - 50) return `${(ms / 1000).toFixed(1)} s`;
  // Rounded before it is divided: 119.7 seconds are 2 minutes, not 1 minute and 60 seconds.
  const seconds = Math.round(ms / 1000), minutes = Math.round(ms / MINUTE);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function formatAgo(time, now = Date.now()) {
  const ms = now - time;
  if (ms < MINUTE) return "just now";
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min ago`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h ago`;
  if (ms < 7 * DAY) return `${Math.floor(ms / DAY)} d ago`;
  return formatDay(time);
}

function formatDay(time) {
  const date = new Date(time);
  return `${MONTHS[date.getMonth()]} ${date.getDate()}, ${date.getFullYear()}`;
}

export function formatClock(time) {
  const date = new Date(time);
  return [date.getHours(), date.getMinutes()].map((each) => String(each).padStart(2, "0")).join(":");
}

export function formatTime(time) {
  return `${formatDay(time)}, ${formatClock(time)}`;
}

/** The last two names of a path, which tell projects apart. */
export function shortenPath(path) {
  const names = (path ?? "").split("/").filter(Boolean);
  return names.length > 2 ? `…/${names.slice(-2).join("/")}` : path || "/";
}

export function toTitle(session) {
  if (!session) return "Session";
  return /^(New|Child) session - \d{4}-/.test(session.title) || !session.title ? "Untitled session" : session.title;
}

export function totalTokens(tokens) {
  if (!tokens) return 0;
  return tokens.input + tokens.output + tokens.reasoning + (tokens.cache?.read ?? 0) + (tokens.cache?.write ?? 0);
}
