// Parser of the input field: passages, or JSON with scores and edges.
const LONGEST_TITLE = 80;
const FIELDS = ["documents", "scores", "edges", "entities", "doc_ids", "chunk_ids"];

/** Return a text with a title: its first line or sentence if it is short, otherwise its beginning. */
export function titled(text) {
  const first = text.split("\n", 1)[0];
  const stop = first.search(/[.:?!](\s|$)/);
  const lead = (stop > 0 ? first.slice(0, stop) : first).trim();
  const title = lead && lead.length <= LONGEST_TITLE ? lead : `${first.slice(0, 60).trim()}…`;
  return { title: title || "(no text)", text };
}

/** Parse the input field into fields of `/v2/rerank`, without the question. */
export function readPassages(text) {
  const content = text.trim();
  if (!content) throw new Error("Paste passages first, or try an example.");
  if (!/^[[{]/.test(content)) {
    const documents = content.split(/\n\s*\n/).map((passage) => passage.trim()).filter(Boolean);
    return { documents, edges: mentions(documents) };
  }
  let parsed;
  try {
    parsed = JSON.parse(content);
  } catch (error) {
    throw new Error(`The JSON is invalid: ${error.message}`);
  }
  const given = Array.isArray(parsed) ? { documents: parsed } : parsed;
  const kept = Object.fromEntries(FIELDS.filter((name) => given[name] !== undefined && given[name] !== null).map((name) => [name, given[name]]));
  for (const [name, entries] of Object.entries(kept)) if (!Array.isArray(entries)) throw new Error(`\`${name}\` must be a list.`);
  if (!kept.documents && !kept.scores) throw new Error("The JSON needs `documents` or `scores`.");
  return kept;
}

/** Return edges between passages where one mentions the other's title of at least four characters. */
export function mentions(documents) {
  const titles = documents.map((text) => titled(text).title.toLowerCase());
  const texts = documents.map((text) => text.toLowerCase());
  const edges = [];
  for (let i = 0; i < documents.length; i += 1) {
    for (let j = i + 1; j < documents.length; j += 1) {
      if (names(texts[i], titles[j]) || names(texts[j], titles[i])) edges.push([i, j, 1, "reference"]);
    }
  }
  return edges;
}

function names(text, title) {
  if (title.length < 4 || title.endsWith("…")) return false;
  for (let start = text.indexOf(title); start >= 0; start = text.indexOf(title, start + 1)) {
    const around = [text[start - 1] ?? " ", text[start + title.length] ?? " "];
    if (around.every((character) => !/[\p{L}\p{N}]/u.test(character))) return true;
  }
  return false;
}
