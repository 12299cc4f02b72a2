// Find sessions by what is in their messages: the agent and the model that answered. Lists of sessions do not know these.
import { post } from "./api.js";

const FIELDS = ["id", "projectID", "directory", "parentID", "forkedFrom", "title", "created", "updated", "archived", "pinned", "tags", "additions", "deletions", "files", "cost", "priced"];
const MODEL = "provider_id || '/' || model_id";
const MAX_FOUND = 500;
const MAX_NAMES = 200;

const quote = (text) => `'${text.replaceAll("'", "''")}'`;
const contains = (column, words) => `instr(lower(${column}), ${quote(words.toLowerCase())}) > 0`;

async function select(sql, limit) {
  return (await post("/weft/sql", { sql, limit, everywhere: true })).rows;
}

/** Return whether a filter needs to look into messages. */
export const looksIntoMessages = (query) => Boolean(query.agent || query.model);

/** Return the sessions with prompts or answers of this agent and model; each may be a part of the name. */
export async function findSessions({ agent, model }) {
  const wanted = [agent && contains("agent", agent), model && contains(MODEL, model)].filter(Boolean).join(" AND ");
  const rows = await select(
    `SELECT id, project_id, directory, parent_id, forked_from, title, created, updated, archived, pinned, tags, additions, deletions, files,
       (SELECT sum(cost) FROM costs WHERE session_id = sessions.id), (SELECT min(priced) FROM costs WHERE session_id = sessions.id)
     FROM sessions WHERE id IN (SELECT session_id FROM prompts WHERE ${wanted} UNION SELECT session_id FROM steps WHERE ${wanted})
     ORDER BY updated DESC`,
    MAX_FOUND,
  );
  return rows.map((row) => toSession(Object.fromEntries(FIELDS.map((name, at) => [name, row[at]]))));
}

/** Return a row as the API returns a session. */
function toSession({ created, updated, archived, additions, deletions, files, pinned, tags, forkedFrom, cost, priced, ...info }) {
  return {
    ...info,
    time: { created, updated, archived: archived ? updated : undefined },
    summary: { additions, deletions, files },
    weft: {
      pinned: Boolean(pinned),
      tags: JSON.parse(tags || "[]"),
      forkedFrom: forkedFrom ? { sessionID: forkedFrom } : undefined,
      spent: cost === null ? undefined : { own: { cost, priced: Boolean(priced) } },
    },
  };
}

/** Return the names of agents and models that occur in any session, to choose from. */
export async function listNames() {
  const [agents, models] = await Promise.all(["agent", MODEL].map((name) => select(`SELECT DISTINCT ${name} FROM steps WHERE ${name} <> '' ORDER BY 1`, MAX_NAMES)));
  return { agents: agents.flat(), models: models.flat() };
}
