// Details of a passage: its text, its scores, and the edges whose removal changes the score most.
import { bar, byId, el, number, percent } from "./elements.js";

const NEIGHBOURS = 8;

export function drawDetail(view, node, left, right, state, select) {
  const host = byId("detail");
  if (node === null) {
    host.replaceChildren(el("h2", { id: "detail-title" }, "Passage"), el("p", { class: "soft" }, "Choose a passage in a list or in the graph."));
    return;
  }
  const passage = view.nodes[node];
  host.replaceChildren(
    el("p", { class: "soft overline" }, passage.id),
    el("h2", { id: "detail-title" }, passage.title),
    ...[view.judgements?.buttons(node)].filter(Boolean),
    el("p", { class: "passage", id: "passage" }, passage.text),
    ranks(view, node, left, right),
    ...reasons(view, node, state, select),
    ...neighbours(view, node, select),
  );
}

function ranks(view, node, left, right) {
  const entries = [left, right].map((index) => {
    const ranking = view.rankings[index];
    const place = ranking.nodes.indexOf(node);
    const probability = place < 0 ? null : ranking.probabilities?.[place] ?? null;
    return el(
      "div", {}, el("dt", {}, ranking.name),
      el("dd", {}, el("strong", {}, place < 0 ? "not listed" : `rank ${place + 1}`), ` score ${number(place < 0 ? null : ranking.scores[place])}`),
      probability === null ? null : el("dd", {}, bar(probability, `probability ${percent(probability)}`), ` ${percent(probability)} likely relevant`),
    );
  });
  return el("dl", { class: "facts" }, ...entries);
}

function reasons(view, node, state, select) {
  const explanation = view.nodes[node].explanation;
  const title = el("h3", {}, "Why");
  if (!explanation) {
    const words = state.message ?? (view.isExplained ? "No graph reranker has scored this passage." : "Measuring the effect of each edge…");
    return [title, el("p", { class: "soft", id: "reasons" }, words)];
  }
  const parts = [["base score", explanation.base_score], ["score smoothed along edges", explanation.gcs_part], ["network", explanation.learned_part], ["smoothed score + network", explanation.score]];
  const most = Math.max(...explanation.edges.map(({ effect }) => Math.abs(effect)), 1e-9);
  const rows = explanation.edges.map(({ edge: [a, b], effect, type }) => {
    const others = [a, b].filter((end) => end !== node);
    const names = others.map((end) => view.nodes[end].title).join(" – ");
    const fill = el("span", { class: effect > 0 ? "fill helps" : "fill hurts" });
    fill.style.width = `${(100 * Math.abs(effect)) / most}%`;
    const words = `${names}: without this ${type ?? ""} edge the score is ${number(Math.abs(effect))} ${effect > 0 ? "lower" : "higher"}`;
    return el("li", {}, el(
      "button", { type: "button", onclick: () => select(others[0]), "aria-label": words },
      el("span", { class: `dot ${type ?? "other"}` }), el("span", { class: "name" }, names),
      el("span", { class: "meter" }, fill), el("span", { class: "figure" }, `${effect > 0 ? "+" : ""}${number(effect)}`),
    ));
  });
  return [
    title,
    el("dl", { class: "facts parts" }, ...parts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, number(value))))),
    rows.length
      ? el("p", { class: "soft" }, "Effect of single edges: change of the score when the edge is removed.")
      : el("p", { class: "soft" }, "No edge changes the score."),
    el("ol", { class: "edges", id: "reasons" }, ...rows),
  ];
}

function neighbours(view, node, select) {
  const ends = view.edges.filter(({ a, b }) => a === node || b === node).map(({ a, b, type, weight }) => [a === node ? b : a, type, weight]);
  if (!ends.length) return [el("h3", {}, "Neighbours"), el("p", { class: "soft" }, "No edge connects this passage to another candidate.")];
  const kept = ends.slice(0, NEIGHBOURS).map(([other, type]) => el(
    "button", { type: "button", onclick: () => select(other) }, el("span", { class: `dot ${type}` }), view.nodes[other].title,
  ));
  const rest = ends.length > NEIGHBOURS ? el("span", { class: "soft" }, `and ${ends.length - NEIGHBOURS} more`) : null;
  return [el("h3", {}, "Neighbours"), el("div", { class: "chips" }, ...kept, rest)];
}

/** Draw the time of each stage as one bar. The rest of the round trip is spent in the network and in the page. */
export function drawStages(view) {
  const stages = Object.entries(view.milliseconds);
  const known = stages.reduce((sum, [, taken]) => sum + taken, 0);
  const all = [...stages, ["HTTP and other", Math.max(0, view.roundTrip - known)]];
  const total = all.reduce((sum, [, taken]) => sum + taken, 0) || 1;
  const pieces = all.map(([name, taken], place) => {
    const piece = el("span", { class: `stage s${place % 6}`, title: `${name} ${taken.toFixed(1)} ms` });
    piece.style.width = `${(100 * taken) / total}%`;
    return piece;
  });
  const words = all.map(([name, taken], place) => el("li", {}, el("span", { class: `dot s${place % 6}` }), `${name} `, el("strong", {}, `${taken.toFixed(1)} ms`)));
  byId("stages").replaceChildren(
    el("div", { class: "stack", role: "img", "aria-label": `${total.toFixed(0)} milliseconds in total` }, ...pieces),
    el("ul", { class: "words" }, ...words, el("li", {}, "total ", el("strong", {}, `${total.toFixed(1)} ms`))),
  );
}
