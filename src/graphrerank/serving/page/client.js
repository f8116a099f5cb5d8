// Requests to the service. The responses of all routes are converted to one form.
import { titled } from "./passages.js";

const STAGES = { read: "parsing the request", rank: "queue and model", render: "writing the response" };
let key = "";
export const useKey = (given) => { key = given; };

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Return the content of a response, and the duration of its stages in milliseconds. */
export async function call(path, body) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const options = body === undefined ? { headers } : {
    method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, { ...options, cache: "no-store", credentials: "omit" });
  } catch {
    throw new Refused(0, "The service does not respond.");
  }
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, content.message || `The service returned status ${answer.status}.`);
  return { content, stages: stagesOf(answer.headers.get("server-timing") ?? "") };
}

/** Return the duration of each stage from a header such as `read;dur=0.21, rank;dur=4.90`. */
function stagesOf(header) {
  return Object.fromEntries([...header.matchAll(/([\w-]+);dur=([\d.]+)/g)].map(([, name, taken]) => [STAGES[name] ?? name, Number(taken)]));
}

/** Search the corpus, or the passages that match a filter. With `record`, the service logs the list for feedback. */
export async function inspect(query, filter = null, { explain = false, record = false } = {}) {
  const begin = performance.now();
  const narrowed = filter ? { filter } : {};
  const { content: found } = await call("/inspect", { query, ...narrowed, ...(explain ? { explain } : {}), ...(record ? { record } : {}) });
  return {
    id: found.id,
    query,
    filter,
    nodes: found.nodes.map((node) => ({ ...titled(node.text), id: node.doc_id, feedbackId: node.doc_id, explanation: node.explanation ?? null })),
    edges: found.edges.map(([a, b, weight, type]) => ({ a, b, weight, type })),
    rankings: found.rankings.map(({ name, nodes, scores, probabilities }) => ({ name, nodes, scores, probabilities: probabilities ?? null })),
    milliseconds: found.milliseconds,
    roundTrip: performance.now() - begin,
    isExplained: explain,
    request: { path: "/search", body: { query, ...narrowed, top_n: 10, return_documents: true } },
  };
}

/** Rank the passages of the request. Scores are not explained if there are too many edges. */
export async function rerank(query, given, limits) {
  const body = { query, ...given };
  const count = (given.documents ?? given.scores).length;
  const explain = (given.edges ?? []).length <= Math.min(limits.explained_edges, 600);
  const begin = performance.now();
  const { content: found, stages } = await call("/v2/rerank", { ...body, explain });
  const roundTrip = performance.now() - begin;
  const nodes = Array.from({ length: count }, (_, place) => ({
    ...titled(textOf(given, place)), id: String(given.ids?.[place] ?? place), feedbackId: String(place), explanation: null,
  }));
  const results = found.results;
  for (const result of results) nodes[result.index].explanation = result.explanation ?? null;
  const base = results.map(({ index, explanation }) => [index, explanation ? explanation.base_rank : index, explanation ? explanation.base_score : given.scores?.[index] ?? null]);
  base.sort((one, other) => one[1] - other[1] || one[0] - other[0]);
  if (!explain && given.scores) base.sort((one, other) => other[2] - one[2] || one[0] - other[0]);
  const isCalibrated = results.some(({ explanation }) => explanation && explanation.probability !== undefined && explanation.probability !== null);
  return {
    id: found.id,
    query,
    nodes,
    edges: (given.edges ?? []).map(([a, b, weight = 1, type = "other"]) => ({ a, b, weight, type })),
    rankings: [
      { name: "retriever", nodes: base.map(([index]) => index), scores: base.map(([, , score]) => score), probabilities: null },
      {
        name: "ours",
        nodes: results.map(({ index }) => index),
        scores: results.map((result) => result.explanation?.score ?? result.relevance_score),
        probabilities: isCalibrated ? results.map((result) => result.explanation.probability) : null,
      },
    ],
    milliseconds: stages,
    roundTrip,
    isExplained: explain,
    request: { path: "/v2/rerank", body },
  };
}

function textOf(given, place) {
  const document = given.documents?.[place];
  if (document === undefined) return `candidate ${place}`;
  return typeof document === "string" ? document : String(document.text ?? JSON.stringify(document));
}
